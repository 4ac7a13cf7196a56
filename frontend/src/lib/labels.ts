/** Parses labels from a line such as `rack=r01 role=db`; returns a message if it is invalid. */
export function parseLabels(line: string): Record<string, string> | string {
  const labels: Record<string, string> = {};
  for (const part of line.split(/[\s,]+/).filter(Boolean)) {
    const [key = "", value] = part.split(/=(.*)/s);
    if (value === undefined) return `“${part}” has no value; write it as name=value.`;
    if (!/^[a-z0-9][a-z0-9._/-]*$/.test(key))
      return `“${key}” is not a valid label name: use a-z, 0-9 and . _ / -, starting with a letter or digit.`;
    if (Object.hasOwn(labels, key)) return `“${key}” is given twice.`;
    labels[key] = value;
  }
  return labels;
}
