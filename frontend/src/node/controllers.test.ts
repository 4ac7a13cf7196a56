import { expect, test } from "vitest";
import { controllersOf, movedBy } from "./controllers";

test.each([
  ["irq/41/affinity", ["irqbalance", "tuned"]],
  ["task/812/affinity", ["numad", "kubelet", "tuned"]],
  ["cgroup/kubepods.slice/cpuset.cpus", ["kubelet", "tuned"]],
  ["task/812/memory-nodes", ["numad", "automatic NUMA balancing", "tuned"]],
  ["task/812/nice", ["tuned"]],
])("%s is also changed by %j", (key, expected) => {
  expect(controllersOf(key, ["irqbalance", "numad", "kubelet", "automatic NUMA balancing", "tuned"])).toEqual(expected);
});

test.each([
  ["irqbalance", "interrupts"],
  ["numad", "processes, memory of processes"],
  ["kubelet", "processes"],
  ["automatic NUMA balancing", "memory of processes"],
  ["tuned", "interrupts, processes, memory of processes"],
])("%s moves %s", (controller, expected) => {
  expect(movedBy(controller)).toBe(expected);
});
