import { expect, test } from "vitest";
import { irq, inventory as made } from "../testing";
import { keyOf, madeOf, pointDraft, pointText, present, type Tried, wishesOf } from "./params";
import { netdevInSight, netdevsOf } from "./sight";

const PARAMS = { "coalesce/rx-usecs": "3", "coalesce/adaptive-rx": "on", "ring/rx": "256" };

const key = (name: string) => keyOf("eth0", null, name);

test("only what differs from what stands is asked for, in its one spelling", () => {
  const draft = { "coalesce/rx-usecs": " 050 ", "coalesce/adaptive-rx": "off", "ring/rx": "256", unheard: "1" };
  expect(wishesOf(PARAMS, draft, key)).toEqual({
    desired: [
      { key: "netdev/eth0/coalesce/rx-usecs", value: "50" },
      { key: "netdev/eth0/coalesce/adaptive-rx", value: "off" },
    ],
    wrong: {},
  });
});

test.each(["", "-1", "1.5", "x", "99999999999"])("“%s” is not a number to ask for", (typed) => {
  const { desired, wrong } = wishesOf(PARAMS, { "ring/rx": typed }, key);
  expect(desired).toEqual([]);
  expect(Object.keys(wrong)).toEqual(["ring/rx"]);
});

test("a queue's own value has the queue in its key", () =>
  expect(keyOf("eth0", "rx-3", "coalesce/rx-usecs")).toBe("netdev/eth0/rx-3/coalesce/rx-usecs"));

test("groups of which a device has nothing are left out", () =>
  expect(present(PARAMS).map(({ label, params }) => [label, params.length])).toEqual([
    ["NIC, receiving", 2],
    ["Rings", 1],
  ]));

const tried = (over: Partial<Tried>): Tried => ({
  ...{
    name: "coalesce/rx-usecs",
    asked: "504",
    verdict: "taken",
    stood: "504",
    words: "",
    time_ms: 0,
    unsupported: false,
  },
  ...over,
});

test.each([
  [tried({ verdict: "rounded", stood: "500" }), "rounded 504 → 500"],
  [tried({ verdict: "refused", stood: null, words: "Invalid argument" }), "refused 504: Invalid argument"],
  [tried({ verdict: "ignored", stood: "3" }), "ignored 504, stayed 3"],
  [tried({ verdict: "no_effect", words: "21,000/s" }), "504 had no effect: 21,000/s"],
  [tried({}), "took 504"],
])("%o reads “%s”", (one, words) =>
  expect(madeOf([one], "coalesce/rx-usecs").map((line) => line.words)).toEqual([words]),
);

test("what the driver did not do as asked comes before what it took, the newest first", () => {
  const all = [
    tried({ asked: "1", time_ms: 9 }),
    tried({ asked: "2", verdict: "refused", words: "no", time_ms: 1 }),
    tried({ asked: "3", verdict: "rounded", stood: "4", time_ms: 2 }),
    tried({ asked: "5", time_ms: 3 }),
    tried({ name: "ring/rx" }),
  ];
  expect(madeOf(all, "coalesce/rx-usecs").map(({ bad, words }) => [bad, words])).toEqual([
    [true, "rounded 3 → 4"],
    [true, "refused 2: no"],
    [false, "took 1, 5"],
  ]);
});

test("a picked point asks for its values and for a driver that leaves them alone", () => {
  expect(pointText(54, 32)).toBe("54x32");
  expect(pointText(54, undefined)).toBe("54");
  expect(pointDraft("54x32", PARAMS)).toEqual({
    "coalesce/rx-usecs": "54",
    "coalesce/rx-frames": "32",
    "coalesce/adaptive-rx": "off",
  });
  expect(pointDraft("54", {})).toEqual({ "coalesce/rx-usecs": "54" });
  expect(pointDraft(undefined, PARAMS)).toEqual({});
});

test("the panel's device is in sight, else the URL's, else the first that can be told to wait", () => {
  const { netdevs, ...rest } = made([irq(1)]);
  const [eth0] = netdevs;
  if (eth0 === undefined) throw new Error("There is no eth0.");
  const named = (name: string, virtual: boolean, params = {}) => ({ ...eth0, name, virtual, params });
  const inventory = {
    ...rest,
    netdevs: [named("lo", true), named("veth0", true), named("eth0", false), named("eth1", false, PARAMS)],
  };
  expect(netdevsOf(inventory).map(({ name }) => name)).toEqual(["eth0", "eth1", "veth0"]);
  expect(netdevInSight(inventory, {})?.name).toBe("eth1");
  expect(netdevInSight(inventory, { nic: "veth0" })?.name).toBe("veth0");
  expect(netdevInSight(inventory, { nic: "veth0", sel: "nic:eth0" })?.name).toBe("eth0");
  expect(netdevInSight({ ...inventory, netdevs: [] }, {})).toBeNull();
});
