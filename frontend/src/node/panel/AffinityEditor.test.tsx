import { fireEvent, render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { useState } from "react";
import { describe, expect, test } from "vitest";
import { formatCpuList } from "../../lib/cpulist";
import { machine } from "../testData";
import { readCpus } from "./AffinityEditor";
import { CpuPicker } from "./CpuPicker";

describe("a typed CPU list", () => {
  test.each([
    ["", "An interrupt needs at least one CPU, for example 2 or 0-3."],
    ["3-1", "The range 3-1 runs backwards; write 1-3."],
    ["0-9999", "CPU 9999 is beyond the largest number Linux can have (8191)."],
    ["a", "“a” is not a CPU or a range of CPUs; write for example 0-3,8."],
  ])("“%s” is rejected without a request", (text, wrong) => expect(readCpus(text)).toEqual({ cpus: [], wrong }));

  test("is parsed", () => expect(readCpus("0-2").cpus).toEqual([0, 1, 2]));
});

function Picked({ offline }: { offline?: number }) {
  const [chosen, setChosen] = useState<ReadonlySet<number>>(new Set([2]));
  const topology = machine({ packages: 2, nodesEach: 1, cachesEach: 1, coresEach: 4, threads: 1 });
  const cpus = topology.cpus.map((cpu) => (cpu.cpu === offline ? { ...cpu, online: false } : cpu));
  return (
    <>
      <CpuPicker
        topology={{ ...topology, cpus }}
        isolated={new Set()}
        chosen={chosen}
        was={new Set([2])}
        onChange={setChosen}
      />
      <output>{formatCpuList(chosen)}</output>
    </>
  );
}
const cpu = (number: number) => screen.getByRole("button", { name: String(number) });
const chosen = () => screen.getByRole("status").textContent;

test("a click toggles a CPU, Shift-click selects the CPUs between", async () => {
  render(<Picked />);
  expect(screen.getByRole("group", { name: "node 1" })).toBeTruthy();
  await userEvent.click(cpu(4));
  expect(chosen()).toBe("2,4");
  fireEvent.click(cpu(7), { shiftKey: true });
  expect(chosen()).toBe("2,4-7");
  await userEvent.click(cpu(2));
  expect(chosen()).toBe("4-7");
});

test("an offline CPU cannot be selected, neither alone nor in a range", async () => {
  render(<Picked offline={1} />);
  expect(cpu(1).hasAttribute("disabled")).toBe(true);
  await userEvent.click(cpu(0));
  fireEvent.click(cpu(3), { shiftKey: true });
  expect(chosen()).toBe("0,2-3");
});
