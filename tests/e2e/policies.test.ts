import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { generatedMachine, type Machine } from "./machine";
import { launchBrowser, newPolicy, openDetails, openNode, type Stack, setUp, startStack } from "./stack";

let machine: Machine;
let stack: Stack;
let browser: Browser;
let page: Page;
let policy: string;

beforeAll(async () => {
  machine = await generatedMachine();
  stack = await startStack({ root: machine.root });
  browser = await launchBrowser();
  page = await browser.newPage({ viewport: { width: 1400, height: 1000 } });
  await setUp(page, stack);
});

afterAll(async () => {
  await browser?.close();
  await stack?.stop();
  await machine?.stop();
});

const preview = () => page.getByRole("region", { name: "Preview" }).getByRole("article", { name: "here" });
const field = (name: string) => page.getByRole("textbox", { name });

test("a new policy is previewed on a node while typing", async () => {
  await openNode(page, "here"); // this page is complete once the agent has reported what the preview needs
  await page.getByRole("application", { name: /^Heatmap/ }).waitFor();
  await page.goto(`${stack.url}/policies/new?kind=irq-spread`);
  await preview().getByText(/\d/).first().waitFor();
  await field("Load threshold, %").fill("1000");
  await page.getByText("A number from 1 to 100.").waitFor();
  await page.getByText("The preview resumes when all fields are valid.").waitFor();
  await field("Load threshold, %").fill("40");
  await preview().getByText(/\d/).first().waitFor();
});

test("the effect of enabling is shown first, and nodes then show their decisions", async () => {
  policy = await newPolicy(page, stack, "Spread interrupts", "calm interrupts");
  const state = page.getByRole("region", { name: "State" });
  await state.getByText("Enabling puts version 1 in force on 1 node at once").waitFor();
  await state.getByText("a person applies them").waitFor();
  await state.getByRole("button", { name: "Enable" }).click();
  await state.getByText("recommending", { exact: true }).waitFor();
  await openNode(page, "here");
  await openDetails(page, "Policies");
  const evaluation = page.getByRole("article", { name: /^calm interrupts/ });
  await evaluation.getByText(/\d/).first().waitFor();
  await evaluation.getByText("recommend", { exact: true }).waitFor();
});

test("a node shows the RX placement of each task, and that it covers TCP only", async () => {
  await openNode(page, "here");
  await openDetails(page, "Tasks");
  const tasks = page.getByRole("region", { name: "From task to memory" }).first();
  await tasks.getByText("TCP only", { exact: true }).waitFor();
});

test("a new version shows its differences and does not change the one in force", async () => {
  await page.goto(`${policy}?tab=edit`);
  await field("Minimum load difference, percentage points").fill("35");
  await page.getByText("edited from v1, not saved").waitFor();
  await page.getByText("version 1 stays in force until version 2 is rolled out").waitFor();
  await field("Note").fill("a wider gap");
  await page.keyboard.press("Enter");
  await page.getByRole("button", { name: "Save as version 3" }).waitFor();
  await page.goto(`${policy}?tab=versions&version=2&diff=1`);
  const line = page.getByRole("region", { name: "Differences" }).getByRole("row", { name: /^Minimum load difference/ });
  await line.waitFor();
  await expect
    .poll(() => line.getByRole("cell").allTextContents())
    .toEqual(["Minimum load difference, percentage points", "20", "35"]);
});

test("a version is rolled out to all nodes", async () => {
  await page.goto(`${policy}?tab=rollout&version=2`);
  await page.getByLabel("Wait, s").fill("10");
  await page.getByRole("button", { name: "Start the rollout" }).click();
  const rollout = page.getByRole("region", { name: "Rollout", exact: true });
  await rollout.getByText("in progress").waitFor();
  await rollout.getByText("passed").waitFor();
  await page.getByText("v2 on 1 node").first().waitFor();
});

test("a backtest over a stored range is shared by its address", async () => {
  await page.goto(`${policy}?tab=backtest`);
  await page.getByRole("combobox", { name: /^Node/ }).fill("here");
  await page.waitForURL(/node=\d+/);
  await page.getByRole("button", { name: "Run backtest" }).click();
  await page.waitForURL(/from=\d+&to=\d+/);
  await page
    .getByRole("region", { name: "Result of the backtest" })
    .getByText(/^\d+ moves?$/)
    .waitFor();
  await page.reload();
  await page.getByRole("region", { name: "Result of the backtest" }).waitFor();
});

test("the effect of disabling is shown first, and then the policy is disabled", async () => {
  await page.goto(policy);
  const state = page.getByRole("region", { name: "State" });
  await state.getByText("Disabling stops it on 1 node; no setting is changed there.").waitFor();
  await state.getByRole("button", { name: "Disable" }).click();
  await state.getByText("disabled", { exact: true }).waitFor();
});
