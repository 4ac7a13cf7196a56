import { labelsText } from "../../lib/labels";

const MAX_SUGGESTED = 100;

/** The lines that complete the last word of a line of labels; a name is not suggested twice. */
export function suggestedLabels(known: string[], line: string): string[] {
  const before = line.slice(0, line.search(/[^\s,]*$/));
  const given = new Set(before.split(/[\s,]+/).map((label) => label.split("=")[0]));
  return known
    .filter((label) => !given.has(label.split("=")[0]))
    .slice(0, MAX_SUGGESTED)
    .map((label) => before + labelsText(Object.fromEntries([label.split(/=(.*)/s)])));
}
