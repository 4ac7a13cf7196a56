/** Numbers as people read them: three significant digits, a unit that fits, a dash where nothing is known. */

/** A number and its unit apart, so that the unit can be set smaller. */
export type Figure = { value: string; unit: string };

export const UNKNOWN = "–";

type Known = number | null | undefined;

function isKnown(value: Known): value is number {
  return value !== null && value !== undefined && Number.isFinite(value);
}

/** Three significant digits without an exponent: 1.84, 18.2, 212, 4118; 0 stays 0. */
export function significant(value: number): string {
  const size = Math.abs(value);
  if (size < 0.0005) return "0";
  if (size >= 99.95) return String(Math.round(value));
  if (size >= 9.995) return value.toFixed(1);
  return value.toFixed(size >= 0.9995 ? 2 : 3);
}

function scaled(value: Known, step: number, units: readonly string[]): Figure {
  const last = units.length - 1;
  if (!isKnown(value)) return { value: UNKNOWN, unit: "" };
  let power = 0;
  let rest = value;
  // 999.5 would be written 1000: the next unit takes it.
  while (power < last && Math.abs(rest) >= step - 0.5) {
    rest /= step;
    power += 1;
  }
  return { value: significant(rest), unit: units[power] ?? "" };
}

/** Bytes per second as bits per second, the unit of links. */
export function bitRate(bytesPerS: Known): Figure {
  const bits = isKnown(bytesPerS) ? bytesPerS * 8 : null;
  return scaled(bits, 1000, ["b/s", "kb/s", "Mb/s", "Gb/s", "Tb/s"]);
}

/** Events per second. */
export function perSecond(value: Known): Figure {
  return scaled(value, 1000, ["/s", "k/s", "M/s", "G/s"]);
}

/** Packets per second. */
export function packetRate(value: Known): Figure {
  return scaled(value, 1000, ["pps", "kpps", "Mpps", "Gpps"]);
}

/** Microseconds. */
export function micros(value: Known): Figure {
  return scaled(value, 1000, ["µs", "ms", "s"]);
}

/** Amounts of memory. */
export function bytes(value: Known): Figure {
  return scaled(value, 1024, ["B", "KiB", "MiB", "GiB", "TiB"]);
}

/** A share of 0 to 100 in whole per cent. */
export function percent(value: Known): Figure {
  return isKnown(value) ? { value: String(Math.round(value)), unit: "%" } : { value: UNKNOWN, unit: "" };
}

/** A ratio such as packets per interrupt. */
export function ratio(value: Known): Figure {
  return isKnown(value) ? { value: significant(value), unit: "" } : { value: UNKNOWN, unit: "" };
}

/** A link's speed. */
export function linkSpeed(bitsPerS: Known): Figure {
  return scaled(bitsPerS, 1000, ["b/s", "kb/s", "Mb/s", "Gb/s", "Tb/s"]);
}

/** A figure in one piece: `1.84 Gb/s`. */
export function text(figure: Figure): string {
  return figure.unit === "" ? figure.value : `${figure.value} ${figure.unit}`;
}

/** A length of time in its two largest units: `45 s`, `2 min 5 s`, `3 h`, `2 d 4 h`. */
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
  if (first === -1) return "0 s";
  return parts
    .slice(first, first + 2)
    .filter(([amount]) => amount > 0)
    .map(([amount, unit]) => `${amount} ${unit}`)
    .join(" ");
}

/** Time left as a clock: `1:22`, `10:00`. Rounds up, so that 0:00 is the end and not half a second before it. */
export function countdown(seconds: number): string {
  const whole = Math.max(0, Math.ceil(seconds));
  return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, "0")}`;
}

/** A count with its noun: `1 CPU`, `8 CPUs`, `1,024 nodes`. */
export function count(amount: number, noun: string): string {
  return `${amount.toLocaleString("en")} ${noun}${amount === 1 ? "" : "s"}`;
}
