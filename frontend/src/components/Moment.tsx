import { dateTime } from "../lib/time";

/** A moment in local time, with UTC on hover; a word where there is none. */
export function Moment({ at, never = "never" }: { at: string | null; never?: string }) {
  if (at === null) return <span className="muted">{never}</span>;
  return (
    <time dateTime={at} title={`${new Date(at).toISOString()} (UTC)`}>
      {dateTime(Date.parse(at))}
    </time>
  );
}
