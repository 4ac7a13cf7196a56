/** Coalescing parameters of network devices and queues, and the drivers' responses. */

import type { Schemas } from "../../api/client";
import { tunables } from "../../lib/settingKeys";

export type Coalescing = Schemas["Coalescing"];
export type Surface = NonNullable<Coalescing["surface"]>;
export type DriverResponse = Coalescing["responses"][number];

/** unit: null for on/off parameters. */
export type Param = { unit: string | null; help: string };

const GROUPED = tunables().filter(({ group }) => group !== null);

/** The parameters that are present, by group, in display order. */
export function presentParams(
  params: Record<string, string>,
): { label: string; params: [name: string, of: Param][] }[] {
  const groups = new Map<string, [name: string, of: Param][]>();
  for (const { name, group, unit, help } of GROUPED)
    if (name in params && group !== null) groups.set(group, [...(groups.get(group) ?? []), [name, { unit, help }]]);
  return [...groups].map(([label, present]) => ({ label, params: present }));
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
