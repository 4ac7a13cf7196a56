/** Number formatting: three significant digits, a scaled unit, a dash for unknown values. */

/** A formatted number and its unit, separate so that the unit can be smaller. */
export type Figure = { value: string; unit: string };

export const UNKNOWN = "–";

type Known = number | null | undefined;

function isKnown(value: Known): value is number {
  return value !== null && value !== undefined && Number.isFinite(value);
}

/** A number with three significant digits and no exponent: 1.84, 18.2, 212, 4,118, 0. */
export function significant(value: number): string {
  const size = Math.abs(value);
  if (size < 0.0005) return "0";
  if (size >= 99.95) return Math.round(value).toLocaleString("en");
  if (size >= 9.995) return value.toFixed(1);
  return value.toFixed(size >= 0.9995 ? 2 : 3);
}

function scaled(value: Known, step: number, units: readonly string[]): Figure {
  const last = units.length - 1;
  if (!isKnown(value)) return { value: UNKNOWN, unit: "" };
  let power = 0;
  let rest = value;
  // 999.5 rounds to 1000 and takes the next unit.
  while (power < last && Math.abs(rest) >= step - 0.5) {
    rest /= step;
    power += 1;
  }
  return { value: significant(rest), unit: units[power] ?? "" };
}

/** Formats bytes per second as bits per second. */
export function bitRate(bytesPerS: Known): Figure {
  return linkSpeed(isKnown(bytesPerS) ? bytesPerS * 8 : null);
}

/** Formats events per second. */
export function perSecond(value: Known): Figure {
  return scaled(value, 1000, ["/s", "k/s", "M/s", "G/s"]);
}

/** Formats packets per second. */
export function packetRate(value: Known): Figure {
  return scaled(value, 1000, ["pps", "kpps", "Mpps", "Gpps"]);
}

/** Formats microseconds. */
export function micros(value: Known): Figure {
  return scaled(value, 1000, ["µs", "ms", "s"]);
}

/** Formats bytes with binary units. */
export function bytes(value: Known): Figure {
  return scaled(value, 1024, ["B", "KiB", "MiB", "GiB", "TiB"]);
}

/** Formats a percentage without decimals. */
export function percent(value: Known): Figure {
  return isKnown(value) ? { value: String(Math.round(value)), unit: "%" } : { value: UNKNOWN, unit: "" };
}

/** Formats a dimensionless ratio, e.g. packets per interrupt. */
export function ratio(value: Known): Figure {
  return isKnown(value) ? { value: significant(value), unit: "" } : { value: UNKNOWN, unit: "" };
}

/** Formats bits per second. */
export function linkSpeed(bitsPerS: Known): Figure {
  return scaled(bitsPerS, 1000, ["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"]);
}

/** A space that keeps a number on one line with its unit. */
const NO_BREAK = "\u00a0";

/** A figure with its unit: `1.84 Gbit/s`. */
export function formatFigure(figure: Figure): string {
  return figure.unit === "" ? figure.value : figure.value + NO_BREAK + figure.unit;
}

/** A sentence whose numbers stay on one line with their units: a no-break space before a percent sign or a unit. */
export function unbroken(sentence: string): string {
  return sentence.replace(
    /(?<=\d) (?=(%|percentage|points?|[kMGT]?i?(bit|B|pps)(\/s)?|\/s|[mµ]?s|min|h|d)(?![a-z\d]))/g,
    NO_BREAK,
  );
}

/** Formats seconds in the two largest units: `45 s`, `2 min 5 s`, `3 h`, `2 d 4 h`. */
export function duration(seconds: Known): string {
  if (!isKnown(seconds)) return UNKNOWN;
  const whole = Math.max(0, Math.round(seconds));
  const parts: [number, string][] = [
    [Math.floor(whole / 86_400), "d"],
    [Math.floor(whole / 3600) % 24, "h"],
    [Math.floor(whole / 60) % 60, "min"],
    [whole % 60, "s"],
  ];
  const first = parts.findIndex(([amount]) => amount > 0);
  if (first === -1) return `0${NO_BREAK}s`;
  return parts
    .slice(first, first + 2)
    .filter(([amount]) => amount > 0)
    .map(([amount, unit]) => amount + NO_BREAK + unit)
    .join(" ");
}

/** How long something still takes: `about 2 min left`. */
export const remainingText = (seconds: number | null): string =>
  seconds === null ? "remaining time unknown" : `about ${duration(seconds)} left`;

/** Formats remaining seconds as `1:22`, `10:00`; rounded up, so that 0:00 is the end. */
export function countdown(seconds: number): string {
  const whole = Math.max(0, Math.ceil(seconds));
  return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, "0")}`;
}

/** A count with its noun: `1 CPU`, `8 CPUs`, `1,024 nodes`. */
export function formatCount(amount: number, noun: string): string {
  return `${amount.toLocaleString("en")} ${noun}${amount === 1 ? "" : "s"}`;
}
