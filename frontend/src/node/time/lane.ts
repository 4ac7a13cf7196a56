import type { Mark, Range } from "../../charts/TimeOverlay";
import { formatCount } from "../../lib/format";

/** Upper estimate of a letter's width in pixels, and the widest label; a longer one is cut. */
const LETTER_PX = 6.2;
export const LABEL_PX = 230;
/** Space from a stroke to its label, and after it. */
const PADDING_PX = 6;
const GAP_PX = 8;
/** Strokes closer than this are one. */
const MERGE_PX = 10;

/** A stroke on the lane. side: of its label; null where there is no room for one. */
export type Stroke = { at: number; marks: Mark[]; label: string; side: "right" | "left" | null };

function labelOf(marks: Mark[]): string {
  if (marks.length === 1) return marks[0]?.label ?? "";
  const decisions = marks.filter(({ kind }) => kind === "decision").length;
  return formatCount(marks.length, decisions === marks.length ? "decision" : decisions === 0 ? "change" : "mark");
}

/**
 * The strokes of marks on a lane, oldest first. Marks next to each other are one stroke. A label is right of its stroke if
 * it ends before the next one, else left of it if there is room; else it is left out.
 */
export function placeMarks(marks: Mark[], { from, to }: Range, width: number): Stroke[] {
  const strokes: Stroke[] = [];
  const visible = marks.filter(({ timeMs }) => timeMs >= from && timeMs <= to).toSorted((a, b) => a.timeMs - b.timeMs);
  for (const mark of visible) {
    const at = (width * (mark.timeMs - from)) / Math.max(1, to - from);
    const last = strokes.at(-1);
    if (last !== undefined && at - last.at < MERGE_PX) last.marks.push(mark);
    else strokes.push({ at, marks: [mark], label: "", side: null });
  }
  let taken = 0;
  for (const [index, stroke] of strokes.entries()) {
    stroke.label = labelOf(stroke.marks);
    const long = Math.min(LABEL_PX, stroke.label.length * LETTER_PX) + PADDING_PX + GAP_PX;
    const end = stroke.at + long;
    if (end <= (strokes[index + 1]?.at ?? width)) stroke.side = "right";
    else if (stroke.at - long >= taken) stroke.side = "left";
    taken = stroke.side === "right" ? end : stroke.at + GAP_PX;
  }
  return strokes;
}
