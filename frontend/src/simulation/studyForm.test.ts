import { expect, test } from "vitest";
import { PUBLISHED, SCHEMES, schemesText, toggled } from "./schemes";
import { firstStudyError, parameterText, readStudy, studySchema, studyValues } from "./studyForm";

test("the table has the backend's schemes, and the form begins with the authors'", () => {
  expect([...SCHEMES].sort()).toEqual(studySchema("schemes").items?.enum?.toSorted());
  expect(studyValues().schemes).toBe(PUBLISHED.join(" "));
});

test("the form's defaults are a valid study", () => {
  const { spec } = readStudy(studyValues());
  expect(spec?.parameters.nodes).toBe(16);
});

test.each([
  ["schemes", "", /Choose at least one/],
  ["imbalances", "0.5 0.5", /given twice/],
  ["imbalances", "3", /from 0 to 2/],
  ["seeds", "0", /from 1 to 100/],
  ["parameters.nodes", "", /Nodes: A whole number/],
])("a study with the %s “%s” is refused", (path, text, sentence) => {
  const { wrong } = readStudy({ ...studyValues(), [path]: text });
  expect(firstStudyError(wrong ?? {})).toMatch(sentence);
});

test("a specification fills the form and is read back unchanged", () => {
  const { spec } = readStudy({
    ...studyValues(),
    schemes: "IB IB+RO",
    "parameters.switch_s": "70",
    sensitivity: "true",
  });
  expect(spec?.parameters.switch_s).toBe(70e-6);
  expect(readStudy(studyValues(spec ?? undefined)).spec).toEqual(spec);
});

test("a parameter's value is shown in the unit of its input", () => {
  expect(parameterText("switch_s", 25e-6)).toBe("25 µs");
  expect(parameterText("nodes", 32)).toBe("32");
});

test("the names of schemes are explained", () => {
  expect(schemesText(["SB", "SB+RO", "PB+RO"])).toBe(
    "PB: busy-wait, periodic boost. SB: spin-block, message enqueued. +RO: with reordering.",
  );
  expect(schemesText(["IB"])).toBe("IB: block, message enqueued.");
});

test("a scheme is switched on and off in the order of the table", () => {
  expect(toggled(["PB", "PB+RO"], "SB")).toEqual(["PB", "PB+RO", "SB"]);
  expect(toggled(["SB", "PB"], "SB")).toEqual(["PB"]);
});
