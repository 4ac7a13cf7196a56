import { tunableName } from "../../lib/settingKeys";
import { type DriverResponse, driverResponses } from "./nicParams";

/** The driver's responses to values requested earlier. typed: the value in the field, listed first; null when unchanged. */
export function DriverResponses({
  responses,
  name,
  typed,
}: {
  responses: DriverResponse[];
  name: string;
  typed: string | null;
}) {
  const lines = driverResponses(
    responses.map((one) => (one.requested === typed ? { ...one, time_ms: Number.MAX_SAFE_INTEGER } : one)),
    name,
  );
  if (lines.length === 0) return null;
  return (
    <ul aria-label={`Driver response to ${tunableName(name)}`}>
      {lines.map(({ warning, text }) => (
        <li key={text} className={warning ? "warn" : "muted"}>
          {text}
        </li>
      ))}
    </ul>
  );
}
