import { useQuery } from "@tanstack/react-query";
import type { Schemas } from "../api/client";
import { meQuery } from "../api/queries";
import { covers, labelsText } from "../lib/labels";

const RANK = { viewer: 0, operator: 1, admin: 2 } as const;

/** The signed-in user; undefined only while a session ends. */
export function useMe(): Schemas["Me"] | undefined {
  return useQuery(meQuery).data;
}

/** Whether the user has at least this role, on every node. */
export function useHasRole(role: Schemas["Role"]): boolean {
  const me = useMe();
  return me !== undefined && RANK[me.role] >= RANK[role] && (role === "viewer" || me.limits.length === 0);
}

/** Whether the user is an operator of any nodes; the backend refuses what is about others. */
export function useIsSomeOperator(): boolean {
  const me = useMe();
  return me !== undefined && RANK[me.role] >= RANK.operator;
}

/** `role=db`: the labels of the nodes of which the user is operator; empty if that is not limited. */
export const limitsText = (me: Schemas["Me"]): string => labelsText(Object.assign({}, ...me.limits));

/**
 * Why the user may not do what needs an operator: `what` is that, such as “Changing nodes”; null if they may.
 *
 * labels: of the node, or of the selector whose nodes it is about; undefined while they are not known.
 */
export function refusalFor(
  me: Schemas["Me"] | undefined,
  what: string,
  labels: Record<string, string> | undefined,
): string | null {
  if (me === undefined || RANK[me.role] < RANK.operator) return `${what} requires the operator role.`;
  if (me.limits.length === 0 || (labels !== undefined && me.limits.every((patterns) => covers(patterns, labels))))
    return null;
  return `You are operator of ${limitsText(me)} only.`;
}

/** As refusalFor, of the signed-in user. */
export function useRefusal(what: string, labels: Record<string, string> | undefined): string | null {
  return refusalFor(useMe(), what, labels);
}
