import { Button, Popover, TextInput } from "@mantine/core";
import { useEffect, useMemo, useRef, useState } from "react";
import { useWidth } from "../../charts/canvas";
import type { Mark, Range } from "../../charts/TimeOverlay";
import { Segments } from "../../components/Segments";
import { dateTime, localInput } from "../../lib/time";
import { type NodeView, useFrames } from "../nodeView";
import { SPANS } from "../search";
import styles from "./time.module.css";

const NAMES = { 60: "1 m", 300: "5 m", 3600: "1 h", 86400: "24 h" } as const;

/** The page's time range: live or paused, span, past range, and the lane of changes and decisions. */
export function TimeBar({ view, onPause }: { view: NodeView; onPause: () => void }) {
  const { past, search, navigate } = view;
  return (
    <div className={styles.timebar}>
      <Segments
        label="Live or paused"
        value={past === null ? "live" : "pause"}
        options={[
          { value: "live", label: "● Live", title: "Follow live data" },
          { value: "pause", label: "Pause", title: "Freeze the shown range (Space)" },
        ]}
        onChange={(value) => {
          if (value === "live") navigate({ from: undefined, to: undefined });
          else if (past === null) onPause();
        }}
      />
      <Segments
        label="Time span"
        value={past === null ? (search.span ?? 300) : null}
        options={SPANS.map((span) => ({ value: span, label: NAMES[span] }))}
        onChange={(span) => navigate({ span: span === 300 ? undefined : span, from: undefined, to: undefined })}
      />
      <RangePicker view={view} />
      <Lane view={view} />
      <CopyLink view={view} />
    </div>
  );
}

const FEEDBACK_MS = 2000;

/** The page's URL with the shown range as absolute times instead of a live span. */
export function absoluteLink(href: string, { from, to }: Range): string {
  const url = new URL(href);
  url.searchParams.delete("span");
  url.searchParams.set("from", String(Math.round(from)));
  url.searchParams.set("to", String(Math.round(to)));
  return url.href;
}

/** Copies the absolute link. Without clipboard access (plain http) it pauses the page, so that the address bar has the link. */
function CopyLink({ view }: { view: NodeView }) {
  const [feedback, setFeedback] = useState<string | null>(null);
  useEffect(() => {
    if (feedback === null) return;
    const timer = setTimeout(() => setFeedback(null), FEEDBACK_MS);
    return () => clearTimeout(timer);
  }, [feedback]);
  const copy = async () => {
    const range = view.past ?? view.window.range();
    try {
      await navigator.clipboard.writeText(absoluteLink(location.href, range));
      setFeedback("Copied");
    } catch {
      view.zoom({ from: Math.round(range.from), to: Math.round(range.to) });
      setFeedback("See URL");
    }
  };
  return (
    <Button onClick={() => void copy()} miw={92} title="Copies a link to this page with the shown time range">
      <span aria-live="polite">{feedback ?? "Copy link"}</span>
    </Button>
  );
}

/** Upper estimate of a letter's width in pixels. */
const LETTER_PX = 6.6;
const GAP_PX = 8;

/** Positions of labels on a lane: each at its time or left of it, newest first; whole: false where there is no room. */
export function placeLabels(marks: Mark[], { from, to }: Range, width: number) {
  let room = width;
  return marks
    .filter(({ timeMs }) => timeMs >= from && timeMs <= to)
    .toSorted((a, b) => b.timeMs - a.timeMs)
    .map((mark) => {
      const at = (width * (mark.timeMs - from)) / (to - from);
      const long = mark.label.length * LETTER_PX;
      const left = Math.min(at, room - long);
      const whole = left >= 0 && at - left <= 2 * long;
      if (whole) room = left - GAP_PX;
      return { mark, left: whole ? left : at, whole };
    });
}

/** The node's changes and decisions in the shown range. */
function Lane({ view }: { view: NodeView }) {
  useFrames(view.window);
  const { from, to } = view.past ?? view.window.range();
  const box = useRef<HTMLOListElement>(null);
  const marks = useMemo(() => [...view.marks, ...view.policyMarks], [view.marks, view.policyMarks]);
  const placed = placeLabels(marks, { from, to }, useWidth(box));
  return (
    <ol ref={box} className={styles.lane} aria-label="Changes and decisions in this time range">
      {placed.map(({ mark, left, whole }) => (
        <li key={mark.key} data-kind={mark.kind} style={{ left }} title={`${dateTime(mark.timeMs)} ${mark.label}`}>
          {whole ? (
            mark.label
          ) : (
            <>
              <span aria-hidden="true">│</span>
              <span className="visually-hidden">{mark.label}</span>
            </>
          )}
        </li>
      ))}
    </ol>
  );
}

function RangePicker({ view }: { view: NodeView }) {
  const [opened, setOpened] = useState(false);
  const [ends, setEnds] = useState({ from: "", to: "" });
  const open = () => {
    const { from, to } = view.past ?? view.window.range();
    setEnds({ from: localInput(from), to: localInput(to) });
    setOpened(true);
  };
  const [from, to] = [Date.parse(ends.from), Date.parse(ends.to)];
  const wrong = Number.isNaN(from) || Number.isNaN(to) ? "Enter a date and a time for both ends." : to - from < 1000;
  const label =
    view.past === null ? "range…" : `${dateTime(view.past.from)} to ${dateTime(view.past.to).split(" ").at(-1)}`;
  return (
    <Popover opened={opened} onChange={setOpened} trapFocus position="bottom-start" withinPortal>
      <Popover.Target>
        <Button onClick={opened ? () => setOpened(false) : open} aria-expanded={opened}>
          {label}
        </Button>
      </Popover.Target>
      <Popover.Dropdown>
        <form
          className={styles.range}
          onSubmit={(event) => {
            event.preventDefault();
            if (wrong !== false) return;
            setOpened(false);
            view.zoom({ from, to });
          }}
        >
          <TextInput
            type="datetime-local"
            step="1"
            label="From"
            value={ends.from}
            onChange={(event) => setEnds({ ...ends, from: event.currentTarget.value })}
          />
          <TextInput
            type="datetime-local"
            step="1"
            label="To"
            value={ends.to}
            error={wrong === true ? "The end must be at least a second after the start." : wrong}
            onChange={(event) => setEnds({ ...ends, to: event.currentTarget.value })}
          />
          <Button type="submit" variant="filled" disabled={wrong !== false}>
            Show
          </Button>
        </form>
      </Popover.Dropdown>
    </Popover>
  );
}
