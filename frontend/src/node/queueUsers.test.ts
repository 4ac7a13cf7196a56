import { expect, test } from "vitest";
import { userOf, usersOf } from "./queueUsers";
import { inventory } from "./testData";

const USERS = [
  { kind: "XDP", device: "eth0", queues: [], name: "xdp_lb", irqs: [] },
  { kind: "AF_XDP", device: "eth1", queues: ["rx-3", "tx-3"], name: "suricata", irqs: [] },
  { kind: "vfio-pci", device: "0000:03:00.0", queues: [], name: null, irqs: [60] },
];

test("a user of queues is shown by its kind, its name and the queues", () =>
  expect(USERS.map(userOf)).toEqual(["XDP xdp_lb", "AF_XDP suricata, rx-3 tx-3", "vfio-pci"]));

test("a network device has the users of its own queues only", () =>
  expect(usersOf("eth1", { ...inventory([]), queue_users: USERS })).toEqual([USERS[1]]));
