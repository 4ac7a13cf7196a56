import { Button } from "@mantine/core";
import { useEffect, useState } from "react";
import { useCursor } from "../../charts/cursor";
import type { Range } from "../../charts/TimeOverlay";
import { RangePicker } from "../../components/RangePicker";
import { Segments } from "../../components/Segments";
import { clock, zoneName } from "../../lib/time";
import { type NodeView, useFrames } from "../nodeView";
import { SPANS } from "../search";
import { Lane } from "./Lane";
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
      <RangePicker past={past} proposed={() => view.window.range()} onChange={view.zoom} />
      <Lane view={view} />
      <Crosshair view={view} />
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

/** The time under the crosshair, else the end of the shown range, with the time zone. */
function Crosshair({ view }: { view: NodeView }) {
  useFrames(view.window);
  const timeMs = useCursor(view.cursor) ?? (view.past ?? view.window.range()).to;
  return (
    <span className={styles.crosshair} title="The time under the crosshair, else the end of the shown range">
      <b>{clock(timeMs)}</b> <span className="muted">{zoneName(timeMs)}</span>
    </span>
  );
}
