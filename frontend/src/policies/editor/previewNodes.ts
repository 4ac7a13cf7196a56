const MOST = 50;

/** The nodes of the URL; at most as many as a preview evaluates. */
export const chosenNodes = (chosen: string): number[] => [...new Set(chosen.split(",").map(Number))].slice(0, MOST);

/** The nodes of a preview: those of the URL, or a few live ones that the selector matches. */
export const previewNodes = (chosen: string | undefined, live: number[] | undefined): number[] =>
  chosen === undefined ? (live ?? []) : chosenNodes(chosen);
