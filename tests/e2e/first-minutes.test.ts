import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { affinity, type Machine, someMachine } from "./machine";
import { admin, apply, launchBrowser, type Stack, setUp, startStack, violations, waitForAffinity } from "./stack";

let machine: Machine;
let stack: Stack;
let browser: Browser;
let page: Page;

beforeAll(async () => {
  machine = await someMachine();
  stack = await startStack({ root: machine.root });
  browser = await launchBrowser();
  page = await browser.newPage({ viewport: { width: 1440, height: 900 } });
});

afterAll(async () => {
  await browser?.close();
  await stack?.stop();
  await machine?.stop();
});

const steps = () => page.getByRole("region", { name: "First steps" });
const openFleet = () => page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name: "Fleet" }).click();

async function untilDone(title: string): Promise<void> {
  await steps()
    .getByRole("listitem")
    .filter({ hasText: `${title} (done)` })
    .waitFor();
}

test("an invalid set-up link says so before anything is typed", async () => {
  await page.goto(`${stack.url}/setup?token=guessed`);
  await page.getByText("coresteer set-up-link").waitFor();
  await expect.poll(() => page.getByRole("textbox").count()).toBe(0);
});

test("the sign-in page leads to the set-up page while there is no user", async () => {
  await page.goto(`${stack.url}/login`);
  await page.getByText("No administrator exists yet.").waitFor();
});

test("the password can be shown, and is repeated", async () => {
  await page.goto(stack.setUpLink);
  const password = page.getByLabel(/^Password/);
  await password.fill(admin.password);
  await page.getByRole("button", { name: "Show or hide what is typed" }).first().click();
  await expect.poll(() => password.getAttribute("type")).toBe("text");
  await page.getByLabel("Repeat the password").fill("something else");
  await page.getByLabel("Name").fill(admin.username);
  await page.getByText("The two passwords differ.").waitFor();
  expect(await violations(page)).toEqual([]);
  await setUp(page, stack);
});

test("the first steps lead to the hottest CPU of the live node", async () => {
  await untilDone("A node is live");
  expect(await violations(page)).toEqual([]);
  const link = steps().locator("a[href*='sel=cpu']");
  const cpu = (await link.getAttribute("href"))?.match(/cpu%3A(\d+)/)?.[1];
  await link.click();
  await page.getByRole("heading", { name: new RegExp(`^CPU ${cpu}\\b`) }).waitFor();
  await openFleet();
  await untilDone("Look at the hottest CPU of a node");
});

test("the first steps lead to an interrupt, and count a move that is undone", async () => {
  const link = steps().locator("a[href*='sel=irq']");
  const irq = Number((await link.getAttribute("href"))?.match(/irq%3A(\d+)/)?.[1]);
  const before = await affinity(machine, irq);
  await link.click();
  await apply(page, irq, before === "0" ? "1" : "0", "30");
  await page.getByRole("button", { name: "Undo" }).first().click();
  await waitForAffinity(() => affinity(machine, irq), before);
  await openFleet();
  await untilDone("Try a move and let it undo itself");
});

test("the first steps show the command that adds a node", async () => {
  await steps().getByRole("button", { name: "Show the command" }).click();
  await steps()
    .getByText(/^coresteer-agent enrol .*--token/)
    .waitFor();
});

test("a fleet is simulated with one click and removed after a confirmation", async () => {
  await steps().getByRole("button", { name: "Simulate 50 nodes" }).click();
  await page.getByText("51 nodes", { exact: false }).first().waitFor();
  await untilDone("Simulate a fleet");
  await page.getByText("50 nodes with generated data are part of this fleet.").waitFor();
  expect(await violations(page)).toEqual([]);
  await page.getByRole("button", { name: "Remove simulated nodes" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Remove", exact: true }).click();
  await page.getByText("1 node ·", { exact: false }).waitFor();
  await untilDone("Simulate a fleet"); // what was done stays done
});

test("the first steps can be hidden, and stay hidden", async () => {
  await steps().getByRole("button", { name: "Hide" }).click();
  await steps().waitFor({ state: "detached" });
  await page.reload();
  await page.getByText("Hot spots").waitFor();
  await expect.poll(() => steps().count()).toBe(0);
});

test.each([
  ["cpu 1", "CPU 1 here", /\/nodes\/\d+\?sel=cpu%3A1$/],
  ["pause", "Pause", /from=\d+&to=\d+/],
  ["new pol", "New policy", /\/policies\/new$/],
  ["newexp", "New experiment", /\/experiments\/new(\?node=\d+)?$/],
  ["api tok", "Settings: API tokens", /\/settings\/tokens$/],
  ["here", "here", /\/nodes\/\d+$/],
  ["fleet", "Fleet", /\/fleet$/],
])("the keyboard reaches %s: %s", async (typed, found, url) => {
  await page.keyboard.press("Control+k");
  const input = page.getByRole("combobox", { name: /^Search nodes/ });
  await input.fill(typed);
  const first = page.getByRole("listbox", { name: "Found" }).getByRole("option", { selected: true });
  await first.filter({ hasText: found }).waitFor();
  if (typed === "here") expect(await violations(page)).toEqual([]);
  await input.press("Enter"); // the page before may still load, and focus a field of its own
  await page.waitForURL(url);
});

test("a used set-up link leads to the sign-in page", async () => {
  await page.goto(stack.setUpLink);
  await page.getByRole("link", { name: "Sign in" }).waitFor();
});

test("an address without a page keeps the navigation", async () => {
  await page.goto(`${stack.url}/nothing/here`);
  await page.getByRole("heading", { name: "Page not found" }).waitFor();
  await page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name: "Policies" }).click();
  await page.waitForURL(/\/policies$/);
});
