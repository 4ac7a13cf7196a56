// What pages do with the keyboard, addresses and many nodes; how each of them looks is everywhere.test.ts.
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import {
  admin,
  collectErrors,
  launchBrowser,
  openNode,
  type Stack,
  setUp,
  startSimulation,
  startStack,
  violations,
} from "./stack";

let stack: Stack;
let browser: Browser;
let page: Page;
const consoleErrors: string[] = [];

beforeAll(async () => {
  stack = await startStack();
  browser = await launchBrowser();
  page = await browser.newPage({ viewport: { width: 1400, height: 1000 } });
  collectErrors(page, (error) => consoleErrors.push(error));
  await setUp(page, stack);
  startSimulation(stack, ["--nodes", "2", "--cpus", "256", "--irqs", "600"]);
  await page.getByText("3 nodes", { exact: false }).first().waitFor();
});

afterAll(async () => {
  await browser?.close();
  await stack?.stop();
});

/** A node's page with its heatmap filled. */
async function open(name: string): Promise<void> {
  await openNode(page, name);
  await page.getByRole("application", { name: /^Heatmap/ }).waitFor();
  await expect.poll(() => page.locator("[aria-busy=true]").count()).toBe(0); // charts are dimmed while history loads
}

test("arrow keys move through the heatmap with announcements, and Enter selects into the URL", async () => {
  await page.goto(`${stack.url}/fleet`);
  await open("here");
  const heatmap = page.getByRole("application", { name: /^Heatmap/ });
  await heatmap.focus();
  await heatmap.press("End");
  await page.getByText(/^CPU \d+, \d\d:\d\d:\d\d: (busy [\d.]+\s%|no data)$/).waitFor({ state: "attached" });
  await heatmap.press("Enter");
  await page.waitForURL(/sel=cpu%3A\d+/);
  await page.getByRole("heading", { name: /^CPU \d+/ }).waitFor();
  await page.keyboard.press("Escape");
  await page.waitForURL((url) => !url.searchParams.has("sel"));
});

test("256 CPUs fold to their L3 groups; a click opens one, and the URL keeps it", async () => {
  await open("sim256-0001");
  const heatmap = page.getByRole("application", { name: /^Heatmap/ });
  const groups = (expanded: boolean) => heatmap.getByRole("button", { name: /L3 \d+/, expanded });
  await expect.poll(() => groups(true).count()).toBe(1);
  const folded = await groups(false).count();
  expect(folded).toBeGreaterThan(8);
  expect((await heatmap.boundingBox())?.height).toBeLessThan(500);
  await groups(false).first().click();
  await page.waitForURL((url) => url.searchParams.has("open"));
  await page.reload();
  await expect.poll(() => groups(true).count()).toBe(2);
  await expect.poll(() => groups(false).count()).toBe(folded - 1);
});

test("a phone lists 256 CPUs by L3 in rows of 24 px, without scrolling sideways", async () => {
  const before = page.viewportSize() ?? { width: 1400, height: 1000 };
  await page.setViewportSize({ width: 390, height: 844 });
  await page.goto(page.url().split("?")[0] ?? "");
  const rows = page.getByRole("application", { name: /^Heatmap/ }).getByRole("button", { name: /L3 \d+/ });
  await rows.first().waitFor();
  const tops = await rows.evaluateAll((all) => all.map((row) => row.getBoundingClientRect().top).sort((a, b) => a - b));
  expect(Math.min(...tops.slice(1).map((top, index) => top - (tops[index] ?? 0)))).toBeGreaterThanOrEqual(24);
  expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(390);
  expect(await violations(page)).toEqual([]);
  await page.setViewportSize(before);
});

test("a shared URL shows the same selection, range and table", async () => {
  await open("sim256-0002");
  const node = page.url().match(/nodes\/(\d+)/)?.[1];
  const to = Date.now();
  await page.goto(`${stack.url}/nodes/${node}?from=${to - 60_000}&to=${to}&sel=cpu%3A200&tab=cores`);
  await page.getByRole("heading", { name: /^CPU 200/ }).waitFor();
  await expect.poll(() => page.getByRole("row").count()).toBeGreaterThan(256);
});

test("simulated nodes are labelled", async () => {
  await open("sim256-0001");
  await page.getByText("simulated", { exact: true }).first().waitFor();
  await page.goto(`${stack.url}/fleet?view=table`);
  await expect.poll(() => page.getByText("simulated", { exact: true }).count()).toBeGreaterThanOrEqual(2);
});

test("the user menu leads to the page where the password is changed and sessions are listed", async () => {
  await page.getByRole("button", { name: /· admin$/ }).click();
  await page.getByRole("menuitem", { name: "Password and sessions" }).click();
  await page.waitForURL(/\/account$/);
  await page.getByText("this session").waitFor();
  await page.getByLabel("Current password").first().fill(admin.password);
  await page
    .getByLabel(/^New password/)
    .first()
    .fill("entirely different words");
  await page.getByRole("button", { name: "Change" }).click();
  await page.getByText("The password is changed", { exact: false }).waitFor();
});

test("one token for many nodes says what it allows, is listed and is revoked", async () => {
  await page.goto(`${stack.url}/settings/nodes`);
  await page.getByRole("spinbutton", { name: "Nodes" }).fill("50");
  await page.getByRole("textbox", { name: "Names" }).fill("db-*");
  await page.getByRole("textbox", { name: "Labels" }).fill("role=db");
  await page.getByLabel("Nodes that exist may enrol again").selectOption({ label: "for 1 hour" });
  await page.getByText(/^Enrols up to 50 nodes named db-\*, labelled role=db\. Until .* It expires on /).waitFor();
  await page.getByRole("button", { name: "Show the command" }).click();
  await page.getByText(/^coresteer-agent enrol .*--token/).waitFor();
  const row = page.getByRole("row").filter({ hasText: "named db-*" });
  await row.getByText("50 of 50").waitFor();
  await row.getByRole("button", { name: /^Revoke enrolment token/ }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Revoke" }).click();
  await row.waitFor({ state: "detached" });
});

test("a node is readmitted with one command, and a deleted user's name is replaced in the audit log", async () => {
  await page.goto(`${stack.url}/settings/nodes`);
  await page.getByRole("button", { name: "Readmit here" }).click();
  await page.getByRole("button", { name: "Create the command" }).click();
  await page.getByText(/coresteer-agent enrol .* --name here/).waitFor();
  await page.goto(`${stack.url}/settings/users`);
  const form = page.locator("form").filter({ hasText: "Password, at least" });
  await form.getByLabel("Name").fill("leaver");
  await form.locator('input[type="password"]').fill("several unrelated words");
  await form.getByRole("button", { name: "Add", exact: true }).click();
  await page.getByRole("button", { name: "Delete leaver" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Type leaver to confirm").fill("leaver");
  await dialog.getByRole("button", { name: "Delete" }).click();
  await page.getByRole("button", { name: "Delete leaver" }).waitFor({ state: "detached" });
  await page.goto(`${stack.url}/audit`);
  await page
    .getByText(/user \(deleted user \d+\)/)
    .first()
    .waitFor();
  await expect.poll(() => page.getByText("leaver").count()).toBe(0);
});

test("a fleet of a thousand nodes is found, filtered and opened", async () => {
  startSimulation(stack, ["--nodes", "1000", "--cpus", "8", "--irqs", "16"]);
  await page.goto(`${stack.url}/fleet?q=sim8-0999`);
  await page.getByText("1,003 nodes", { exact: false }).first().waitFor();
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
