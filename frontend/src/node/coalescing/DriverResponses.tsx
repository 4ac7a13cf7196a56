import { tunableName } from "../../lib/settingKeys";
import { driverResponses, type Tried } from "./nicParams";

/** What the driver made of values that it was asked for. asked: what is typed now, told first. */
export function DriverResponses({ tried, name, asked }: { tried: Tried[]; name: string; asked: string | null }) {
  const lines = driverResponses(
    tried.map((one) => (one.asked === asked ? { ...one, time_ms: Number.MAX_SAFE_INTEGER } : one)),
    name,
  );
  if (lines.length === 0) return null;
  return (
    <ul aria-label={`What the driver made of ${tunableName(name)}`}>
      {lines.map(({ bad, words }) => (
        <li key={words} className={bad ? "warn" : "muted"}>
          {words}
        </li>
      ))}
    </ul>
  );
}
