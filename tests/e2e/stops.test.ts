// Stops of enforcement: two clicks stop it on simulated nodes; a banner says so until an administrator lifts the stop.
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { launchBrowser, type Stack, setUp, startSimulation, startStack, violations } from "./stack";

const NODES = 6;
const USECS = "90";

let stack: Stack;
let browser: Browser;
let page: Page;

/** Calls the API as the signed-in user; returns the answer's JSON, null without one. */
async function call<T>(method: string, path: string, data?: unknown): Promise<T> {
  return page.evaluate(
    async ([method, path, body]) => {
      const me = await (await fetch("/api/v1/auth/me")).json();
      const headers = { "content-type": "application/json", "x-csrf-token": me.csrf_token };
      const answer = await fetch(path, body === undefined ? { method, headers } : { method, headers, body });
      if (!answer.ok) throw new Error(await answer.text());
      return answer.status === 204 ? null : answer.json();
    },
    [method, path, data === undefined ? undefined : JSON.stringify(data)] as const,
  ) as Promise<T>;
}

type Effect = { connected: { nodes: number; settings: number } };
const effect = () => call<Effect>("POST", "/api/v1/stops/preview", { labels: {} });

/** Waits until Coresteer has changed as many settings of the fleet as accepted; agents report them. */
async function settings(accept: (settings: number) => boolean): Promise<number> {
  for (;;) {
    const { settings } = (await effect()).connected;
    if (accept(settings)) return settings;
    await page.waitForTimeout(200);
  }
}

beforeAll(async () => {
  stack = await startStack();
  browser = await launchBrowser();
  startSimulation(stack, ["--nodes", String(NODES), "--cpus", "8", "--irqs", "60"]);
  page = await browser.newPage({ viewport: { width: 1440, height: 900 } });
  await setUp(page, stack);
  const spec = { type: "fixed-settings", settings: { "netdev/{netdev}/coalesce/rx-usecs": USECS } };
  const body = { name: "short delays", mode: "enforce", spec, selector: { hostnames: ["sim*"] } };
  const policy = await call<{ id: number }>("POST", "/api/v1/policies", body);
  await call("POST", `/api/v1/policies/${policy.id}/enable`);
  await settings((count) => count > 1); // sentences about one setting have other words
});

afterAll(async () => {
  await browser?.close();
  await stack?.stop();
});

const banner = () => page.getByRole("region", { name: "Stops of enforcement" });

test("two clicks stop enforcement on the nodes and settings that the dialog names", async () => {
  await page.goto(`${stack.url}/fleet`);
  await page.getByRole("button", { name: /^⌘K/ }).click();
  await page.getByRole("combobox", { name: /^Search nodes/ }).fill("stop enf");
  await page.getByRole("option", { name: "Stop enforcement…" }).click();
  const dialog = page.getByRole("dialog", { name: "Stop enforcement" });
  await dialog.getByRole("row", { name: /^connected [1-9]/ }).waitFor();
  expect(await violations(page)).toEqual([]);
  await dialog.getByLabel("Reason").fill("incident 4711");
  await dialog.getByRole("button", { name: /^Stop on \d+ nodes$/ }).click();
  await banner().getByText("Enforcement is stopped on all").waitFor();
  await banner()
    .getByText(/keep their values, 1 policy writes nothing/)
    .waitFor();
  await banner()
    .getByText(/“incident 4711” · reached [1-9]\d* nodes within/)
    .waitFor();
  expect(await violations(page)).toEqual([]);
});

test("the banner is on every page", async () => {
  for (const path of ["/fleet", "/audit", "/settings"]) {
    await page.goto(`${stack.url}${path}`);
    await banner().waitFor();
  }
  await page.getByText("incident 4711").first().waitFor();
});

test("restoring everything gives the settings back, and no policy takes them while the stop lasts", async () => {
  await banner().getByRole("button", { name: "Restore everything…" }).click();
  await page.getByRole("button", { name: /^Restore \d+ settings$/ }).click();
  await banner().getByText("settings are as found").waitFor();
  await settings((count) => count === 0);
});

test("lifting the stop names the policies, which write again", async () => {
  await banner().getByRole("button", { name: "Lift the stop…" }).click();
  const dialog = page.getByRole("dialog", { name: "Lift the stop" });
  await dialog.getByText(/^1 policy writes again: short delays/).waitFor();
  await dialog.getByRole("button", { name: /^Lift on/ }).click();
  await banner().waitFor({ state: "detached" });
  await settings((count) => count > 0);
});

test("the undo of a policy's change says in its preview what the policy does then", async () => {
  await page.goto(`${stack.url}/changes?moves=each&by=policies&state=confirmed`);
  await page
    .getByRole("link", { name: /^Undo ens5 rx-usecs/ })
    .first()
    .click();
  const panel = page.getByRole("complementary", { name: "Undo" });
  await panel.getByText(/^“short delays” (had set|is enforced here and sets) ens5 rx-usecs to 90/).waitFor();
});

test("the stop, the restore and the lift are rows of the Changes page, found by the reason", async () => {
  await page.goto(`${stack.url}/changes?q=4711`);
  const rows = page.locator("[data-stop-row]");
  await rows.nth(2).waitFor();
  const [lifted = "", restored = "", stopped = ""] = await rows.allInnerTexts();
  expect(lifted).toMatch(/all nodes\s+stop lifted \d+ nodes\s+ada\s+lifted\s+“incident 4711”/);
  expect(restored).toMatch(/everything restored \d+ nodes, \d+ settings as found/);
  expect(stopped).toMatch(/enforcement stopped \d+ nodes, \d+ settings kept\s+ada\s+ended/);
  await rows
    .last()
    .getByRole("button", { name: /details of/ })
    .click();
  await page.getByText("4711").nth(3).waitFor();
  expect(await violations(page)).toEqual([]);
});

test("nothing overflows on a phone", async () => {
  await page.setViewportSize({ width: 390, height: 844 });
  await page.goto(`${stack.url}/changes`);
  await page.getByRole("button", { name: "Stop enforcement…" }).click();
  const dialog = page.getByRole("dialog", { name: "Stop enforcement" });
  await dialog.getByRole("button", { name: "by label…" }).click();
  await dialog.getByRole("textbox", { name: "Labels" }).fill("rack=r0*");
  await dialog.getByRole("button", { name: /^Stop on \d+ nodes?$/ }).click();
  await banner()
    .getByText(/of rack=r0\*/)
    .waitFor();
  expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(390);
  expect(await violations(page)).toEqual([]);
});
