import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { generatedMachine, type Machine } from "./machine";
import { launchBrowser, newPolicy, openNode, type Stack, setUp, startStack } from "./stack";

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

test("a policy is tried on a node while it is typed, before it exists", async () => {
  await openNode(page, "here"); // the agent has told what the preview needs as soon as this page is filled
  await page.getByRole("application", { name: /^Heatmap/ }).waitFor();
  await page.goto(`${stack.url}/policies/new?kind=irq-spread`);
  await preview().getByText(/\d/).first().waitFor();
  await field("Act from a load of, %").fill("1000");
  await page.getByText("A number from 0 to 100.").waitFor();
  await page.getByText("The preview goes on when everything in the form fits.").waitFor();
  await field("Act from a load of, %").fill("40");
  await preview().getByText(/\d/).first().waitFor();
});

test("what enabling will do is said before it is done, and nodes then say why or why not", async () => {
  policy = await newPolicy(page, stack, "Spread interrupts", "calm interrupts");
  const state = page.getByRole("region", { name: "State" });
  await state.getByText("Enabling puts version 1 in force on 1 node at once").waitFor();
  await state.getByText("a person applies them").waitFor();
  await state.getByRole("button", { name: "Enable" }).click();
  await state.getByText("in force", { exact: true }).waitFor();
  await openNode(page, "here");
  const evaluation = page.getByRole("article", { name: /^calm interrupts/ });
  await evaluation.getByText(/\d/).first().waitFor();
  await evaluation.getByText("recommend", { exact: true }).waitFor();
});

test("a node shows which way each task's packets come, and says that it knows TCP only", async () => {
  await openNode(page, "here");
  const tasks = page.getByRole("region", { name: "Network tasks" }).first();
  await tasks.getByText("TCP only", { exact: true }).waitFor();
});

test("a new version says what it changes, and leaves the one in force where it is", async () => {
  await page.goto(policy);
  await field("Least gap, percentage points").fill("35");
  await page.getByText("edited from v1, not saved").waitFor();
  await page.getByText("version 1 stays in force until a rollout").waitFor();
  await field("Note").fill("a wider gap");
  await page.keyboard.press("Enter");
  await page.getByRole("button", { name: "Save as version 3" }).waitFor();
  await page.goto(`${policy}?tab=versions&version=2&diff=1`);
  const line = page.getByRole("region", { name: "Differences" }).getByRole("row", { name: /^Least gap/ });
  await line.waitFor();
  expect(await line.getByRole("cell").allTextContents()).toEqual(["Least gap, percentage points", "20", "35"]);
});

test("a version is rolled out and followed to its end", async () => {
  await page.goto(`${policy}?tab=rollout&version=2`);
  await page.getByLabel("Wait between stages").selectOption("10");
  await page.getByRole("button", { name: "Start the rollout" }).click();
  const rollout = page.getByRole("region", { name: "Rollout", exact: true });
  await rollout.getByText("under way").waitFor();
  await rollout.getByText("passed").waitFor();
  await page.getByText("v2 of 2").waitFor();
});

test("a stored time is replayed, and can be shared by its address", async () => {
  await page.goto(`${policy}?tab=replay`);
  await page.getByRole("combobox", { name: /^Node/ }).fill("here");
  await page.waitForURL(/node=\d+/);
  await page.getByRole("button", { name: "Replay" }).last().click();
  await page.waitForURL(/from=\d+&to=\d+/);
  await page
    .getByRole("region", { name: "Result of the replay" })
    .getByText(/^\d+ moves?$/)
    .waitFor();
  await page.reload();
  await page.getByRole("region", { name: "Result of the replay" }).waitFor();
});

test("disabling says what goes back, and then it is off", async () => {
  await page.goto(policy);
  const state = page.getByRole("region", { name: "State" });
  await state.getByText("Disabling ends it on 1 node; nothing is changed there.").waitFor();
  await state.getByRole("button", { name: "Disable" }).click();
  await state.getByText("off", { exact: true }).waitFor();
});
