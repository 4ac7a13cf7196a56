import { expect, test } from "vitest";
import type { Decision } from "../../policies/types";
import { change, entry } from "../testData";
import {
  benefitText,
  desiredOf,
  latestChange,
  type MoveOption,
  ownersOf,
  pagesText,
  placeText,
  savedText,
  undoOf,
  usefulOptions,
} from "./moveOptions";

const option = (over: Partial<MoveOption> = {}): MoveOption => ({
  ...{ node: 1, with_pages: false, cpus: "4-7", speed_up: 1.35, saved_cpus: 0.42, moved_bytes: 0, cost_s: 0 },
  ...over,
});
const pages = option({ with_pages: true, moved_bytes: 512 * 1024 ** 2, cost_s: 0.4 });
const { task } = entry({ pid: 812, affinity: "0-7", allowed: "0-7", bytes_by_node: { "0": 90, "1": 10 } });

test("an option names place, pages, time and benefit", () => {
  expect(placeText(option())).toBe("Run on node 1 (CPUs 4-7)");
  expect(placeText(option({ cpus: "4" }))).toBe("Run on node 1 (CPU 4)");
  expect(pagesText(pages)).toBe("and move 512\u00a0MiB (about 0.4 s)");
  expect(pagesText(option())).toBeNull();
  expect(benefitText(option())).toBe("Predicted: speed-up ×1.35, 0.42 CPUs saved.");
  expect(benefitText(option({ speed_up: 0.9, saved_cpus: -0.1 }))).toBe("Predicted: speed-up ×0.90, 0.10 CPUs lost.");
  expect(benefitText(option({ speed_up: 1, saved_cpus: 0 }))).toBe("Predicted: speed-up ×1.00, no CPU time saved.");
});

test.each([
  [0.0001, "1 ms"],
  [0.04, "40 ms"],
  [1.1159, "1.1 s"],
  [75, "1\u00a0min 15\u00a0s"],
])("a cost of %d s is about %s", (cost_s, text) => {
  expect(pagesText({ ...pages, cost_s })).toBe(`and move 512\u00a0MiB (about ${text})`);
});

test.each([
  [0.421, "0.42"],
  [-0.1, "−0.10"],
  [0.004, "0"],
])("%d saved CPUs are shown as %s", (saved_cpus, text) => expect(savedText(option({ saved_cpus }))).toBe(text));

test("the settings of an option are the CPUs, then the memory", () => {
  expect(desiredOf(812, option())).toEqual([{ key: "task/812/affinity", value: "4-7" }]);
  expect(desiredOf(812, pages)).toEqual([
    { key: "task/812/affinity", value: "4-7" },
    { key: "task/812/memory-nodes", value: "1" },
  ]);
});

test("the option that saves most comes first, the cheaper of equals; what is so already is left out", () => {
  const back = option({ node: 0, cpus: "0-3", saved_cpus: 0.42 });
  const worse = option({ node: 2, cpus: "8-9", saved_cpus: -1 });
  expect(usefulOptions([worse, pages, back, option({ cpus: "0-7" })], task)).toEqual([back, pages, worse]);
  const there = { ...task, affinity: "4-7", bytes_by_node: { "1": 100 } };
  expect(usefulOptions([option(), pages], there)).toEqual([]);
  expect(usefulOptions([option(), pages], { ...task, affinity: "4-7" })).toEqual([pages]);
});

test("a confirmed change is undone from its last action to its first", () => {
  const [affinity, memory] = [
    { key: "task/812/affinity", was: "0-7", becomes: "4-7", reason: "" },
    { key: "task/812/memory-nodes", was: "0=90;1=10", becomes: "1", reason: "" },
  ];
  const done = change({ plan: { actions: [affinity, memory], allow_isolated: false } });
  const moved = { ...task, affinity: "4-7" };
  expect(undoOf(done, moved)).toEqual([
    { key: "task/812/memory-nodes", value: "0=90;1=10" },
    { key: "task/812/affinity", value: "0-7" },
  ]);
  expect(undoOf(done, task)).toBeNull();
  expect(undoOf({ ...done, state: "rolled_back" }, moved)).toBeNull();
  const byThread = { ...affinity, was: "0-7;813=2" };
  expect(undoOf({ ...done, plan: { ...done.plan, actions: [byThread] } }, moved)).toBeNull();
});

test("the latest change of a process is not one of an earlier process with its PID", () => {
  const done = change({ key: "task/812/affinity", created_at: "2026-11-21T08:00:00Z" });
  const at = (time: string) => Date.parse(`2026-11-21T${time}Z`);
  expect(latestChange([change({}), done], 812, at("07:59:00"))).toBe(done);
  expect(latestChange([done], 812, at("08:01:00"))).toBeUndefined();
  expect(latestChange([done], 81, at("07:59:00"))).toBeUndefined();
});

const CONTROLLERS = ["irqbalance", "numad", "automatic NUMA balancing"];

test("the owners of a place are Coresteer, a policy, the program, or other controllers", () => {
  const ours = change({ key: "task/812/affinity", becomes: "4-7" });
  const moved = { ...task, affinity: "4-7" };
  expect(ownersOf(task, undefined, [], [])).toEqual(["CPUs chosen by the kernel's scheduler"]);
  expect(ownersOf(moved, ours, [], [])).toEqual(["CPUs set by Coresteer (ann), confirmed"]);
  const decision = {
    policy_name: "near",
    mode: "enforce",
    evaluation: { actions: [{ key: "task/812/affinity", was: "0-7", becomes: "4-7", reason: "" }] },
  } as unknown as Decision;
  expect(ownersOf({ ...moved, mempolicy: "bind:0" }, undefined, [decision], CONTROLLERS)).toEqual([
    "CPUs restricted by the program or a person",
    "memory placed by the program's own policy, bind:0",
    "policy near moves it",
    "numad may move it, too",
    "automatic NUMA balancing may move its memory, too",
  ]);
});
