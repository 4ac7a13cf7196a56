import { describe, expect, test } from "vitest";
import vectors from "../../../tests/fixtures/cpulist.json"; // those of tests/core/test_cpuset.py
import { CpuListError, formatCpuList, parseCpuList } from "./cpulist";

describe("a CPU list is parsed as by the kernel", () => {
  test.each(vectors.parse)("“$text”", ({ text, cpus }) => expect(parseCpuList(text)).toEqual(cpus));
});

describe("an invalid CPU list is rejected with its invalid part", () => {
  test.each(vectors.refuse)("“$text”", ({ text, message }) =>
    expect(() => parseCpuList(text)).toThrow(new CpuListError(message)),
  );
});

describe("CPUs are formatted as the shortest list", () => {
  test.each(vectors.format)("$text", ({ cpus, text }) => expect(formatCpuList(cpus)).toBe(text));
});
