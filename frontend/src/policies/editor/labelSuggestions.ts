const MAX_SUGGESTED = 100;

/** The labels that nodes have, such as `role=db`, those of most nodes first. */
export function commonLabels(nodes: { labels: Record<string, string> }[]): string[] {
  const counts = new Map<string, number>();
  for (const { labels } of nodes)
    for (const [name, value] of Object.entries(labels)) {
      const label = `${name}=${value}`;
      counts.set(label, (counts.get(label) ?? 0) + 1);
    }
  return [...counts]
    .toSorted(([a, m], [b, n]) => n - m || a.localeCompare(b, "en", { numeric: true }))
    .map(([label]) => label);
}

/** The lines that complete the last word of a line of labels; a name is not suggested twice. */
export function suggestedLabels(known: string[], line: string): string[] {
  const before = line.slice(0, line.search(/[^\s,]*$/));
  const given = new Set(before.split(/[\s,]+/).map((label) => label.split("=")[0]));
  return known
    .filter((label) => !given.has(label.split("=")[0]))
    .slice(0, MAX_SUGGESTED)
    .map((label) => before + label);
}
