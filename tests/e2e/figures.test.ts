// What each page costs to load and to keep open, as a Markdown table: MINUTES=10 ONLY=<pattern of names> make bench-pages
import type { Browser, Page } from "playwright-core";
import { test } from "vitest";
import { furnish, recordShifts, type Screen, screenName, settled, shiftsOf } from "./screens";
import { launchBrowser, type Stack, setUp, startStack } from "./stack";

const { MINUTES, ONLY = "" } = process.env;
const WIDTHS = [1440, 390];
const AFTER_LOAD_MS = 2000;
/** Pages open at once while their heaps grow. */
const OPEN = 8;

type SignedIn = Awaited<ReturnType<ReturnType<Page["context"]>["storageState"]>>;
type Event = { name: string; ph: string; pid: number; tid: number; tdur?: number; args: { name?: string } };

/** The longest task of a page's main thread in a trace, in ms of processor time: other load does not prolong it. */
function longestTask(trace: Buffer): number {
  const events = (JSON.parse(trace.toString()) as { traceEvents: Event[] }).traceEvents;
  const main = events
    .filter(({ name, args }) => name === "thread_name" && args.name === "CrRendererMain")
    .map(({ pid, tid }) => `${pid}/${tid}`);
  const tasks = events.filter(({ name, pid, tid }) => name === "RunTask" && main.includes(`${pid}/${tid}`));
  return Math.max(0, ...tasks.map(({ tdur = 0 }) => tdur / 1000));
}

/** Opens a screen in a context of its own: nothing is cached. */
async function open(browser: Browser, stack: Stack, signedIn: SignedIn, screen: Screen, width: number) {
  const context = await browser.newContext({
    ...(!screen.signedOut && { storageState: signedIn }),
    viewport: { width, height: 900 },
  });
  await context.addInitScript(recordShifts);
  const page = await context.newPage();
  const cdp = await context.newCDPSession(page);
  const network = { requests: 0, bytes: 0 };
  cdp.on("Network.loadingFinished", ({ encodedDataLength }) => {
    network.requests += 1;
    network.bytes += encodedDataLength;
  });
  await cdp.send("Network.enable");
  const load = async () => {
    await page.goto(`${stack.url}${screen.path}`);
    await settled(page, screen);
  };
  return { page, cdp, network, load, close: () => context.close() };
}

type Opened = Awaited<ReturnType<typeof open>>;

/** Cells of the table for a load. */
async function loadFigures(browser: Browser, { page, network, load }: Opened): Promise<string[]> {
  await browser.startTracing(page, { categories: ["disabled-by-default-devtools.timeline"] });
  await load();
  await page.waitForTimeout(AFTER_LOAD_MS);
  const task = longestTask(await browser.stopTracing());
  const paint = await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime);
  const { sum } = await shiftsOf(page);
  const kilobytes = Math.round(network.bytes / 1000);
  return [
    `${Math.round(paint ?? Number.NaN)}`,
    sum.toFixed(3),
    `${Math.round(task)}`,
    `${network.requests}`,
    `${kilobytes}`,
  ];
}

async function heap({ cdp }: Opened): Promise<string> {
  await cdp.send("HeapProfiler.collectGarbage");
  const { usedSize } = await cdp.send("Runtime.getHeapUsage");
  return (usedSize / 1e6).toFixed(1);
}

/** Milliseconds of a fixed loop, the best of five: divide by it to compare machines. */
const calibration = (page: Page) =>
  page.evaluate(() => {
    const times = Array.from({ length: 5 }, () => {
      const started = performance.now();
      let hash = 0;
      for (let at = 0; at < 20_000_000; at++) hash = (Math.imul(hash, 31) + at) | 0;
      return performance.now() - started + (hash === 0.5 ? 1 : 0);
    });
    return Math.min(...times);
  });

async function report(browser: Browser, stack: Stack, screens: Screen[], signedIn: SignedIn, minutes: number) {
  const cases = WIDTHS.flatMap((width) => screens.map((screen) => ({ width, screen })));
  console.log("| page | px | FCP ms | CLS | longest task, CPU ms | requests | kB | heap MB |");
  console.log(`|---|--:|--:|--:|--:|--:|--:|--:|`);
  for (let at = 0; at < cases.length; at += OPEN) {
    const rows: { label: string; cells: string[] }[] = [];
    for (const { screen, width } of cases.slice(at, at + OPEN)) {
      const opened = await open(browser, stack, signedIn, screen, width);
      rows.push({ label: `${screenName(screen)} | ${width}`, cells: await loadFigures(browser, opened) });
      await opened.close();
    }
    const pages = await Promise.all(
      cases.slice(at, at + OPEN).map(async ({ screen, width }) => {
        const opened = await open(browser, stack, signedIn, screen, width);
        await opened.load();
        return opened;
      }),
    );
    await new Promise((resolve) => setTimeout(resolve, minutes * 60_000));
    for (const [place, { label, cells }] of rows.entries()) {
      const opened = pages[place] as Opened;
      console.log(`| ${label} | ${cells.join(" | ")} | ${await heap(opened)} |`);
      await opened.close();
    }
  }
}

test.runIf(MINUTES !== undefined)(
  "what each page costs",
  async () => {
    const stack = await startStack();
    const browser = await launchBrowser();
    const page = await browser.newPage();
    await setUp(page, stack);
    const screens = await furnish(page, stack, true);
    try {
      console.log(
        `Heap after ${MINUTES} min. The calibration loop takes ${(await calibration(page)).toFixed(1)} ms.\n`,
      );
      const signedIn = await page.context().storageState();
      await page.close();
      const chosen = screens.filter((screen) => new RegExp(ONLY).test(screenName(screen)));
      await report(browser, stack, chosen, signedIn, Number(MINUTES));
    } finally {
      await browser.close();
      await stack.stop();
    }
  },
  24 * 3600_000,
);
