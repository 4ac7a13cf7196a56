/** What the palette finds, in the order of its groups when nothing is typed. */
export const GROUPS = ["Nodes", "Actions", "Pages", "Policies", "Experiments", "Changes", "IRQs", "CPUs"] as const;
export type Group = (typeof GROUPS)[number];

/** Groups that are listed only for a query: a node has hundreds. */
const ONLY_FOUND: ReadonlySet<Group> = new Set(["IRQs", "CPUs", "Changes"]);

const MAX_PER_GROUP = 8;

const WORD = 4;
const BEGINNING = 3;
const INSIDE = 2;
const SCATTERED = 1;
/** Above any sum of terms. */
const WHOLE = 1000;

const isBoundary = (character: string | undefined) => character === undefined || !/[\p{L}\p{N}]/u.test(character);

/** How well a term fits a text, both in small letters: as a word, its beginning, a part, or its letters in order; 0 if not. */
function termScore(text: string, term: string): number {
  let best = 0;
  for (let at = text.indexOf(term); at >= 0; at = text.indexOf(term, at + 1)) {
    const begins = isBoundary(text[at - 1]);
    const ends = isBoundary(text[at + term.length]);
    best = Math.max(best, begins && ends ? WORD : begins ? BEGINNING : INSIDE);
    if (best === WORD) return best;
  }
  if (best > 0 || term.length < 2) return best;
  let from = text.indexOf(term[0] as string);
  while (from >= 0 && !isBoundary(text[from - 1])) from = text.indexOf(term[0] as string, from + 1);
  for (const letter of term) {
    if (from < 0) return 0;
    from = text.indexOf(letter, from);
    if (from >= 0) from += 1;
  }
  return from < 0 ? 0 : SCATTERED;
}

/** How well a text fits all terms of a query; 0 if it lacks one. */
export function score(text: string, query: string): number {
  const small = text.toLowerCase();
  if (small === query) return WHOLE;
  let sum = 0;
  for (const term of query.split(" ")) {
    const found = termScore(small, term);
    if (found === 0) return 0;
    sum += found;
  }
  return sum;
}

export type Found<E> = { group: Group; entries: E[]; more: number };

/** The entries that fit what was typed, by group: the group with the best entry first. */
export function find<E extends { group: Group; text: string }>(entries: readonly E[], typed: string): Found<E>[] {
  const query = typed.trim().toLowerCase().replace(/\s+/g, " ");
  const scored = new Map<Group, { entry: E; fit: number }[]>();
  for (const entry of entries) {
    if (query === "" && ONLY_FOUND.has(entry.group)) continue;
    const fit = query === "" ? 1 : score(entry.text, query);
    if (fit === 0) continue;
    const group = scored.get(entry.group);
    if (group === undefined) scored.set(entry.group, [{ entry, fit }]);
    else group.push({ entry, fit });
  }
  return GROUPS.flatMap((group) => {
    const found = scored.get(group)?.sort((a, b) => b.fit - a.fit);
    return found === undefined ? [] : [{ group, found, best: found[0]?.fit ?? 0 }];
  })
    .sort((a, b) => b.best - a.best)
    .map(({ group, found }) => ({
      group,
      entries: found.slice(0, MAX_PER_GROUP).map(({ entry }) => entry),
      more: Math.max(0, found.length - MAX_PER_GROUP),
    }));
}
