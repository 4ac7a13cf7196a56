import { useQuery } from "@tanstack/react-query";
import type { Schemas } from "../../api/client";
import { changeQuery, openChangesQuery } from "../../api/queries";
import { statusWords } from "../../changes/state";

/** What an applied change awaits, or how it ended. */
export function Outcome({ change: { id } }: { change: Schemas["Change"] }) {
  const open = useQuery(openChangesQuery).data?.changes;
  const isOpen = open === undefined || open.some((one) => one.id === id);
  const ended = useQuery({ ...changeQuery(id), enabled: !isOpen, staleTime: 0 }).data;
  return (
    <p role="status">
      {isOpen
        ? "Applied. Confirm it in the banner above, or it rolls back."
        : ended === undefined
          ? "Applied."
          : ended.state === "failed"
            ? "The change failed."
            : `Applied, then ${statusWords(ended).text}.`}
    </p>
  );
}
