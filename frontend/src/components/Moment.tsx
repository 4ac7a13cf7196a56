import { dateTime } from "../lib/time";

/** A time in local time with UTC as tooltip; a placeholder text without one. */
export function Moment({ at, never = "never" }: { at: string | null; never?: string }) {
  if (at === null) return <span className="muted">{never}</span>;
  return (
    <time dateTime={at} title={`${new Date(at).toISOString()} (UTC)`}>
      {dateTime(Date.parse(at))}
    </time>
  );
}
