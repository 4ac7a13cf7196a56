import { type UseMutationResult, useMutation } from "@tanstack/react-query";
import { api, type Schemas, unwrap } from "../api/client";
import { handleSignedOut, queryClient } from "../api/queries";
import { formatCount } from "../lib/format";
import { dateTime } from "../lib/time";

export const ENROLMENT_TOKENS = ["enrolment-tokens"];

type Wanted = Partial<Schemas["EnrolmentTokenCreate"]>;
export type Enrolment = UseMutationResult<Schemas["EnrolmentTokenCreated"], unknown, Wanted>;

const ONE_NODE: Schemas["EnrolmentTokenCreate"] = {
  simulated: false,
  expires_in_minutes: 60,
  max_uses: 1,
  labels: {},
};

/** Creates an enrolment token, for one node unless more is wanted. */
export const useEnrolment = (): Enrolment =>
  useMutation({
    mutationFn: (wanted: Wanted) => unwrap(api.POST("/api/v1/enrolment-tokens", { body: { ...ONE_NODE, ...wanted } })),
    onError: handleSignedOut,
    onSuccess: () => queryClient.invalidateQueries({ queryKey: ENROLMENT_TOKENS }),
  });

type Allowed = Pick<
  Schemas["EnrolmentToken"],
  "max_uses" | "simulated" | "node_name" | "name_pattern" | "labels" | "rejoin_until"
>;

/** What a token allows: `Enrols up to 50 nodes named db-*, labelled role=db. Nodes that exist do not enrol again.` */
export function tokenAllows({ max_uses, simulated, node_name, name_pattern, labels, rejoin_until }: Allowed): string {
  if (node_name !== null) return `Enrols ${node_name} again, whose key so far ends.`;
  const nodes = simulated ? "simulated nodes" : max_uses === 1 ? "one node" : `up to ${formatCount(max_uses, "node")}`;
  const named = name_pattern === null ? "" : ` named ${name_pattern}`;
  const pairs = Object.entries(labels).map(([name, value]) => `${name}=${value}`);
  const labelled = pairs.length === 0 ? "" : `, labelled ${pairs.join(" ")}`;
  const rejoin = simulated
    ? ""
    : rejoin_until === null
      ? " Nodes that exist do not enrol again."
      : ` Until ${dateTime(Date.parse(rejoin_until))}, nodes that exist enrol again, and their keys so far end.`;
  return `Enrols ${nodes}${named}${labelled}.${rejoin}`;
}
