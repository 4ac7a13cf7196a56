const LABEL = /(?:"(?:[^"]|"")*"|[^\s,])+/g;
const QUOTED = /^".*"$/s;
const BARE = /^[^\s,"]*$/;

/** Parses labels from a line such as `rack=r01 note="row 2"`; returns a message if it is invalid. */
export function parseLabels(line: string): Record<string, string> | string {
  const labels: Record<string, string> = {};
  for (const part of line.match(LABEL) ?? []) {
    const [key = "", value] = part.split(/=(.*)/s);
    if (value === undefined) return `“${part}” has no value; write it as name=value.`;
    if (!/^[a-z0-9][a-z0-9._/-]*$/.test(key))
      return `“${key}” is not a valid label name: use a-z, 0-9 and . _ / -, starting with a letter or digit.`;
    if (Object.hasOwn(labels, key)) return `“${key}” is given twice.`;
    labels[key] = QUOTED.test(value) ? value.slice(1, -1).replaceAll('""', '"') : value;
  }
  return labels;
}

/** `rack=r01 note="row 2"`; empty without labels. */
export const labelsText = (labels: Record<string, string>): string =>
  Object.entries(labels)
    .map(([name, value]) => `${name}=${BARE.test(value) ? value : `"${value.replaceAll('"', '""')}"`}`)
    .join(" ");

const WILDCARDS = /[*?[]/;

function globMatches(glob: string, text: string): boolean {
  const brackets = glob.includes("]") ? /[.+^${}()|\\]/g : /[.+^${}()|\\[]/g;
  const pattern = glob.replace(brackets, "\\$&").replaceAll("*", ".*").replaceAll("?", ".").replaceAll("[!", "[^");
  return new RegExp(`^${pattern}$`, "s").test(text);
}

/**
 * Whether shell patterns match labels, or all that a selector with these labels matches: as the backend decides it
 * (coresteer/auth/role_labels.py).
 */
export function covers(patterns: Record<string, string>, labels: Record<string, string>): boolean {
  return Object.entries(patterns).every(([name, glob]) => {
    const value = labels[name];
    return value !== undefined && (value === glob || (!WILDCARDS.test(value) && globMatches(glob, value)));
  });
}
