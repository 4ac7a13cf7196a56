import { expect, test } from "vitest";
import { panelSelection, settingName, settingValue } from "./settingKeys";

test.each([
  ["irq/41/affinity", "IRQ 41", "irq:41"],
  ["task/812/affinity", "task 812", "task:812"],
  ["task/812/memory-nodes", "task 812 memory nodes", "task:812"],
  ["task/812/nice", "task 812 nice", "task:812"],
  ["cgroup/nginx/cpu.shares", "nginx cpu.shares", null],
  ["cgroup/system.slice/nginx.service/cpu.weight", "system.slice/nginx.service cpu.weight", null],
  ["cgroup/system.slice/nginx.service/cpuset.mems", "system.slice/nginx.service cpuset.mems", null],
  ["cgroup/web.slice/cpuset.cpus", "web.slice cpuset.cpus", null],
  ["netdev/eth0/rx-0/rps", "eth0 rx-0 RPS", "nic:eth0"],
  ["netdev/eth0/tx-3/xps", "eth0 tx-3 XPS", "nic:eth0"],
  ["netdev/eth0/rss", "eth0 RSS", "nic:eth0"],
  ["netdev/eth0/channels", "eth0 channels", "nic:eth0"],
  ["netdev/eth0/coalesce/rx-usecs", "eth0 rx-usecs", "nic:eth0"],
  ["netdev/eth0/rx-3/coalesce/adaptive-rx", "eth0 rx-3 adaptive-rx", "nic:eth0"],
  ["netdev/eth0/ring/tx", "eth0 tx ring", "nic:eth0"],
  ["netdev/eth0/gro_flush_timeout", "eth0 gro_flush_timeout", "nic:eth0"],
  ["netdev/eth0/rx-0/napi_defer_hard_irqs", "eth0 rx-0 napi_defer_hard_irqs", "nic:eth0"],
  ["netdev/eth0/flow-rule/7", "eth0 flow rule 7", "nic:eth0"],
  ["netdev/eth0/rss-context/1", "eth0 RSS context 1", "nic:eth0"],
  ["netdev/eth0/ntuple", "eth0 ntuple", "nic:eth0"],
  ["netdev/eth0/threaded", "eth0 threaded", "nic:eth0"],
  ["netdev/eth0/rx-3/rps_flow_cnt", "eth0 rx-3 rps_flow_cnt", "nic:eth0"],
  ["kernel/numa_balancing", "kernel.numa_balancing", null],
  ["kernel/rps_sock_flow_entries", "net.core.rps_sock_flow_entries", null],
  ["something", "something", null],
  ["cgroup/../cpu.weight", "cgroup/../cpu.weight", null],
])("%s has the name %s and the panel %s", (key, name, sel) => {
  expect([settingName(key), panelSelection(key)]).toEqual([name, sel]);
});

test.each([
  ["task/812/memory-nodes", "0=930;1=70", "93 % on node 0, 7 % on node 1"],
  ["task/812/memory-nodes", "1", "1"],
  ["task/812/affinity", "0-7;813=2", "0-7;813=2"],
])("%s of %s is shown as %s", (key, value, shown) => expect(settingValue(key, value)).toBe(shown));
