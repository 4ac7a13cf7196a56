// Every screen, on a stack with nodes of 2, 64 and 256 CPUs and something to see on each page.
import type { Page } from "playwright-core";
import { loaded, type Stack, startSimulation } from "./stack";

/** detail: one more part of a page that is in the table already; left out in CI. */
export type Screen = {
  name: string;
  path: string;
  ready?: (page: Page) => Promise<unknown>;
  cpus?: number;
  detail?: boolean;
  signedOut?: boolean;
};

export const screenName = ({ name, cpus }: Screen): string => (cpus === undefined ? name : `${name}-${cpus}`);

export const CPUS = [2, 64, 256] as const;
const WITHOUT_TELEMETRY = { nodes: 4, mean_run_s: 0.2, jobs: 6 };

type Json = Record<string, unknown>;

/** Sends requests as the user who is signed in on a page. Throws what the backend refuses. */
function client(page: Page, { url }: Pick<Stack, "url">) {
  const send = async (method: string, path: string, data?: Json) => {
    const me = await (await page.request.get(`${url}/api/v1/auth/me`)).json();
    const headers = { "X-CSRF-Token": me.csrf_token };
    const answer = await page.request.fetch(`${url}${path}`, { method, headers, ...(data && { data }) });
    if (!answer.ok()) throw new Error(`${method} ${path}: ${answer.status()} ${await answer.text()}`);
    return answer.status() === 204 ? null : answer.json();
  };
  return {
    get: (path: string) => send("GET", path),
    post: (path: string, data: Json = {}) => send("POST", path, data),
  };
}

/** Asks until an answer is there. Throws after 5 min, in which also a busy machine has it. */
async function until<T>(ask: () => Promise<T | undefined>): Promise<T> {
  const end = Date.now() + 300_000;
  for (;;) {
    const answer = await ask();
    if (answer !== undefined) return answer;
    if (Date.now() > end) throw new Error(`Still nothing after 5 min: ${ask}`);
    await new Promise((resolve) => setTimeout(resolve, 250));
  }
}

/**
 * Starts the nodes, and creates a confirmed and a pending change, policies, an experiment and a study.
 * @param awaits whether to wait for the end of the experiment and the study, about half a minute
 */
export async function furnish(page: Page, stack: Stack, awaits: boolean): Promise<Screen[]> {
  const { get, post } = client(page, stack);
  for (const cpus of CPUS)
    startSimulation(stack, ["--nodes", "1", "--cpus", `${cpus}`, "--irqs", `${Math.min(600, 20 + 4 * cpus)}`]);
  const ids = new Map<number, number>();
  await until(async () => {
    for (const node of await get("/api/v1/nodes"))
      if (node.simulated && node.cpus !== null && node.health === "live") ids.set(node.cpus, node.id);
    return CPUS.every((cpus) => ids.has(cpus)) || undefined;
  });
  const idOf = (cpus: number) => ids.get(cpus) as number;

  const policy = (name: string, type: string, mode: string) =>
    post("/api/v1/policies", { name, mode, spec: { type }, selector: { labels: {}, hostnames: ["sim*"] } });
  const spread = await policy("spread-interrupts", "irq-spread", "enforce");
  await policy("near-the-process", "network-process", "recommend");
  await post(`/api/v1/policies/${spread.id}/enable`);

  const irqs = new Map<number, number>();
  const change = async (cpus: number, timeout: number) => {
    const node = await get(`/api/v1/nodes/${idOf(cpus)}`);
    const irq = node.inventory.irqs.find((each: Json) => each.movable !== false && !each.managed).irq as number;
    irqs.set(cpus, irq);
    const desired = [{ key: `irq/${irq}/affinity`, value: "1" }];
    const preview = await post(`/api/v1/nodes/${node.id}/previews`, { desired });
    return post(`/api/v1/nodes/${node.id}/changes`, {
      plan: preview.plan,
      confirm_timeout_s: timeout,
      reason: "rebalance",
    });
  };
  const confirmed = await change(64, 600);
  await until(async () => ((await get(`/api/v1/changes/${confirmed.id}`)).state === "unconfirmed" ? true : undefined));
  await post(`/api/v1/changes/${confirmed.id}/confirm`);
  await change(256, 600);

  const templates = await get(`/api/v1/nodes/${idOf(2)}/experiment-templates`);
  const template = templates.find((each: Json) => each.slug === "rx-usecs");
  const spec = { ...template.spec, warmup_s: 0.5, measure_s: 1, settle_s: 0, blocks: 3, aa_blocks: 3 };
  const experiment = await post("/api/v1/experiments", { spec });
  const study = await post("/api/v1/simulations", {
    spec: {
      ...{ schemes: ["SB", "SB+RO"], patterns: ["nn"], job_types: ["swl1"], imbalances: [0.5], seeds: 2 },
      parameters: WITHOUT_TELEMETRY,
    },
  });
  if (awaits)
    for (const path of [`/api/v1/experiments/${experiment.id}`, `/api/v1/simulations/${study.id}`])
      await until(async () => (["done", "finished", "failed"].includes((await get(path)).state) ? true : undefined));
  return screensOf(idOf, (cpus) => irqs.get(cpus) ?? 0, spread.id, experiment.id, study.id);
}

function screensOf(
  node: (cpus: number) => number,
  irq: (cpus: number) => number,
  policy: number,
  experiment: number,
  study: number,
): Screen[] {
  const heatmap = (page: Page) => page.getByRole("application", { name: /^Heatmap/ }).waitFor();
  const row = (page: Page) => page.getByRole("table").first().waitFor();
  return [
    { name: "fleet", path: "/fleet", ready: (page) => page.getByText("Hot spots").first().waitFor() },
    { name: "fleet-table", path: "/fleet?view=table", ready: row },
    { name: "fleet-compared", path: "/fleet?view=table&compare=1h", ready: row, detail: true },
    { name: "fleet-no-match", path: "/fleet?q=none", detail: true },
    ...CPUS.flatMap((cpus) => [
      { name: "node", path: `/nodes/${node(cpus)}`, ready: heatmap, cpus },
      { name: "node-cpu", path: `/nodes/${node(cpus)}?sel=cpu%3A1`, ready: heatmap, cpus, detail: cpus !== 64 },
      { name: "node-hour", path: `/nodes/${node(cpus)}?span=3600`, ready: heatmap, cpus, detail: true },
      ...["numa", "coalescing", "tasks", "policies", "history"].map((tab) => ({
        name: `node-${tab}`,
        path: `/nodes/${node(cpus)}?tab=${tab}`,
        ready: heatmap,
        cpus,
        detail: cpus !== 64,
      })),
    ]),
    ...CPUS.filter((cpus) => irq(cpus) > 0).map((cpus) => ({
      name: "node-irq",
      path: `/nodes/${node(cpus)}?sel=irq%3A${irq(cpus)}`,
      ready: heatmap,
      cpus,
      detail: cpus !== 64,
    })),
    {
      name: "policies",
      path: "/policies",
      ready: (page) => page.getByRole("link", { name: "spread-interrupts" }).waitFor(),
    },
    { name: "policy-new", path: "/policies/new?kind=network-process" },
    { name: "policy", path: `/policies/${policy}` },
    ...["nodes", "versions", "rollout", "backtest", "edit"].map((tab) => ({
      name: `policy-${tab}`,
      path: `/policies/${policy}?tab=${tab}`,
    })),
    { name: "experiments", path: "/experiments" },
    { name: "experiment-new", path: "/experiments/new" },
    { name: "experiment-templates", path: `/experiments/new?node=${node(64)}` },
    { name: "experiment-own", path: `/experiments/new?node=${node(64)}&template=own` },
    { name: "experiment", path: `/experiments/${experiment}` },
    { name: "studies", path: "/simulations" },
    { name: "study-new", path: "/simulations/new" },
    { name: "study", path: `/simulations/${study}` },
    { name: "changes", path: "/changes" },
    { name: "alerts", path: "/alerts" },
    { name: "alerts-rules", path: "/alerts?tab=rules" },
    { name: "alerts-receivers", path: "/alerts?tab=receivers" },
    { name: "audit", path: "/audit", ready: row },
    { name: "account", path: "/account", ready: row },
    ...["nodes", "users", "tokens", "application-metrics", "change-control", "about"].map((section) => ({
      name: `settings-${section}`,
      path: `/settings/${section}`,
    })),
    { name: "not-found", path: "/no/such/page" },
    { name: "login", path: "/login", signedOut: true },
  ];
}

/** Waits until nothing of a screen is loading. */
export async function settled(page: Page, { ready }: Screen): Promise<void> {
  await page.locator("#page-top h1, main h1").first().waitFor();
  await ready?.(page);
  await loaded(page);
}

/** What is wider than the page: CSS paths and widths of the innermost elements that reach beyond the right edge. */
export const overflow = (page: Page): Promise<string[]> =>
  page.evaluate(() => {
    const width = document.documentElement.clientWidth;
    const clips = (element: Element) => getComputedStyle(element).overflowX !== "visible";
    const isClipped = (element: Element | null): boolean =>
      element !== null && element !== document.documentElement && (clips(element) || isClipped(element.parentElement));
    const label = (element: Element) =>
      `${element.tagName.toLowerCase()}${[...element.classList].map((name) => `.${name}`).join("")}`;
    const wide = [...document.body.querySelectorAll("*")].filter(
      (element) => element.getBoundingClientRect().right > width + 0.5 && !isClipped(element.parentElement),
    );
    // A scroller within the page is no better than a page that scrolls.
    const scrollers = [...document.body.querySelectorAll("*")].filter(
      (element) =>
        element.scrollWidth > element.clientWidth + 1 && /auto|scroll/.test(getComputedStyle(element).overflowX),
    );
    return [
      ...wide
        .filter((element) => !wide.some((other) => other !== element && element.contains(other)))
        .map((element) => `${label(element)} ends at ${Math.round(element.getBoundingClientRect().right)}`),
      ...scrollers.map((element) => `${label(element)} scrolls ${element.scrollWidth} in ${element.clientWidth}`),
    ];
  });

/** Sums up the layout shifts of each page, with the elements that moved, how far and when. */
export function recordShifts(): void {
  const record = { sum: 0, moved: [] as string[] };
  Object.assign(window, { shifts: record });
  type Source = { node: Node | null; previousRect: DOMRect; currentRect: DOMRect };
  type Shift = PerformanceEntry & { value: number; sources: Source[] };
  const place = ({ x, y, width, height }: DOMRect) => `${[x, y].map(Math.round)} ${[width, height].map(Math.round)}`;
  new PerformanceObserver((list) => {
    for (const { value, sources, startTime } of list.getEntries() as Shift[]) {
      record.sum += value;
      for (const { node, previousRect, currentRect } of sources)
        if (node instanceof Element)
          record.moved.push(
            `${node.tagName.toLowerCase()}.${node.className} ${place(previousRect)} → ${place(currentRect)} by ${value.toFixed(3)} at ${Math.round(startTime)} ms`,
          );
    }
  }).observe({ type: "layout-shift", buffered: true });
}

export const shiftsOf = (page: Page) =>
  page.evaluate(() => (window as unknown as { shifts: { sum: number; moved: string[] } }).shifts);
