// Alerts: an administrator changes a rule, so that it fires; an operator silences the alert; a receiver is tested.
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { launchBrowser, type Stack, setUp, startStack, violations } from "./stack";

let stack: Stack;
let browser: Browser;
let page: Page;
let hook: Server;
const told: string[] = [];

beforeAll(async () => {
  stack = await startStack();
  browser = await launchBrowser();
  page = await browser.newPage({ viewport: { width: 1440, height: 900 } });
  await setUp(page, stack);
  hook = createServer((request, answer) => {
    told.push(String(request.headers["x-coresteer-signature"]));
    answer.end();
  });
  await new Promise<void>((resolve) => hook.listen(0, "127.0.0.1", resolve));
});

afterAll(async () => {
  await browser?.close();
  await stack?.stop();
  hook?.close();
});

test("a rule that is changed fires, and its alert is silenced", async () => {
  await page.goto(`${stack.url}/alerts?tab=rules`);
  await page.getByRole("button", { name: "Change Disk almost full" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByRole("textbox").first().fill("");
  await expect.poll(() => dialog.getByText("Enter a number.").count()).toBe(1);
  expect(await dialog.getByRole("button", { name: "Save" }).isDisabled()).toBe(true);
  for (const [place, value] of ["0", "0", "0", "0"].entries()) await dialog.getByRole("textbox").nth(place).fill(value);
  await dialog.getByRole("button", { name: "Save" }).click();
  await expect.poll(() => page.getByText("fires at 0 %").count()).toBe(1);
  await page.getByRole("link", { name: "Alerts", exact: true }).last().click();
  const silence = page.getByRole("button", { name: "Silence Disk almost full of the backend" });
  await silence.waitFor({ timeout: 60_000 });
  expect(await violations(page)).toEqual([]);
  await silence.click();
  await dialog.getByLabel("Why").fill("the disk is replaced");
  await page.keyboard.press("Enter");
  await expect.poll(() => page.getByText("silenced", { exact: true }).count()).toBe(1);
  await expect.poll(() => page.getByText("the disk is replaced").count()).toBe(1);
});

test("a receiver is added, tested with its outcome, and its secret is not shown", async () => {
  await page.goto(`${stack.url}/alerts?tab=receivers`);
  await page.getByLabel("Name").fill("on call");
  await page.getByLabel("Address of Webhook").fill(`http://127.0.0.1:${(hook.address() as AddressInfo).port}/`);
  await page.getByLabel("Signing key").fill("a signing key");
  await page.getByRole("button", { name: "Add", exact: true }).click();
  await page.getByRole("button", { name: "Test on call" }).click();
  await expect.poll(() => page.getByText("127.0.0.1 accepted it (200).").count()).toBe(1);
  expect(told.at(-1)).toMatch(/^t=\d+,v1=[0-9a-f]{64}$/);
  expect((await page.content()).includes("a signing key")).toBe(false);
  expect(await violations(page)).toEqual([]);
});
