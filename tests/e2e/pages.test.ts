import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import {
  type Child,
  launchBrowser,
  newPolicy,
  openNode,
  type Stack,
  setUp,
  startSimulation,
  startStack,
  violations,
} from "./stack";

let stack: Stack;
let simulations: Child[] = [];
let browser: Browser;
let page: Page;
let policy: string;
const consoleErrors: string[] = [];

beforeAll(async () => {
  stack = await startStack();
  browser = await launchBrowser();
  page = await browser.newPage({ viewport: { width: 1400, height: 1000 } });
  page.on("pageerror", (error) => consoleErrors.push(error.message));
  page.on("console", (message) => message.type() === "error" && consoleErrors.push(message.text()));
  await setUp(page, stack);
  const large = startSimulation(stack, ["--nodes", "2", "--cpus", "256", "--irqs", "600"]);
  simulations = [large];
  await page.getByText("3 nodes", { exact: false }).first().waitFor();
  policy = await newPolicy(page, stack, "Spread interrupts", "spread");
  await page.getByRole("button", { name: "Enable" }).click();
  await page.getByRole("region", { name: "State" }).getByText("in force", { exact: true }).waitFor();
});

afterAll(async () => {
  await Promise.all(simulations.map((simulation) => simulation.stop()));
  await browser?.close();
  await stack?.stop();
});

/** A node's page with its heatmap filled. */
async function open(name: string): Promise<void> {
  await openNode(page, name);
  await page.getByRole("application", { name: /^Heatmap/ }).waitFor();
  await page.locator("[aria-busy=true]").waitFor({ state: "detached" }); // charts are dimmed while history loads
}

async function openPreview(url: string): Promise<void> {
  await page.goto(url);
  await page.getByRole("region", { name: "Preview" }).getByRole("article").first().waitFor();
}

async function openTab(tab: string, name: string): Promise<void> {
  await page.goto(`${policy}?tab=${tab}`);
  await page.getByRole("button", { name, pressed: true }).waitFor();
}

const screens: [string, () => Promise<unknown>][] = [
  ["the fleet", () => page.goto(`${stack.url}/fleet`).then(() => page.getByText("Hot spots").waitFor())],
  [
    "the fleet as a table",
    () => page.goto(`${stack.url}/fleet?view=table`).then(() => page.getByRole("table").first().waitFor()),
  ],
  ["a node of 2 CPUs", () => open("here")],
  [
    "a node of 256 CPUs with what a policy recommends",
    () => open("sim256-0001").then(() => page.getByRole("article", { name: "spread recommends" }).waitFor()),
  ],
  [
    "the policies",
    () =>
      page.goto(`${stack.url}/policies`).then(() => page.getByRole("link", { name: "spread", exact: true }).waitFor()),
  ],
  ["a new policy with its preview", () => openPreview(`${stack.url}/policies/new?kind=network-process`)],
  ["a policy with its preview", () => openPreview(policy)],
  ["a policy's proof", () => openTab("proof", "Proof")],
  ["a policy's versions", () => openTab("versions", "Versions")],
  ["a policy's rollout", () => openTab("rollout", "Rollout")],
  ["a policy's backtest", () => openTab("backtest", "Backtest")],
  ["the audit log", () => page.goto(`${stack.url}/audit`).then(() => page.getByRole("table").waitFor())],
  ["the settings", () => page.goto(`${stack.url}/settings`).then(() => page.getByRole("heading").first().waitFor())],
];

test.each(screens.flatMap(([name, show]) => (["dark", "light"] as const).map((theme) => ({ name, theme, show }))))(
  "$name has no axe violations, $theme",
  async ({ theme, show }) => {
    await page.emulateMedia({ colorScheme: theme });
    await show();
    expect(await violations(page)).toEqual([]);
  },
);

test("arrow keys move through the heatmap with announcements, and Enter selects into the URL", async () => {
  await page.goto(`${stack.url}/fleet`);
  await open("here");
  const heatmap = page.getByRole("application", { name: /^Heatmap/ });
  await heatmap.focus();
  await heatmap.press("End");
  await page.getByText(/^CPU \d+, \d\d:\d\d:\d\d: (busy [\d.]+ %|no data)$/).waitFor({ state: "attached" });
  await heatmap.press("Enter");
  await page.waitForURL(/sel=cpu%3A\d+/);
  await page.getByRole("heading", { name: /^CPU \d+/ }).waitFor();
  await page.keyboard.press("Escape");
  await page.waitForURL((url) => !url.searchParams.has("sel"));
});

test("a shared URL shows the same selection, range and table", async () => {
  await open("sim256-0002");
  const node = page.url().match(/nodes\/(\d+)/)?.[1];
  const to = Date.now();
  await page.goto(`${stack.url}/nodes/${node}?from=${to - 60_000}&to=${to}&sel=cpu%3A200&tab=cores`);
  await page.getByRole("heading", { name: "CPU 200" }).waitFor();
  expect(await page.getByRole("row").count()).toBeGreaterThan(256);
});

test("simulated nodes are labelled", async () => {
  await open("sim256-0001");
  await page.getByText("simulated", { exact: true }).first().waitFor();
  await page.goto(`${stack.url}/fleet?view=table`);
  await expect.poll(() => page.getByText("simulated", { exact: true }).count()).toBeGreaterThanOrEqual(2);
});

test("a fleet of a thousand nodes is found, filtered and opened", async () => {
  simulations.push(startSimulation(stack, ["--nodes", "1000", "--cpus", "8", "--irqs", "16"]));
  await page.goto(`${stack.url}/fleet?q=sim8-0999`);
  await page.getByText("1,003 nodes", { exact: false }).first().waitFor({ timeout: 60_000 });
  await page.goto(`${stack.url}/fleet?q=sim8-0999&view=table`);
  await page.getByRole("link", { name: "sim8-0999" }).click();
  await page.waitForURL(/\/nodes\/\d+/);
  await page.getByRole("application", { name: /^Heatmap/ }).waitFor();
});

test("no page logged an error to the browser's console", () => {
  expect(consoleErrors).toEqual([]);
});

// last, because the browser logs every refused request as an error
test("what the backend refuses of a form is shown at its field", async () => {
  await page.goto(`${stack.url}/settings/users`);
  const form = page.locator("form").filter({ hasText: "Password, at least" });
  await form.getByLabel("Name").fill("careless");
  await form.locator('input[type="password"]').fill("password123");
  await form.getByRole("button", { name: "Add", exact: true }).click();
  await form.getByText("This password is among the first that are guessed. Use several unrelated words.").waitFor();
});
