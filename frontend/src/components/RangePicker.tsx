import { Button, Popover, TextInput } from "@mantine/core";
import { useState } from "react";
import { clock, dateTime, parseTime } from "../lib/time";

type Range = { from: number; to: number };
type Props = { past: Range | null; proposed: () => Range; onChange: (range: Range) => void };

/** The end's date is omitted if it is the start's. */
function rangeText({ from, to }: Range): string {
  const isOneDay = new Date(from).toDateString() === new Date(to).toDateString();
  return `${dateTime(from)} to ${isOneDay ? clock(to) : dateTime(to)}`;
}

/** A button that shows a past range (null: none) and opens a form for its two ends, which begins with a proposed one. */
export function RangePicker({ past, proposed, onChange }: Props) {
  const [opened, setOpened] = useState(false);
  const [ends, setEnds] = useState({ from: "", to: "" });
  const open = () => {
    const { from, to } = past ?? proposed();
    setEnds({ from: dateTime(from), to: dateTime(to) });
    setOpened(true);
  };
  const [from, to] = [parseTime(ends.from), parseTime(ends.to)];
  const wrong =
    Number.isNaN(from) || Number.isNaN(to) ? `Enter both ends like ${dateTime(Date.now())}.` : to - from < 1000;
  const label = past === null ? "range…" : rangeText(past);
  return (
    <Popover opened={opened} onChange={setOpened} trapFocus position="bottom-start" withinPortal>
      <Popover.Target>
        <Button onClick={opened ? () => setOpened(false) : open} aria-expanded={opened}>
          {label}
        </Button>
      </Popover.Target>
      <Popover.Dropdown>
        <form
          style={{ display: "grid", gap: 8 }}
          onSubmit={(event) => {
            event.preventDefault();
            if (wrong !== false) return;
            setOpened(false);
            onChange({ from, to });
          }}
        >
          <TextInput
            label="From"
            value={ends.from}
            onChange={(event) => setEnds({ ...ends, from: event.currentTarget.value })}
          />
          <TextInput
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
