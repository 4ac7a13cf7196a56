/** The binary frames of /api/v1/live: a JSON header, then little-endian columns, read without copying. */

import type { Schemas } from "../api/client";
import { FIRST_LABEL_ID } from "../api/constants";
import type { FleetMetric, HistoryMetric } from "../lib/metrics";

type ColumnType = "u8" | "u16" | "u32" | "f32";
type Column = Uint8Array | Uint16Array | Uint32Array | Float32Array;
/** A column's header. offset: from the frame's start; length: in bytes. */
type ColumnHeader = { name: string; type: ColumnType; offset: number; length: number };

type NetdevCounts = [name: string, ...counts: (number | null)[]];

/** One node's last interval. Columns are indexed by CPU number; an absent source has no column. */
export type RatesFrame = {
  type: "rates";
  node_id: number;
  seq: number;
  time_ms: number;
  duration_s: number;
  cpus: number;
  netdevs: NetdevCounts[] | null;
  /** The node's values, null where unknown. */
  metrics: Record<HistoryMetric, number | null>;
  /** A share in units of 0.5 %, ABSENT_SHARE where unknown. */
  share(name: string): Uint8Array | null;
  /** A count of the interval (not a rate), ABSENT_U32 where unknown. */
  count(name: string): Uint32Array | null;
  /** IRQ × CPU cells with increments: parallel columns of ids, CPUs and increments. */
  irqs: { ids: Uint32Array; cpus: Uint16Array; counts: Uint32Array } | null;
};

/** Which nodes match, and by what they are grouped: as GET /api/v1/fleet. */
export type FleetSelection = { q: string; group: string | null; within: string | null };

/** Figures of one second of the nodes that a page shows, one row a node. NaN and ABSENT_U32 are unknown. */
export type FleetFrame = {
  type: "fleet";
  time_ms: number;
  /** What the frame answers; absent in frames that are made of rows. */
  watch?: FleetSelection;
  /** Of all nodes that match; absent in frames that are made of rows. */
  totals?: Schemas["Totals"];
  groups?: Schemas["Group"][];
  node_id: Uint32Array;
  /** Indices into HEALTHS. */
  health: Uint8Array;
  busiest_cpu: Uint32Array;
  softirq_cpu: Uint32Array;
} & Record<FleetMetric, Float32Array>;

export class FrameError extends Error {}

const ARRAYS = { u8: Uint8Array, u16: Uint16Array, u32: Uint32Array, f32: Float32Array };

function columnOf(buffer: ArrayBuffer, header: ColumnHeader): Column {
  const array = ARRAYS[header.type];
  if (array === undefined) throw new FrameError(`Column ${header.name} has the unknown type ${header.type}.`);
  const [end, size] = [header.offset + header.length, array.BYTES_PER_ELEMENT];
  if (header.offset % 8 !== 0 || header.length % size !== 0 || end > buffer.byteLength)
    throw new FrameError(`Column ${header.name} (${header.offset} to ${end}) does not fit ${buffer.byteLength} bytes.`);
  return new array(buffer, header.offset, header.length / size);
}

/** Decodes a binary frame without copying its columns. Throws FrameError for an invalid frame. */
export function decodeFrame(buffer: ArrayBuffer): RatesFrame | FleetFrame {
  if (buffer.byteLength < 4) throw new FrameError(`A frame of ${buffer.byteLength} bytes has no header.`);
  const headerLength = new DataView(buffer).getUint32(0, true);
  if (4 + headerLength > buffer.byteLength)
    throw new FrameError(`The header's ${headerLength} bytes do not fit ${buffer.byteLength}.`);
  const { columns: headers, ...header } = JSON.parse(
    new TextDecoder().decode(new Uint8Array(buffer, 4, headerLength)),
  ) as { type: string; columns: ColumnHeader[] };
  const columns = new Map(headers.map((column) => [column.name, columnOf(buffer, column)]));
  if (header.type === "fleet") return { ...header, ...Object.fromEntries(columns) } as unknown as FleetFrame;
  if (header.type !== "rates") throw new FrameError(`Unknown frame type ${header.type}.`);
  const get = (name: string) => columns.get(name) ?? null;
  const [ids, cpus, counts] = [get("irq_ids"), get("irq_cpus"), get("irq_counts")];
  return {
    ...(header as unknown as RatesFrame),
    share: (name) => get(name) as Uint8Array | null,
    count: (name) => get(name) as Uint32Array | null,
    irqs:
      ids && cpus && counts
        ? { ids: ids as Uint32Array, cpus: cpus as Uint16Array, counts: counts as Uint32Array }
        : null,
  };
}

/** The row label in /proc/interrupts for an irq id: `41`, or from FIRST_LABEL_ID four ASCII bytes such as `LOC`. */
export function irqLabel(id: number): string {
  if (id < FIRST_LABEL_ID) return String(id);
  return String.fromCharCode(id >>> 24, (id >>> 16) & 255, (id >>> 8) & 255, id & 255).trimEnd();
}
