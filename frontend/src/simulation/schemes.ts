/** What an arriving message does; the columns of the table of schemes. */
export const ARRIVALS = ["message enqueued", "interrupt and boost", "periodic boost"] as const;

/** What a process does that waits for a message, and the schemes of this row without reordering. */
export const WAITS = [
  { wait: "busy-wait", schemes: ["SPIN", "DCS", "PB"] },
  { wait: "block", schemes: ["IB", "IB-DCS", "IB-PB"] },
  { wait: "spin-block", schemes: ["SB", "SB-DCS", "SB-PB"] },
  { wait: "spin-yield", schemes: ["SY", "SY-DCS", "SY-PB"] },
] as const;

/** All 24 schemes in the order of the table, each without and with reordering. */
export const SCHEMES: readonly string[] = WAITS.flatMap(({ schemes }) => schemes).flatMap((name) => [
  name,
  reordered(name),
]);

/** The schemes that the authors simulated. */
export const PUBLISHED = ["SB", "SB+RO", "PB", "PB+RO"];

const SUFFIX = "+RO";

/** The name of a scheme with reordering. */
export function reordered(name: string): string {
  return `${name}+RO`;
}

export const isReordered = (name: string): boolean => name.endsWith(SUFFIX);

/** What the names of schemes mean: `SB: spin-block, enqueued. +RO: with reordering.` */
export function schemesText(names: readonly string[]): string {
  const plain = new Set(names.map((name) => name.replace(SUFFIX, "")));
  const sentences = WAITS.flatMap(({ wait, schemes }) =>
    schemes.flatMap((name, at) => (plain.has(name) ? [`${name}: ${wait}, ${ARRIVALS[at]}.`] : [])),
  );
  return [...sentences, ...(names.some(isReordered) ? ["+RO: with reordering."] : [])].join(" ");
}

/** The chosen schemes after one was switched on or off, in the order of the table. */
export function toggled(chosen: readonly string[], name: string): string[] {
  return SCHEMES.filter((one) => chosen.includes(one) !== (one === name));
}
