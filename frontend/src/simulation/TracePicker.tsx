import { Button, FileButton, NativeSelect } from "@mantine/core";
import { useMutation, useQuery } from "@tanstack/react-query";
import { useRef, useState } from "react";
import { api, errorMessage, unwrap } from "../api/client";
import { handleSignedOut, queryClient } from "../api/queries";
import { useHasRole } from "../auth/me";
import { ConfirmDialog } from "../components/ConfirmDialog";
import { formatCount } from "../lib/format";
import { traceName } from "./format";
import { tracesQuery } from "./queries";
import styles from "./simulation.module.css";
import { studySchema } from "./studyForm";

type Props = { value: string; error: string | undefined; onChange: (name: string) => void };

/** The jobs of a study: generated, or of a trace; with the upload of a file in Standard Workload Format. */
export function TracePicker({ value, error, onChange }: Props) {
  const isOperator = useHasRole("operator");
  const traces = useQuery(tracesQuery);
  const stored = traces.data ?? [];
  const generated = String(studySchema("trace").default);
  const emptyInput = useRef<() => void>(null);
  const upload = useMutation({
    mutationFn: (file: File) =>
      unwrap(
        api.PUT("/api/v1/simulation-traces/{name}", {
          params: { path: { name: traceName(file.name) } },
          body: file as unknown as string,
          bodySerializer: (body) => body,
          headers: { "content-type": "application/octet-stream" },
        }),
      ),
    onError: handleSignedOut,
    onSettled: () => emptyInput.current?.(), // the same file can be chosen again
    onSuccess: async ({ facts }) => {
      await queryClient.invalidateQueries({ queryKey: tracesQuery.queryKey });
      onChange(facts.name);
    },
  });
  const [asking, setAsking] = useState(false);
  const remove = useMutation({
    mutationFn: () => unwrap(api.DELETE("/api/v1/simulation-traces/{name}", { params: { path: { name: value } } })),
    onError: handleSignedOut,
    onSuccess: async () => {
      await queryClient.invalidateQueries({ queryKey: tracesQuery.queryKey });
      setAsking(false);
      onChange(generated);
    },
  });
  const facts = stored.find((one) => one.facts.name === value)?.facts;
  const names = new Set([generated, ...stored.map((one) => one.facts.name), value]);
  return (
    <div className={styles.trace}>
      <NativeSelect
        label="Trace"
        description={
          facts === undefined
            ? "Generated jobs have hyper-exponential run times, sizes of powers of two and exponential arrivals."
            : `${formatCount(facts.jobs, "job")} of up to ${facts.largest.toLocaleString("en")} processes; sizes are scaled to the nodes.`
        }
        value={value}
        error={error}
        data={[...names]}
        onChange={(event) => onChange(event.currentTarget.value)}
      />
      <FileButton
        resetRef={emptyInput}
        onChange={(file) => file !== null && upload.mutate(file)}
        accept=".swf,.gz,.txt"
      >
        {(props) => (
          <Button
            {...props}
            disabled={!isOperator}
            loading={upload.isPending}
            title={isOperator ? undefined : "Uploading requires the operator role."}
          >
            Upload an SWF file
          </Button>
        )}
      </FileButton>
      {facts !== undefined && (
        <Button
          disabled={!isOperator}
          title={isOperator ? undefined : "Deleting requires the operator role."}
          onClick={() => {
            remove.reset();
            setAsking(true);
          }}
        >
          Delete this trace
        </Button>
      )}
      {asking && (
        <ConfirmDialog
          title={`Delete the trace “${value}”?`}
          action="Delete the trace"
          pending={remove.isPending}
          error={remove.error}
          onConfirm={() => remove.mutate()}
          onClose={() => setAsking(false)}
        >
          <p>Studies that had it keep their results, but cannot be run again with it.</p>
        </ConfirmDialog>
      )}
      {(upload.error ?? traces.error) !== null && (
        <p className="bad" role="alert">
          {errorMessage(upload.error ?? traces.error)}
        </p>
      )}
    </div>
  );
}
