// Every page at 1440 and 390 px, dark and light: axe also while it loads, nothing wider than the page, no error in the
// console; with EVERYWHERE=all no layout shift.
// In CI every page at 390 px in light, every other one at 1440 px in dark, axe in one of both and its rules about colors
// in both themes. EVERYWHERE=all tests/e2e/run everywhere.test.ts examines every state in all four, about 10 min;
// ONLY=<pattern of names>.
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { furnish, overflow, recordShifts, type Screen, screenName, settled, shiftsOf } from "./screens";
import { admin, collectErrors, launchBrowser, type Stack, setUp, startStack, violations } from "./stack";

const all = process.env.EVERYWHERE === "all";
const MAX_SHIFT = 0.02;
const only = new RegExp(process.env.ONLY ?? "");
const COMBINATIONS = [
  { width: 1440, height: 900, colorScheme: "dark" },
  { width: 390, height: 844, colorScheme: "light" },
  { width: 1440, height: 900, colorScheme: "light" },
  { width: 390, height: 844, colorScheme: "dark" },
] as const;

let stack: Stack;
let browser: Browser;
let screens: Screen[];
let signedIn: Awaited<ReturnType<ReturnType<Page["context"]>["storageState"]>>;

beforeAll(async () => {
  stack = await startStack();
  browser = await launchBrowser();
  const page = await browser.newPage();
  await setUp(page, stack);
  screens = await furnish(page, stack, all);
  signedIn = await page.context().storageState();
  await page.close();
});

afterAll(async () => {
  await browser?.close();
  await stack?.stop();
});

/** Violations of axe's rules about colors in the theme that is not shown. */
async function inTheOtherTheme(page: Page): Promise<string[]> {
  const isDark = await page.evaluate(() => matchMedia("(prefers-color-scheme: dark)").matches);
  const [now, other] = isDark ? (["dark", "light"] as const) : (["light", "dark"] as const);
  await page.emulateMedia({ colorScheme: other });
  const found = await violations(page, { colors: true });
  await page.emulateMedia({ colorScheme: now });
  return found.map((line) => `${other}: ${line}`);
}

/** What is wrong with a screen, one line each. */
async function problems(page: Page, screen: Screen, withAxe: boolean): Promise<string[]> {
  let release: () => void = () => undefined;
  const released = new Promise<void>((resolve) => {
    release = resolve;
  });
  // The shell itself waits for these.
  await page.route(/\/api\/v1\/(?!auth\/|schemas|health|stops|changes\?open|experiments\?state=running)/, (route) =>
    released.then(() => route.continue()),
  );
  await page.goto(`${stack.url}${screen.path}`);
  await page.locator("main").first().waitFor();
  await page
    .getByRole("navigation", { name: "Pages" })
    .or(page.getByRole("heading", { level: 1 }))
    .first()
    .waitFor();
  const loading = withAxe ? await violations(page) : [];
  release();
  await settled(page, screen);
  const { sum, moved } = await shiftsOf(page); // first: axe holds up the page until its data are stale, which it then says
  const loaded = withAxe ? await violations(page) : [];
  await page.unrouteAll({ behavior: "ignoreErrors" });
  return [
    ...loading.map((line) => `while loading: ${line}`),
    ...loaded,
    ...(withAxe && !all ? await inTheOtherTheme(page) : []),
    ...(await overflow(page)),
    // what arrives late moves what is in view: that depends on the machine's load
    ...(!all || sum < MAX_SHIFT ? [] : [`layout shift ${sum.toFixed(3)}: ${[...new Set(moved)].join(", ")}`]),
  ];
}

test.each(all ? COMBINATIONS : COMBINATIONS.slice(0, 2))(
  `no page violates axe's rules, is wider than the screen${all ? ", shifts while it loads" : ""} or logs an error, $width $colorScheme`,
  async ({ width, height, colorScheme }) => {
    const context = await browser.newContext({ storageState: signedIn, viewport: { width, height }, colorScheme });
    await context.addInitScript(recordShifts);
    // The first steps of a new fleet change with what the user does: tests/e2e/first-minutes.test.ts.
    const hidden = JSON.stringify({ done: [], hidden: true });
    await context.addInitScript(([key, value]) => localStorage.setItem(key, value), [
      `coresteer-first-steps-${admin.username}`,
      hidden,
    ] as const);
    const page = await context.newPage();
    const found: string[] = [];
    let name = "";
    collectErrors(page, (error) => found.push(`${name}: ${error}`));
    for (const [at, screen] of screens.entries()) {
      name = screenName(screen);
      const withAxe = all || at % 2 === (width === 390 ? 0 : 1);
      if (!only.test(name) || (!all && (screen.detail || (width !== 390 && !withAxe)))) continue;
      const started = performance.now();
      found.push(...(await problems(page, screen, withAxe)).map((line) => `${name}: ${line}`));
      if (all) console.info(`${name}: ${Math.round(performance.now() - started)} ms`);
    }
    await context.close();
    expect(found).toEqual([]);
  },
  600_000,
);
