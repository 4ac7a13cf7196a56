/** Coalescing parameters of network devices and queues: units, help, and the drivers' responses. */

import type { Schemas } from "../../api/client";

export type Coalescing = Schemas["Coalescing"];
export type Surface = NonNullable<Coalescing["surface"]>;
export type DriverResponse = Coalescing["responses"][number];

/** unit: null for on/off parameters. */
export type Param = { unit: string | null; help: string };

const WAIT = "Delay before the NIC raises an interrupt.";
const FRAMES = "Packets after which the NIC raises an interrupt without further delay.";
const WHILE = "The same while an interrupt is being handled.";
const ADAPTIVE = "On: the driver adapts these values to the load.";
const CQE = "On: each packet restarts the delay.";

/** All parameters by the end of their keys, in display order and groups. */
export const GROUPS: { label: string; params: Record<string, Param> }[] = [
  {
    label: "NIC, receive",
    params: {
      "coalesce/rx-usecs": { unit: "µs", help: WAIT },
      "coalesce/rx-frames": { unit: "packets", help: FRAMES },
      "coalesce/adaptive-rx": { unit: null, help: ADAPTIVE },
      "coalesce/rx-usecs-irq": { unit: "µs", help: WHILE },
      "coalesce/rx-frames-irq": { unit: "packets", help: WHILE },
      "coalesce/cqe-mode-rx": { unit: null, help: CQE },
    },
  },
  {
    label: "NIC, transmit",
    params: {
      "coalesce/tx-usecs": { unit: "µs", help: WAIT },
      "coalesce/tx-frames": { unit: "packets", help: FRAMES },
      "coalesce/adaptive-tx": { unit: null, help: ADAPTIVE },
      "coalesce/tx-usecs-irq": { unit: "µs", help: WHILE },
      "coalesce/tx-frames-irq": { unit: "packets", help: WHILE },
      "coalesce/cqe-mode-tx": { unit: null, help: CQE },
    },
  },
  {
    label: "Kernel (software coalescing)",
    params: {
      gro_flush_timeout: {
        unit: "ns",
        help: "Delay until the kernel polls again; requires napi_defer_hard_irqs > 0.",
      },
      napi_defer_hard_irqs: { unit: "polls", help: "Empty polls before the interrupt is enabled again." },
    },
  },
  {
    label: "Rings",
    params: {
      "ring/rx": { unit: "packets", help: "Received packets that the NIC buffers before it drops." },
      "ring/tx": { unit: "packets", help: "Packets that wait for transmission." },
    },
  },
];

/** The groups with the parameters that are present. */
export function presentParams(
  params: Record<string, string>,
): { label: string; params: [name: string, of: Param][] }[] {
  return GROUPS.map(({ label, params: all }) => ({
    label,
    params: Object.entries(all).filter(([name]) => name in params),
  })).filter(({ params: there }) => there.length > 0);
}

/** A setting's key; queue: null for the network device as a whole. */
export function keyOf(netdev: string, queue: string | null, name: string): string {
  return ["netdev", netdev, ...(queue === null ? [] : [queue]), name].join("/");
}

/** Typed values that differ from the current ones, as desired values; wrong: messages for invalid ones, by name. */
export function desiredValuesOf(
  params: Record<string, string>,
  draft: Record<string, string>,
  key: (name: string) => string,
): { desired: Schemas["DesiredValueIn"][]; wrong: Record<string, string> } {
  const desired: Schemas["DesiredValueIn"][] = [];
  const wrong: Record<string, string> = {};
  for (const { params: there } of presentParams(params))
    for (const [name, { unit }] of there) {
      const typed = draft[name]?.trim();
      if (typed === undefined) continue;
      if (unit !== null && !/^\d{1,10}$/.test(typed)) wrong[name] = "Enter a whole number.";
      else {
        const value = unit === null ? typed : String(Number(typed));
        if (value !== params[name]) desired.push({ key: key(name), value });
      }
    }
  return { desired, wrong };
}

/** Responses shown per kind; older ones are omitted. */
const SHOWN = 4;

/** A driver's responses to requested values, newest first: one line per value not accepted as requested, one for the accepted. */
export function driverResponses(responses: DriverResponse[], name: string): { warning: boolean; text: string }[] {
  const newest = responses.filter((one) => one.name === name).sort((a, b) => b.time_ms - a.time_ms);
  const accepted = newest.filter(({ verdict }) => verdict === "accepted").slice(0, SHOWN);
  const others = newest.filter(({ verdict }) => verdict !== "accepted").slice(0, SHOWN);
  return [
    ...others.map((one) => ({ warning: true, text: responseText(one) })),
    ...(accepted.length === 0
      ? []
      : [{ warning: false, text: `accepted ${accepted.map(({ requested }) => requested).join(", ")}` }]),
  ];
}

function responseText({ requested, read_back, verdict, message }: DriverResponse): string {
  const reason = message === "" ? "" : `: ${message}`;
  if (verdict === "rounded") return `rounded ${requested} → ${read_back}`;
  if (verdict === "ignored") return `ignored ${requested}${read_back === null ? "" : `, stayed ${read_back}`}`;
  if (verdict === "no_effect") return `${requested} had no effect${reason}`;
  return `refused ${requested}${reason}`;
}

/** Values of rx-usecs and rx-frames in URL format: `54x32`, `54`. */
export function pointText(rxUsecs: number, rxFrames: number | undefined): string {
  return rxFrames === undefined ? String(rxUsecs) : `${rxUsecs}x${rxFrames}`;
}

/** The parameter values of a selected point, with adaptive-rx off. */
export function pointDraft(point: string | undefined, params: Record<string, string>): Record<string, string> {
  if (point === undefined) return {};
  const [usecs = "", frames] = point.split("x");
  return {
    "coalesce/rx-usecs": usecs,
    ...(frames !== undefined && { "coalesce/rx-frames": frames }),
    ...(params["coalesce/adaptive-rx"] === "on" && { "coalesce/adaptive-rx": "off" }),
  };
}
