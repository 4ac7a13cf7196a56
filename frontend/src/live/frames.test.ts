import { expect, test } from "vitest";
import { decodeFrame, FrameError, irqLabel, type RatesFrame } from "./frames";

type Column = { name: string; type: string; bytes: Uint8Array };

const column = (name: string, type: string, data: Uint8Array | Uint16Array | Uint32Array | Float32Array): Column => ({
  name,
  type,
  bytes: new Uint8Array(data.buffer, data.byteOffset, data.byteLength),
});

/** A frame as the backend builds it: the header padded so that the first column starts at a multiple of 8. */
function frame(header: object, columns: Column[], headerLength = 1020): ArrayBuffer {
  let end = 4 + headerLength;
  const placed = columns.map((one) => {
    const offset = end;
    end += Math.ceil(one.bytes.length / 8) * 8;
    return { ...one, offset };
  });
  const buffer = new ArrayBuffer(end);
  new DataView(buffer).setUint32(0, headerLength, true);
  const described = placed.map(({ name, type, offset, bytes }) => ({ name, type, offset, length: bytes.length }));
  const json = JSON.stringify({ ...header, columns: described }).padEnd(headerLength);
  new Uint8Array(buffer, 4).set(new TextEncoder().encode(json));
  for (const { offset, bytes } of placed) new Uint8Array(buffer, offset).set(bytes);
  return buffer;
}

const RATES = { type: "rates", node_id: 12, seq: 7, time_ms: 1000, duration_s: 1, cpus: 3, netdevs: null };

test("a rates frame gives its columns as views of the frame itself", () => {
  const buffer = frame(RATES, [
    column("softirq", "u8", Uint8Array.of(0, 200, 255)),
    column("processed", "u32", Uint32Array.of(1, 2, 0xffffffff)),
    column("irq_ids", "u32", Uint32Array.of(41)),
    column("irq_cpus", "u16", Uint16Array.of(2)),
    column("irq_counts", "u32", Uint32Array.of(4118)),
  ]);
  const decoded = decodeFrame(buffer) as RatesFrame;
  expect([decoded.node_id, decoded.seq, decoded.cpus]).toEqual([12, 7, 3]);
  expect([...(decoded.share("softirq") ?? [])]).toEqual([0, 200, 255]);
  expect(decoded.share("softirq")?.buffer).toBe(buffer);
  expect([...(decoded.count("processed") ?? [])]).toEqual([1, 2, 0xffffffff]);
  expect([decoded.irqs?.ids[0], decoded.irqs?.cpus[0], decoded.irqs?.counts[0]]).toEqual([41, 2, 4118]);
});

test("a source that could not be read has no column, which is null and not zeros", () => {
  const decoded = decodeFrame(frame(RATES, [column("busy", "u8", Uint8Array.of(1, 2, 3))])) as RatesFrame;
  expect(decoded.share("steal")).toBeNull();
  expect(decoded.count("dropped")).toBeNull();
  expect(decoded.irqs).toBeNull();
});

test("a fleet frame has NaN for unknown figures", () => {
  const decoded = decodeFrame(
    frame({ type: "fleet", time_ms: 5 }, [
      column("node_id", "u32", Uint32Array.of(3, 9)),
      column("softirq_cpu_percent", "f32", Float32Array.of(94, Number.NaN)),
    ]),
  );
  if (decoded.type !== "fleet") throw new Error("not a fleet frame");
  expect([...decoded.node_id]).toEqual([3, 9]);
  expect([...decoded.softirq_cpu_percent]).toEqual([94, Number.NaN]);
});

const whole = frame(RATES, [column("busy", "u8", new Uint8Array(64))]);
test.each([
  ["an empty frame", new ArrayBuffer(0)],
  ["a frame shorter than its header", whole.slice(0, 500)],
  ["a frame cut in a column", whole.slice(0, whole.byteLength - 8)],
  ["an unknown column type", frame(RATES, [column("busy", "f64", new Uint8Array(8))])],
  ["a column that ends inside a number", frame(RATES, [{ name: "dropped", type: "u32", bytes: new Uint8Array(6) }])],
  ["a column off the multiples of 8", frame(RATES, [column("busy", "u8", new Uint8Array(8))], 1022)],
  ["an unknown frame type", frame({ type: "other" }, [])],
])("%s is refused with a sentence", (_, buffer) => {
  expect(() => decodeFrame(buffer)).toThrow(FrameError);
});

test.each([
  [41, "41"],
  [0x4c4f4320, "LOC"],
  [0x54524d20, "TRM"],
])("the irq id %i is the row %s", (id, label) => {
  expect(irqLabel(id)).toBe(label);
});
