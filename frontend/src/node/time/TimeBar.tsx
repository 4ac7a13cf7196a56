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

/** One time for the whole page: follow the present, stop, look back, and what was changed when. */
export function TimeBar({ view, onPause }: { view: NodeView; onPause: () => void }) {
  const { past, search, navigate } = view;
  return (
    <div className={styles.timebar}>
      <Segments
        label="Live or paused"
        value={past === null ? "live" : "pause"}
        options={[
          { value: "live", label: "● Live", title: "Follow the present" },
          { value: "pause", label: "Pause", title: "Hold what is in sight (Space)" },
        ]}
        onChange={(value) => {
          if (value === "live") navigate({ from: undefined, to: undefined });
          else if (past === null) onPause();
        }}
      />
      <Segments
        label="Span of time"
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

const SAID_MS = 2000;

/** This page's address with the time in sight held fast: a live window becomes the range that it shows now. */
export function frozen(href: string, { from, to }: Range): string {
  const url = new URL(href);
  url.searchParams.delete("span");
  url.searchParams.set("from", String(Math.round(from)));
  url.searchParams.set("to", String(Math.round(to)));
  return url.href;
}

/** Without access to the clipboard, as over plain http, it holds the page: then the address bar has the link. */
function CopyLink({ view }: { view: NodeView }) {
  const [said, setSaid] = useState<string | null>(null);
  useEffect(() => {
    if (said === null) return;
    const timer = setTimeout(() => setSaid(null), SAID_MS);
    return () => clearTimeout(timer);
  }, [said]);
  const copy = async () => {
    const range = view.past ?? view.window.range();
    try {
      await navigator.clipboard.writeText(frozen(location.href, range));
      setSaid("Copied");
    } catch {
      view.zoom({ from: Math.round(range.from), to: Math.round(range.to) });
      setSaid("See address");
    }
  };
  return (
    <Button onClick={() => void copy()} miw={92} title="Copies this page's address with the time that is in sight now">
      <span aria-live="polite">{said ?? "Copy link"}</span>
    </Button>
  );
}

/** Pixels of a label's letter, generously. */
const LETTER = 6.6;
const APART = 8;

/** Where labels stand on a lane of a width: the newest at its moment or left of it; one without room is a stroke. */
export function placeLabels(marks: Mark[], { from, to }: Range, width: number) {
  let room = width;
  return marks
    .filter(({ timeMs }) => timeMs >= from && timeMs <= to)
    .toSorted((a, b) => b.timeMs - a.timeMs)
    .map((mark) => {
      const at = (width * (mark.timeMs - from)) / (to - from);
      const long = mark.label.length * LETTER;
      const left = Math.min(at, room - long);
      const whole = left >= 0 && at - left <= 2 * long;
      if (whole) room = left - APART;
      return { mark, left: whole ? left : at, whole };
    });
}

/** The changes and decisions of this node along the time in sight. */
function Lane({ view }: { view: NodeView }) {
  useFrames(view.window);
  const { from, to } = view.past ?? view.window.range();
  const box = useRef<HTMLOListElement>(null);
  const marks = useMemo(() => [...view.marks, ...view.decided], [view.marks, view.decided]);
  const placed = placeLabels(marks, { from, to }, useWidth(box));
  return (
    <ol ref={box} className={styles.lane} aria-label="Changes and decisions in this time">
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
  const wrong = Number.isNaN(from) || Number.isNaN(to) ? "Both ends need a date and a time." : to - from < 1000;
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
