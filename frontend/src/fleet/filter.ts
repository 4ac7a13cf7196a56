import type { Schemas } from "../api/client";
import { HEALTHS } from "../api/constants";
import type { FleetFigures } from "./fleetStore";
import type { FigureColumn } from "./search";

type NodeSummary = Schemas["NodeSummary"];
type Test = (node: NodeSummary, figures: FleetFigures) => boolean;

/** A parsed filter: a test for nodes, and a message for each invalid part. */
export type Filter = { test: Test; problems: string[] };

type Figure = (node: NodeSummary, figures: FleetFigures) => number;
const column =
  (name: FigureColumn, factor = 1): Figure =>
  (node, figures) =>
    figures.get(node.id, name) * factor;

/** Figures for comparisons, in display units. */
const FIGURES: Record<string, Figure> = {
  softirq: column("softirq_cpu_percent"),
  busiest: column("busiest_cpu_percent"),
  rx: column("rx_bytes_per_s", 8),
  tx: column("tx_bytes_per_s", 8),
  interrupts: column("interrupts_per_s"),
  drops: column("softnet_dropped_per_s"),
  squeezed: column("squeezed_per_s"),
  rtt: column("rtt_p99_us"),
  "wrong-node": column("wrong_node_percent"),
  cpus: (node) => node.cpus ?? Number.NaN,
  changes: (node) => node.open_changes,
};

const COMPARE: Record<string, (a: number, b: number) => boolean> = {
  ">": (a, b) => a > b,
  "<": (a, b) => a < b,
  ">=": (a, b) => a >= b,
  "<=": (a, b) => a <= b,
  "=": (a, b) => a === b,
};

const MULTIPLES: Record<string, number> = { "": 1, k: 1e3, m: 1e6, g: 1e9, t: 1e12 };
const YES_NO: Record<string, boolean> = { yes: true, no: false };

const includes = (text: string | null, part: string) => text?.toLowerCase().includes(part) ?? false;

/** Filters of the form key:value; each returns its test, or a message for an invalid value. */
const KEYS: Record<string, (value: string) => Test | string> = {
  label: (value) => {
    const [name = "", wanted] = value.split(/=(.*)/s);
    if (name === "") return "Enter a label after “label:”, for example label:role=db.";
    return ({ labels }) => {
      const found = Object.entries(labels).find(([key]) => key.toLowerCase() === name)?.[1];
      return found !== undefined && (wanted === undefined || found.toLowerCase() === wanted);
    };
  },
  health: (value) =>
    HEALTHS.some((health) => health === value)
      ? (node, figures) => figures.health(node.id) === value
      : `“health:${value}” is invalid; use ${HEALTHS.join(", ")}.`,
  simulated: (value) => {
    const wanted = YES_NO[value];
    return wanted === undefined
      ? `“simulated:${value}” is invalid; use yes or no.`
      : (node) => node.simulated === wanted;
  },
  mode: (value) => (node) => includes(node.mode, value),
  kernel: (value) => (node) => includes(node.kernel, value),
  driver: (value) => (node) => node.drivers.some((driver) => includes(driver, value)),
};

// A comparison may contain spaces; other parts end at the next space.
const PART = /([^\s<>=:]+)\s*(>=|<=|>|<|=)\s*(\S*)|(\S+)/g;
const NUMBER = /^(\d+(?:\.\d+)?)([kmgt]?)%?$/;

function comparison(name: string, operator: string, value: string): Test | string {
  const figure = Object.hasOwn(FIGURES, name) ? FIGURES[name] : undefined;
  if (figure === undefined) return `“${name}” is not a figure; use ${Object.keys(FIGURES).join(", ")}.`;
  const match = NUMBER.exec(value);
  if (match === null) return `Enter a number after “${name} ${operator}”, for example ${name} ${operator} 60.`;
  const wanted = Number(match[1]) * (MULTIPLES[match[2] as string] as number);
  const compare = COMPARE[operator] as (a: number, b: number) => boolean;
  return (node, figures) => compare(figure(node, figures), wanted);
}

function keyValue(word: string): Test | string {
  const [key = "", value = ""] = word.split(/:(.*)/s);
  const make = Object.hasOwn(KEYS, key) ? KEYS[key] : undefined;
  if (make === undefined) return `“${word}” is not a filter; use ${Object.keys(KEYS).join(":, ")}:.`;
  return make(value);
}

/** Parses a filter line. All valid parts must match; invalid parts are reported and ignored. */
export function parseFilter(line: string): Filter {
  const tests: Test[] = [];
  const problems: string[] = [];
  for (const [, name, operator, value = "", word = ""] of line.toLowerCase().matchAll(PART)) {
    const part =
      name !== undefined && operator !== undefined
        ? comparison(name, operator, value)
        : word.includes(":")
          ? keyValue(word)
          : (node: NodeSummary) => node.name.toLowerCase().includes(word);
    if (typeof part === "string") problems.push(part);
    else tests.push(part);
  }
  return { test: (node, figures) => tests.every((test) => test(node, figures)), problems };
}
