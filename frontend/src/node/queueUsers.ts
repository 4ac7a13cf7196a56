import type { Inventory } from "./types";

export type QueueUser = Inventory["queue_users"][number];

/** A program that uses queues: `AF_XDP suricata, rx-3 tx-3`; all queues of the device where none is named. */
export const userOf = ({ kind, name, queues }: QueueUser): string =>
  [[kind, name].filter(Boolean).join(" "), queues.join(" ")].filter(Boolean).join(", ");

/** The programs that use queues of a network device. */
export const usersOf = (netdev: string, inventory: Inventory | null): QueueUser[] =>
  (inventory?.queue_users ?? []).filter(({ device }) => device === netdev);
