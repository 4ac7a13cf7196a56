import { expect, test } from "vitest";
import { irq, inventory as made } from "../testData";
import { netdevsOf, selectedNetdev } from "./netdevSelection";
import {
  type DriverResponse,
  desiredValuesOf,
  driverResponses,
  keyOf,
  pointDraft,
  pointText,
  presentParams,
} from "./nicParams";

const PARAMS = { "coalesce/rx-usecs": "3", "coalesce/adaptive-rx": "on", "ring/rx": "256" };

const key = (name: string) => keyOf("eth0", null, name);

test("only values that differ from the current ones are desired, in canonical form", () => {
  const draft = { "coalesce/rx-usecs": " 050 ", "coalesce/adaptive-rx": "off", "ring/rx": "256", unknown: "1" };
  expect(desiredValuesOf(PARAMS, draft, key)).toEqual({
    desired: [
      { key: "netdev/eth0/coalesce/rx-usecs", value: "50" },
      { key: "netdev/eth0/coalesce/adaptive-rx", value: "off" },
    ],
    wrong: {},
  });
});

test.each(["", "-1", "1.5", "x", "99999999999"])("“%s” is not a valid number", (typed) => {
  const { desired, wrong } = desiredValuesOf(PARAMS, { "ring/rx": typed }, key);
  expect(desired).toEqual([]);
  expect(Object.keys(wrong)).toEqual(["ring/rx"]);
});

test("a queue's own value has the queue in its key", () =>
  expect(keyOf("eth0", "rx-3", "coalesce/rx-usecs")).toBe("netdev/eth0/rx-3/coalesce/rx-usecs"));

test("groups without a present parameter are omitted", () =>
  expect(presentParams(PARAMS).map(({ label, params }) => [label, params.length])).toEqual([
    ["NIC, receive", 2],
    ["Rings", 1],
  ]));

const response = (over: Partial<DriverResponse>): DriverResponse => ({
  ...{
    name: "coalesce/rx-usecs",
    requested: "504",
    verdict: "accepted",
    read_back: "504",
    message: "",
    time_ms: 0,
    unsupported: false,
  },
  ...over,
});

test.each([
  [response({ verdict: "rounded", read_back: "500" }), "rounded 504 → 500"],
  [response({ verdict: "refused", read_back: null, message: "Invalid argument" }), "refused 504: Invalid argument"],
  [response({ verdict: "ignored", read_back: "3" }), "ignored 504, stayed 3"],
  [response({ verdict: "no_effect", message: "21,000/s" }), "504 had no effect: 21,000/s"],
  [response({}), "accepted 504"],
])("%o reads “%s”", (one, text) =>
  expect(driverResponses([one], "coalesce/rx-usecs").map((line) => line.text)).toEqual([text]),
);

test("values not accepted as requested come first, newest first", () => {
  const all = [
    response({ requested: "1", time_ms: 9 }),
    response({ requested: "2", verdict: "refused", message: "no", time_ms: 1 }),
    response({ requested: "3", verdict: "rounded", read_back: "4", time_ms: 2 }),
    response({ requested: "5", time_ms: 3 }),
    response({ name: "ring/rx" }),
  ];
  expect(driverResponses(all, "coalesce/rx-usecs").map(({ warning, text }) => [warning, text])).toEqual([
    [true, "rounded 3 → 4"],
    [true, "refused 2: no"],
    [false, "accepted 1, 5"],
  ]);
});

test("a selected point sets its values and turns adaptive-rx off", () => {
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

test("the selected device is the panel's, else the URL's, else the first with rx-usecs", () => {
  const { netdevs, ...rest } = made([irq(1)]);
  const [eth0] = netdevs;
  if (eth0 === undefined) throw new Error("There is no eth0.");
  const named = (name: string, virtual: boolean, params = {}) => ({ ...eth0, name, virtual, params });
  const inventory = {
    ...rest,
    netdevs: [named("lo", true), named("veth0", true), named("eth0", false), named("eth1", false, PARAMS)],
  };
  expect(netdevsOf(inventory).map(({ name }) => name)).toEqual(["eth0", "eth1", "veth0"]);
  expect(selectedNetdev(inventory, {})?.name).toBe("eth1");
  expect(selectedNetdev(inventory, { nic: "veth0" })?.name).toBe("veth0");
  expect(selectedNetdev(inventory, { nic: "veth0", sel: "nic:eth0" })?.name).toBe("eth0");
  expect(selectedNetdev({ ...inventory, netdevs: [] }, {})).toBeNull();
});
