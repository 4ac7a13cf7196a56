// The page of the API: its operations can be tried out with the session, under the backend's own security policy.
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Machine, someMachine } from "./machine";
import { collectErrors, launchBrowser, type Stack, setUp, startStack } from "./stack";

let machine: Machine;
let stack: Stack;
let browser: Browser;
let page: Page;
const errors: string[] = [];

beforeAll(async () => {
  machine = await someMachine();
  stack = await startStack({ root: machine.root });
  browser = await launchBrowser();
  page = await browser.newPage({ viewport: { width: 1440, height: 900 } });
  collectErrors(page, (error) => errors.push(error));
  await page.goto(stack.setUpLink);
  await setUp(page, stack);
});

afterAll(async () => {
  await browser?.close();
  await stack?.stop();
  await machine?.stop();
});

/** Sends an operation with its default parameters; the status of its answer. */
async function tried(tag: string, operation: string): Promise<() => Promise<string | null>> {
  await page.locator(`#operations-tag-${tag} button.expand-operation`).click();
  const block = page.locator(`#operations-${tag}-${operation}`);
  await block.locator("button.opblock-summary-control").click();
  await block.getByRole("button", { name: "Execute" }).click();
  return () => block.locator(".live-responses-table .response-col_status").last().textContent();
}

test("the settings lead to the API's operations, of which one reads and one changes something", async () => {
  await page.goto(`${stack.url}/settings/tokens`);
  await page.getByRole("link", { name: "All operations of the API" }).click();
  await expect.poll(await tried("auth", "me")).toContain("200");
  await expect.poll(await tried("proof", "pause_proof")).toContain("200");
  expect(errors).toEqual([]);
});
