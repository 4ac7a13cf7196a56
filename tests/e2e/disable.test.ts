// A policy enforced on fifty simulated nodes is disabled: the numbers first, then progress until all have reverted.
import { join } from "node:path";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { launchBrowser, type Stack, setUp, startSimulation, startStack, violations } from "./stack";

const NODES = 50;
const shots = process.env.SHOTS; // absolute path of a folder

let stack: Stack;
let browser: Browser;
let page: Page;
let policy: string;

beforeAll(async () => {
  stack = await startStack();
  browser = await launchBrowser();
  page = await browser.newPage({ viewport: { width: 1440, height: 900 } });
  await setUp(page, stack);
  startSimulation(stack, ["--nodes", String(NODES), "--cpus", "4", "--irqs", "12"]);
  const live = async () => {
    const nodes: { health: string; cpus: number | null }[] = await (
      await page.request.get(`${stack.url}/api/v1/nodes`)
    ).json();
    return nodes.filter(({ health, cpus }) => health === "live" && cpus === 4).length;
  };
  await vi.waitFor(async () => expect(await live()).toBeGreaterThanOrEqual(NODES), { timeout: 60_000, interval: 200 });
}, 90_000);

afterAll(async () => {
  await browser?.close();
  await stack?.stop();
});

async function shot(name: string): Promise<void> {
  if (shots === undefined) return;
  for (const colorScheme of ["dark", "light"] as const)
    for (const width of [1440, 390]) {
      await page.emulateMedia({ colorScheme });
      await page.setViewportSize({ width, height: width === 390 ? 844 : 900 });
      await page.waitForTimeout(300);
      const path = join(shots, `${name}-${colorScheme}-${width}.png`);
      await page.screenshot({ path, fullPage: width === 1440 });
      const over = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
      if (over > 0) console.log(`${name} overflows by ${over} px at ${width}`);
    }
  await page.setViewportSize({ width: 1440, height: 900 });
}

async function figure(label: string): Promise<number> {
  const text = await page
    .getByRole("dialog")
    .locator("dl > div")
    .filter({ hasText: label })
    .locator("dd")
    .textContent();
  return Number(text?.replaceAll(",", ""));
}

test("a policy is enforced on fifty nodes after a confirmation", async () => {
  policy = await page.evaluate(async () => {
    const me = await (await fetch("/api/v1/auth/me")).json();
    const headers = { "Content-Type": "application/json", "X-CSRF-Token": me.csrf_token };
    const body = JSON.stringify({
      ...{ name: "spread", mode: "enforce", selector: { hostnames: ["sim4-*"] }, proof: { holdout_percent: 0 } },
      spec: { type: "irq-spread", act_percent: 5, gap_points: 1 },
    });
    return String((await (await fetch("/api/v1/policies", { method: "POST", headers, body })).json()).id);
  });
  await page.goto(`${stack.url}/policies/${policy}`);
  await page.getByRole("region", { name: "State" }).getByRole("button", { name: "Enable" }).click();
  expect(await figure("Nodes, at once")).toBe(NODES);
  await shot("enable");
  await page.getByRole("button", { name: `Enable on ${NODES} nodes` }).click();
  await page.getByText(`All ${NODES} nodes have evaluated the policy.`).waitFor();
  await page.getByText(`v1 on ${NODES} nodes`).waitFor();
});

test("disabling it states nodes and settings, and shows when all are restored", async () => {
  await shot("overview");
  expect(await violations(page)).toEqual([]);
  await page.setViewportSize({ width: 390, height: 844 });
  await page.getByRole("region", { name: "State" }).getByRole("button", { name: "Disable" }).click();
  await expect.poll(() => figure("Settings to restore")).toBeGreaterThan(10);
  expect(await figure("Nodes connected now")).toBe(NODES);
  expect(await figure("Disconnected nodes")).toBe(0);
  expect(await figure("Changed by others")).toBe(0);
  const button = page.getByRole("button", { name: `Disable on ${NODES} nodes` });
  expect((await button.boundingBox())?.height).toBeGreaterThanOrEqual(50);
  await shot("disable");
  await page.setViewportSize({ width: 390, height: 844 });
  await button.click();
  await page.getByText(new RegExp(`^Restored on all ${NODES} nodes: \\d+ settings\\.`)).waitFor();
  await shot("disabled");
  const overview = await (await page.request.get(`${stack.url}/api/v1/policies/${policy}/overview`)).json();
  expect(overview.nodes).toEqual([]);
});
