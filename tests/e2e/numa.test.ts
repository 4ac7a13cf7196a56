import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import {
  launchBrowser,
  loaded,
  openDetails,
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

const card = () => page.getByRole("region", { name: "NUMA", exact: true });
const processes = () => card().getByRole("region", { name: "Processes by NUMA node" });
const panel = () => page.getByRole("complementary");
const apply = () => panel().getByRole("button", { name: /^Apply for/ });

beforeAll(async () => {
  stack = await startStack();
  browser = await launchBrowser();
  startSimulation(stack, ["--nodes", "1", "--cpus", "32", "--irqs", "60"]);
  page = await browser.newPage({ viewport: { width: 1400, height: 1000 } });
  await setUp(page, stack);
  await openNode(page, "sim32-0001");
  await openDetails(page, "NUMA");
  await processes().getByRole("row").nth(1).waitFor();
});

afterAll(async () => {
  await browser?.close();
  await stack?.stop();
});

/** The memory of the process in the panel by node, as its bar says it. */
const memory = () =>
  panel()
    .getByRole("img", { name: / % on node / })
    .getAttribute("aria-label");

test("the section shows every NUMA node, their distances, and sorts and filters processes", async () => {
  const nodes = card().getByRole("region", { name: "NUMA nodes" });
  await nodes.getByRole("row").filter({ hasText: "0-7,16-23" }).waitFor();
  await nodes.getByRole("row").filter({ hasText: "8-15,24-31" }).waitFor();
  const distances = card().getByRole("table", { name: /^Distance between nodes/ });
  await expect.poll(() => distances.getByRole("cell", { name: "21", exact: true }).count()).toBe(2);
  const traffic = card().getByRole("table", { name: /^Traffic between nodes \((CPUs|.iB\/s)\)/ });
  await expect.poll(() => traffic.getByRole("cell", { name: /^\d+(\.\d)?$/ }).count()).toBe(4);
  await processes().getByRole("button", { name: "process" }).click();
  await processes().getByRole("columnheader", { name: "process" }).and(page.locator("[aria-sort=ascending]")).waitFor();
  await page.waitForURL(/tasks=name/);
  await card().getByRole("textbox", { name: "Filter processes" }).fill("postgres");
  await processes().getByRole("row").nth(2).waitFor({ state: "detached" });
  await expect.poll(() => processes().getByRole("row").nth(1).textContent()).toContain("postgres");
  await card().getByRole("textbox", { name: "Filter processes" }).fill("");
  await processes().getByRole("row").nth(2).waitFor(); // the filter takes effect when typing pauses
  await processes().getByRole("button", { name: "process" }).click();
  await processes().getByRole("button", { name: "process" }).click();
});

test("a process and its memory are moved, confirmed and moved back", async () => {
  await processes().getByRole("row").nth(1).getByRole("button").press("Enter");
  await page.waitForURL(/sel=task%3A\d+%3A\d+/);
  await panel().getByText("CPUs chosen by the kernel's scheduler").waitFor();
  const before = await memory();
  const move = panel().getByRole("button", {
    name: /^Preview: Run on node \d \(CPUs [\d,-]+\) and move .*iB \(about /,
  });
  const node = (await move.first().getAttribute("aria-label"))?.match(/node (\d)/)?.[1];
  await move.first().click();
  const preview = panel().getByRole("region", { name: "Preview", exact: true });
  await preview.getByRole("cell", { name: /^task \d+ memory nodes$/ }).waitFor();
  await preview.getByText(/which page was where is not restored/).waitFor();
  await preview.getByText(/ → 0% of its .*; predicted [\d.]+ times as fast/).waitFor();
  await apply().click();
  await page.getByRole("button", { name: "Confirm" }).click();
  await page.getByRole("status").getByText("Confirmed.").first().waitFor();
  await panel().getByRole("button", { name: "Back to the options" }).click();
  await expect.poll(memory).toBe(`100 % on node ${node}; runs on node ${node}`);
  await panel().getByText("CPUs set by Coresteer (ada), confirmed").waitFor();

  await panel().getByRole("button", { name: "Undo the last change" }).click();
  await preview.getByRole("cell", { name: /^task \d+ memory nodes$/ }).waitFor();
  await apply().click();
  await page.getByRole("button", { name: "Confirm" }).click();
  await expect.poll(memory).toBe(before);
  await panel().getByText("CPUs chosen by the kernel's scheduler").waitFor();
});

test("a link to a process without its start time shows the process that has the PID now", async () => {
  const selected = new URL(page.url()).searchParams.get("sel") ?? "";
  const link = new URL(page.url());
  link.searchParams.set("sel", selected.split(":").slice(0, 2).join(":"));
  await page.goto(link.href);
  await page.waitForURL((url) => url.searchParams.get("sel") === selected);
  await panel().getByText("CPUs chosen by the kernel's scheduler").waitFor();
});

test("a move that is not confirmed is rolled back with its memory", async () => {
  const before = await memory();
  await panel()
    .getByRole("button", { name: /^Preview: .* and move / })
    .first()
    .click();
  await apply().click();
  await expect.poll(async () => (await memory()) === before).toBe(false);
  await page.getByRole("button", { name: "Undo" }).click();
  await page.getByText("Rolled back by a user.").waitFor();
  await expect.poll(memory).toBe(before);
});

test.each(["dark", "light"] as const)("the section and its panel have no axe violations, %s", async (theme) => {
  await page.emulateMedia({ colorScheme: theme });
  await page.reload();
  await panel()
    .getByRole("button", { name: /^Preview: / })
    .first()
    .waitFor();
  await loaded(page);
  expect(await violations(page)).toEqual([]);
});

/** The summary of the closed group that has a field. */
function advancedOf(label: string) {
  return page
    .locator("details")
    .filter({ has: page.getByLabel(label) })
    .last()
    .locator("summary");
}

test("a policy for NUMA nodes takes pins and weights", async () => {
  await page.goto(`${stack.url}/policies/new?kind=numa`);
  await page.getByRole("textbox", { name: "Name", exact: true }).fill("near");
  await page.getByRole("textbox", { name: "Static pins" }).fill("postgres*=1 Web?Content=0-1");
  await advancedOf("Weights").click();
  await page.getByRole("textbox", { name: "Weights" }).fill("nginx=11");
  await page.getByText("“nginx=11”: A number from 0.1 to 10.").waitFor();
  await page.getByRole("textbox", { name: "Weights" }).fill("nginx=2.5");
  await page.getByRole("button", { name: "Create policy" }).click();
  await page.waitForURL(/\/policies\/\d+/);
  await page.getByRole("link", { name: "Edit" }).click();
  await page.getByRole("button", { name: "Save as version 2" }).waitFor();
  const pins = page.getByRole("textbox", { name: "Static pins" });
  await expect.poll(() => pins.inputValue()).toBe("postgres*=1 Web?Content=0-1");
  await advancedOf("Weights").click();
  await expect.poll(() => page.getByRole("textbox", { name: "Weights" }).inputValue()).toBe("nginx=2.5");
});

test("an enforced policy is disabled and leaves pages where they are", async () => {
  const state = page.getByRole("region", { name: "State" });
  const option = page.getByRole("dialog").getByRole("checkbox", { name: "Leave pages where they are" });
  await page.getByRole("button", { name: "enforce", exact: true }).click();
  await page.getByRole("button", { name: "Save as version 2" }).click();
  await page.getByText("v2 of 2").waitFor();
  await state.getByRole("button", { name: "Enable" }).click();
  await expect.poll(() => option.count()).toBe(0);
  await page.getByRole("button", { name: /^Enable on/ }).click();
  await state.getByRole("button", { name: "Disable" }).click();
  await option.check();
  await page.getByText("Memory that the policy has moved stays on its NUMA node; affinities are restored.").waitFor();
  await page.getByRole("button", { name: /^Disable on/ }).click();
  await state.getByRole("button", { name: "Enable" }).waitFor();
  await page.goto(`${stack.url}/audit`);
  const entry = page.getByRole("row").filter({ hasText: "disabled" });
  await entry.getByRole("button").first().click();
  await page
    .getByRole("row")
    .filter({ hasText: "policy.disable" })
    .getByText(/leave_pages/)
    .waitFor();
});

test("a node with a single NUMA node says so", async () => {
  await openNode(page, "here");
  await openDetails(page, "NUMA");
  await card().getByText("This node has a single NUMA node.").waitFor();
});
