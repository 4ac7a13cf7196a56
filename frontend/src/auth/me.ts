import { useQuery } from "@tanstack/react-query";
import type { Schemas } from "../api/client";
import { meQuery } from "../api/queries";

const RANK = { viewer: 0, operator: 1, admin: 2 } as const;

/** The signed-in user; undefined only while a session ends. */
export function useMe(): Schemas["Me"] | undefined {
  return useQuery(meQuery).data;
}

/** Whether the user has at least this role. */
export function useHasRole(role: Schemas["Role"]): boolean {
  const me = useMe();
  return me !== undefined && RANK[me.role] >= RANK[role];
}
