import { describe, expect, test } from "vitest";
import { CpuListError, formatCpuList, parseCpuList } from "./cpulist";

describe("a CPU list is read as the kernel reads it", () => {
  test.each([
    ["", []],
    ["3", [3]],
    [" 0-3,8 ", [0, 1, 2, 3, 8]],
    ["8,0-1,1", [0, 1, 8]],
    ["0-7:2/4", [0, 1, 4, 5]],
    ["8191", [8191]],
  ])("“%s”", (text, cpus) => expect(parseCpuList(text)).toEqual(cpus));
});

describe("what is no CPU list is refused with the part that is wrong", () => {
  test.each([
    ["3-1", "The range 3-1 runs backwards; write 1-3."],
    ["0-9999", "CPU 9999 is beyond the largest number Linux can have (8191)."],
    ["a", "“a” is not a CPU or a range of CPUs; write for example 0-3,8."],
    ["0,,1", "“” is not a CPU or a range of CPUs; write for example 0-3,8."],
    ["-1", "“-1” is not a CPU or a range of CPUs; write for example 0-3,8."],
    ["0-7:0/4", "The stride 0/4 in “0-7:0/4” must use 1 to 4 of each group."],
    ["0-7:5/4", "The stride 5/4 in “0-7:5/4” must use 1 to 4 of each group."],
    ["123456", "“123456” is not a CPU or a range of CPUs; write for example 0-3,8."],
  ])("“%s”", (text, message) => expect(() => parseCpuList(text)).toThrow(new CpuListError(message)));
});

describe("CPUs are written in the kernel's shortest spelling", () => {
  test.each([
    [[], ""],
    [[2], "2"],
    [[8, 0, 1, 2], "0-2,8"],
    [[0, 1, 4, 5, 5], "0-1,4-5"],
  ])("%o", (cpus, text) => expect(formatCpuList(cpus)).toBe(text));
});

test("reading what was written gives the same CPUs", () => {
  const cpus = [0, 2, 3, 4, 9, 100, 101];
  expect(parseCpuList(formatCpuList(cpus))).toEqual(cpus);
});
