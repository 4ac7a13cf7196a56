import { useDebouncedValue } from "@mantine/hooks";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { api, errorMessage, unwrap } from "../../api/client";
import { formatCount } from "../../lib/format";
import type { PolicyBody } from "../types";
import { chosenNodes } from "./previewNodes";

const TYPING_MS = 350;
const AGAIN_MS = 10_000;

/** How many nodes a selector matches now, and which of the chosen ones it does not; null while it is invalid. */
export function useMatches(selector: PolicyBody["selector"] | null, chosen?: string) {
  const [settled] = useDebouncedValue(JSON.stringify(selector), TYPING_MS);
  return useQuery({
    queryKey: ["policy-matches", settled, chosen],
    enabled: settled !== "null",
    placeholderData: keepPreviousData,
    refetchInterval: AGAIN_MS,
    queryFn: ({ signal }) => {
      const query = chosen === undefined ? {} : { node_id: chosenNodes(chosen) };
      return unwrap(api.POST("/api/v1/policies/matches", { params: { query }, body: JSON.parse(settled), signal }));
    },
  });
}

/** How many nodes a selector matches, with a warning at none. */
export function Matches({ selector }: { selector: PolicyBody["selector"] | null }) {
  const { data, error } = useMatches(selector);
  const none = selector !== null && data?.nodes === 0;
  return (
    <p
      className={error !== null ? "bad" : none ? "warn" : "muted"}
      aria-live="polite"
      style={{ gridColumn: "1 / -1", margin: 0 }}
    >
      {selector === null
        ? "The number of matching nodes appears when the selector is valid."
        : error !== null
          ? errorMessage(error)
          : data === undefined
            ? "Counting the nodes that match."
            : `Matches ${data.nodes.toLocaleString("en")} of ${formatCount(data.fleet, "node")}${none ? ": the policy would do nothing until a node matches." : "."}`}
    </p>
  );
}
