import { Button, Modal, TextInput } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { api, type Schemas, unwrap } from "../api/client";
import { handleSignedOut, nodeQuery, queryClient } from "../api/queries";
import dialogStyles from "../components/dialog.module.css";
import { FormError } from "../components/FormError";
import { useFocusReturn } from "../components/useFocusReturn";
import { labelsText, parseLabels } from "../lib/labels";

type NodeSummary = Schemas["NodeSummary"];

/** Dialog to edit a node's labels, which group and filter nodes. */
export function EditLabels({ node, onClose }: { node: NodeSummary; onClose: () => void }) {
  const [line, setLine] = useState(() => labelsText(node.labels));
  useFocusReturn();
  const labels = parseLabels(line);
  const save = useMutation({
    mutationFn: (wanted: Record<string, string>) =>
      unwrap(
        api.PATCH("/api/v1/nodes/{node_id}", { params: { path: { node_id: node.id } }, body: { labels: wanted } }),
      ),
    onError: handleSignedOut,
    onSuccess: () => {
      onClose();
      void queryClient.invalidateQueries({ queryKey: nodeQuery(node.id).queryKey });
      return queryClient.invalidateQueries({ queryKey: ["fleet"] });
    },
  });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (typeof labels !== "string") save.mutate(labels);
  };
  return (
    <Modal opened onClose={onClose} title={`Labels of ${node.name}`} closeButtonProps={{ "aria-label": "Close" }}>
      <form className={dialogStyles.dialog} onSubmit={submit}>
        <TextInput
          label="Labels"
          description={`For example rack=r01 note="row 2". They stay when the agent reconnects. Of labels from the agent or its enrolment token, only the value can be changed: one that is removed returns.`}
          data-autofocus
          autoComplete="off"
          spellCheck={false}
          value={line}
          error={typeof labels === "string" ? labels : undefined}
          onChange={(event) => setLine(event.currentTarget.value)}
        />
        <FormError error={save.error} fields={[]} />
        <div className={dialogStyles.buttons}>
          <Button onClick={onClose}>Cancel</Button>
          <Button type="submit" variant="filled" disabled={typeof labels === "string"} loading={save.isPending}>
            Save
          </Button>
        </div>
      </form>
    </Modal>
  );
}
