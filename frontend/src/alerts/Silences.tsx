import { Button } from "@mantine/core";
import { useMutation, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { api, errorMessage, unwrap } from "../api/client";
import { handleSignedOut } from "../api/queries";
import { useHasRole } from "../auth/me";
import { Moment } from "../components/Moment";
import { RowsTable } from "../components/RowsTable";
import { labelsText } from "../lib/labels";
import { refetchAlerts, silencesQuery } from "./queries";
import { SilenceDialog } from "./SilenceDialog";

/** Silences in force; operators add and end them. */
export function Silences() {
  const silences = useQuery(silencesQuery);
  const maySilence = useHasRole("operator");
  const [isOpen, setOpen] = useState(false);
  const end = useMutation({
    mutationFn: (silence_id: number) =>
      unwrap(api.DELETE("/api/v1/alert-silences/{silence_id}", { params: { path: { silence_id } } })),
    onError: handleSignedOut,
    onSuccess: refetchAlerts,
  });
  return (
    <section className="card">
      <h2>
        Silences <small>receivers are not told of alerts that match</small>
      </h2>
      {maySilence && (
        <div className="body">
          <Button onClick={() => setOpen(true)}>Silence…</Button>
        </div>
      )}
      {end.isError && (
        <p className="body bad" role="alert">
          {errorMessage(end.error)}
        </p>
      )}
      <RowsTable
        rows={silences}
        label="silences"
        columns={["patterns", "ends", "why", "by", "silenced now"]}
        numeric={["silenced now"]}
      >
        {(silence) => (
          <tr>
            <td className="mono">{labelsText(silence.labels)}</td>
            <td>
              <Moment at={silence.ends_at} />
            </td>
            <td>{silence.comment}</td>
            <td>{silence.created_by}</td>
            <td className="n">{silence.alerts}</td>
            <td>
              {maySilence && (
                <Button
                  onClick={() => end.mutate(silence.id)}
                  aria-label={`End the silence of ${labelsText(silence.labels)}`}
                >
                  End
                </Button>
              )}
            </td>
          </tr>
        )}
      </RowsTable>
      {isOpen && <SilenceDialog patterns="" onClose={() => setOpen(false)} />}
    </section>
  );
}
