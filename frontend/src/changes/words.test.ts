import { expect, test } from "vitest";
import { changeWords } from "./words";

const move = (irq: number, was: string, becomes: string) => ({ key: `irq/${irq}/affinity`, was, becomes });
const usecs = { key: "netdev/ens5/coalesce/rx-usecs", was: "3", becomes: "18" };

test.each([
  [[move(52, "8", "24")], "IRQ 52", "CPU 8 → 24"],
  [[move(33, "47", "9"), move(37, "47", "11")], "IRQs 33, 37", "CPU 47 → 9, 11"],
  [[1, 2, 3, 4, 5].map((irq) => move(irq, "0", String(irq))), "IRQs 1, 2, 3 +2", "CPU 0 → 1, 2, 3 +2"],
  [[move(25, "47", "10"), move(29, "47", "4"), move(31, "47", "10")], "IRQs 25, 29, 31", "CPU 47 → 10, 4, 10"],
  [[move(38, "0-7", "0")], "IRQ 38", "CPUs 0-7 → 0"],
  [[usecs], "ens5 rx-usecs", "3 → 18"],
  [[usecs, move(1, "0", "1")], "ens5 rx-usecs and 1 more", ""],
  [[], "no setting", ""],
])("%o reads as %s %s", (actions, what, values) => expect(changeWords(actions)).toEqual({ what, values }));
