import { pathName } from "./form";
import { KIND_NAMES } from "./kinds";
import type { Kind } from "./types";

export type Difference = { path: string; was: string | null; becomes: string | null };
/** A line of a comparison. kind: what happened to the field. */
export type DiffLine = {
  path: string;
  name: string;
  was: string | null;
  becomes: string | null;
  kind: "added" | "removed" | "changed";
};

/** What of a version differs, in the form's words and the form's order. */
export function diffLines(differences: Difference[], kinds: Kind[] = KIND_NAMES): DiffLine[] {
  return differences
    .map((difference) => ({
      ...difference,
      name: pathName(difference.path, kinds),
      kind:
        difference.was === null
          ? ("added" as const)
          : difference.becomes === null
            ? ("removed" as const)
            : ("changed" as const),
    }))
    .sort((a, b) => place(a.path) - place(b.path) || a.path.localeCompare(b.path, "en", { numeric: true }));
}

const PARTS = [
  "name",
  "rank",
  "mode",
  "spec",
  "selector",
  "scope",
  "damping",
  "on_controller",
  "on_drift",
  "guardrails",
];

function place(path: string): number {
  const at = PARTS.indexOf(path.split(/[.[]/)[0] ?? "");
  return at === -1 ? PARTS.length : at;
}
