/** The settings of a network device or of a queue that decide when it interrupts: their units, and what drivers made of them. */

import type { Schemas } from "../../api/client";

export type Coalescing = Schemas["Coalescing"];
export type Surface = NonNullable<Coalescing["surface"]>;
export type Tried = Coalescing["tried"][number];

/** unit: null for what is on or off. */
type Param = { unit: string | null; help: string };

const WAIT = "How long the NIC waits before it interrupts.";
const FRAMES = "After so many packets it interrupts without waiting longer.";
const WHILE = "The same while the last interrupt is still being handled.";
const ADAPTIVE = "On, the driver changes these values by itself as the load goes.";
const CQE = "On, the wait begins anew with each packet.";

/** Every parameter by the end of its key, in the order and the groups in which they are shown. */
export const GROUPS: { label: string; params: Record<string, Param> }[] = [
  {
    label: "NIC, receiving",
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
    label: "NIC, sending",
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
    label: "Kernel, in the NIC's place",
    params: {
      gro_flush_timeout: {
        unit: "ns",
        help: "How long the kernel waits before it polls again; needs the next above 0.",
      },
      napi_defer_hard_irqs: { unit: "polls", help: "So many empty polls until the interrupt is on again." },
    },
  },
  {
    label: "Rings",
    params: {
      "ring/rx": { unit: "packets", help: "So many packets wait in the NIC before it drops some." },
      "ring/tx": { unit: "packets", help: "So many packets wait to be sent." },
    },
  },
];

/** The groups with what is there of them. */
export function present(params: Record<string, string>): { label: string; params: [name: string, of: Param][] }[] {
  return GROUPS.map(({ label, params: all }) => ({
    label,
    params: Object.entries(all).filter(([name]) => name in params),
  })).filter(({ params: there }) => there.length > 0);
}

/** A setting's key; queue: null for the network device as a whole. */
export function keyOf(netdev: string, queue: string | null, name: string): string {
  return ["netdev", netdev, ...(queue === null ? [] : [queue]), name].join("/");
}

/** What is typed, by name, and differs from what stands: as desired, or why it cannot be one. */
export function wishesOf(
  params: Record<string, string>,
  draft: Record<string, string>,
  key: (name: string) => string,
): { desired: Schemas["DesiredValueIn"][]; wrong: Record<string, string> } {
  const desired: Schemas["DesiredValueIn"][] = [];
  const wrong: Record<string, string> = {};
  for (const { params: there } of present(params))
    for (const [name, { unit }] of there) {
      const typed = draft[name]?.trim();
      if (typed === undefined) continue;
      if (unit !== null && !/^\d{1,10}$/.test(typed)) wrong[name] = "A whole number.";
      else {
        const value = unit === null ? typed : String(Number(typed));
        if (value !== params[name]) desired.push({ key: key(name), value });
      }
    }
  return { desired, wrong };
}

/** Values of a driver that are told; older ones are left out. */
const SHOWN = 4;

/** What the driver made of values that were asked of it, the newest first: a line for each that did not become what was asked. */
export function madeOf(tried: Tried[], name: string): { bad: boolean; words: string }[] {
  const newest = tried.filter((one) => one.name === name).sort((a, b) => b.time_ms - a.time_ms);
  const taken = newest.filter(({ verdict }) => verdict === "taken").slice(0, SHOWN);
  const others = newest.filter(({ verdict }) => verdict !== "taken").slice(0, SHOWN);
  return [
    ...others.map((one) => ({ bad: true, words: becameOf(one) })),
    ...(taken.length === 0 ? [] : [{ bad: false, words: `took ${taken.map(({ asked }) => asked).join(", ")}` }]),
  ];
}

function becameOf({ asked, stood, verdict, words }: Tried): string {
  const said = words === "" ? "" : `: ${words}`;
  if (verdict === "rounded") return `rounded ${asked} → ${stood}`;
  if (verdict === "ignored") return `ignored ${asked}${stood === null ? "" : `, stayed ${stood}`}`;
  if (verdict === "no_effect") return `${asked} had no effect${said}`;
  return `refused ${asked}${said}`;
}

/** Values of rx-usecs and rx-frames as the URL has them: `54x32`, `54`. */
export function pointText(rxUsecs: number, rxFrames: number | undefined): string {
  return rxFrames === undefined ? String(rxUsecs) : `${rxUsecs}x${rxFrames}`;
}

/** What a picked point asks for; a driver that adapts by itself is told not to. */
export function pointDraft(point: string | undefined, params: Record<string, string>): Record<string, string> {
  if (point === undefined) return {};
  const [usecs = "", frames] = point.split("x");
  return {
    "coalesce/rx-usecs": usecs,
    ...(frames !== undefined && { "coalesce/rx-frames": frames }),
    ...(params["coalesce/adaptive-rx"] === "on" && { "coalesce/adaptive-rx": "off" }),
  };
}
