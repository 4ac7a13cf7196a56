import { useQuery } from "@tanstack/react-query";
import type { Schemas } from "../../api/client";
import { changeQuery, openChangesQuery } from "../../api/queries";
import { statusWords } from "../../changes/state";

/** What an applied change awaits, or how it ended. */
export function Outcome({ change }: { change: Schemas["Change"] }) {
  const { id } = change;
  const changes = useQuery(openChangesQuery).data?.changes;
  const open = changes === undefined ? change : changes.find((one) => one.id === id);
  const ended = useQuery({ ...changeQuery(id), enabled: open === undefined, staleTime: 0 }).data;
  return <p role="status">{open !== undefined ? awaited(open) : ended !== undefined && endOf(ended)}</p>;
}

const awaited = ({ state }: Schemas["Change"]): string =>
  state === "applying" ? "Being applied." : "Applied. Confirm it in the banner above, or it rolls back.";

const endOf = (change: Schemas["Change"]): string =>
  change.state === "failed" ? "The change failed." : `Applied, then ${statusWords(change).text}.`;
