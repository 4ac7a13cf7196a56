import { NativeSelect, TextInput } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import { useState } from "react";
import { api, unwrap } from "../api/client";
import { handleSignedOut } from "../api/queries";
import { ConfirmDialog } from "../components/ConfirmDialog";
import { refetchAlerts } from "./queries";
import { parsePatterns } from "./words";

const HOUR_MS = 3_600_000;
const LENGTHS = [
  { value: "1", label: "1 hour" },
  { value: "4", label: "4 hours" },
  { value: "24", label: "1 day" },
  { value: "168", label: "7 days" },
];

/** Asks for how long and why alerts that match patterns are silenced. */
export function SilenceDialog({ patterns, onClose }: { patterns: string; onClose: () => void }) {
  const [line, setLine] = useState(patterns);
  const [hours, setHours] = useState("4");
  const [comment, setComment] = useState("");
  const labels = parsePatterns(line);
  const create = useMutation({
    mutationFn: () =>
      unwrap(
        api.POST("/api/v1/alert-silences", {
          body: {
            labels: typeof labels === "string" ? {} : labels,
            ends_at: new Date(Date.now() + Number(hours) * HOUR_MS).toISOString(),
            comment,
          },
        }),
      ),
    onError: handleSignedOut,
    onSuccess: () => {
      onClose();
      return refetchAlerts();
    },
  });
  return (
    <ConfirmDialog
      title="Silence alerts"
      action="Silence"
      harmless
      disabled={comment.trim() === "" || typeof labels === "string"}
      pending={create.isPending}
      error={create.error}
      onConfirm={() => create.mutate()}
      onClose={onClose}
    >
      <p>Receivers are not told of alerts that match all patterns. What still fires at the end is sent then.</p>
      <TextInput
        label="Patterns"
        description="rule, node, and labels of nodes; * stands for any text."
        value={line}
        error={line !== "" && typeof labels === "string" ? labels : undefined}
        onChange={(event) => setLine(event.currentTarget.value)}
      />
      <NativeSelect
        label="For"
        data={LENGTHS}
        value={hours}
        onChange={(event) => setHours(event.currentTarget.value)}
      />
      <TextInput
        label="Why"
        data-autofocus
        required
        maxLength={500}
        autoComplete="off"
        value={comment}
        onChange={(event) => setComment(event.currentTarget.value)}
      />
    </ConfirmDialog>
  );
}
