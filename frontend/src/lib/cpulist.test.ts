import { describe, expect, test } from "vitest";
import { CpuListError, formatCpuList, parseCpuList } from "./cpulist";

describe("a CPU list is parsed as by the kernel", () => {
  test.each([
    ["", []],
    ["3", [3]],
    [" 0-3,8 ", [0, 1, 2, 3, 8]],
    ["8,0-1,1", [0, 1, 8]],
    ["0-7:2/4", [0, 1, 4, 5]],
    ["8191", [8191]],
  ])("“%s”", (text, cpus) => expect(parseCpuList(text)).toEqual(cpus));
});

describe("an invalid CPU list is rejected with its invalid part", () => {
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

describe("CPUs are formatted as the shortest list", () => {
  test.each([
    [[], ""],
    [[2], "2"],
    [[8, 0, 1, 2], "0-2,8"],
    [[0, 1, 4, 5, 5], "0-1,4-5"],
  ])("%o", (cpus, text) => expect(formatCpuList(cpus)).toBe(text));
});

test("parsing a formatted list gives the same CPUs", () => {
  const cpus = [0, 2, 3, 4, 9, 100, 101];
  expect(parseCpuList(formatCpuList(cpus))).toEqual(cpus);
});
