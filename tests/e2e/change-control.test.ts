// Change control: an administrator sets when policies may write, and what needs the approval of a second operator.
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { launchBrowser, type Stack, setUp, startSimulation, startStack, violations } from "./stack";

const PASSWORD = "correct horse battery";

let stack: Stack;
let browser: Browser;
let page: Page;

/** Calls the API as the user of a page; returns the answer's JSON. */
async function call(from: Page, method: string, path: string, data?: object) {
  const me = await (await from.request.get(`${stack.url}/api/v1/auth/me`)).json();
  const headers = { "X-CSRF-Token": me.csrf_token };
  const answer = await from.request.fetch(`${stack.url}${path}`, { method, headers, ...(data && { data }) });
  if (!answer.ok()) throw new Error(`${method} ${path}: ${answer.status()} ${await answer.text()}`);
  return answer.json();
}

beforeAll(async () => {
  stack = await startStack();
  browser = await launchBrowser();
  startSimulation(stack, ["--nodes", "2", "--cpus", "2", "--irqs", "20"]);
  page = await browser.newPage({ viewport: { width: 1440, height: 900 } });
  await setUp(page, stack);
});

afterAll(async () => {
  await browser?.close();
  await stack?.stop();
});

/** Deletes the only change window in the settings. */
async function deleteWindow(name: string): Promise<void> {
  await page.getByRole("button", { name: `Delete ${name}` }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Delete", exact: true }).click();
  await expect.poll(() => page.getByText("No change windows").count()).toBe(1);
}

test("a change window is added with the keyboard, and deleted", async () => {
  await page.goto(`${stack.url}/settings/change-control`);
  await page.getByLabel("Name").fill("databases at night");
  await page.getByLabel("Of nodes with labels").fill("role=db*");
  await page.getByLabel("Time zone").fill("Europe/Berlin");
  await page.getByLabel("Fri").focus();
  await page.keyboard.press("Space");
  await page.getByLabel("Name").press("Enter");
  await expect.poll(() => page.getByText("Mon–Fri 22:00–05:00 Europe/Berlin").count()).toBe(1);
  await expect.poll(() => page.getByLabel("Name").inputValue()).toBe("");
  expect(await violations(page)).toEqual([]);
  await deleteWindow("databases at night");
});

test("a node's page lists among its warnings until when its change windows are closed", async () => {
  const inThreeDays = (new Date().getUTCDay() + 2) % 7; // 0 is Monday there
  const times = { zone: "UTC", weekdays: [inThreeDays], start: "10:00", end: "11:00" };
  const made: { name: string }[] = await call(page, "GET", "/api/v1/change-windows");
  if (!made.some(({ name }) => name === "one morning"))
    await call(page, "POST", "/api/v1/change-windows", { name: "one morning", ...times });
  const reported = async (): Promise<number | undefined> => {
    const nodes: { id: number; simulated: boolean; cpus: number | null }[] = await call(page, "GET", "/api/v1/nodes");
    return nodes.find(({ simulated, cpus }) => simulated && cpus !== null)?.id;
  };
  await expect.poll(reported, { timeout: 60_000 }).toBeDefined();
  await page.goto(`${stack.url}/nodes/${await reported()}`);
  await page.getByRole("button", { name: /^[0-9]+\s+warnings?$/ }).click();
  const until = page.getByText(/^Policies write nothing here until [0-9]{4}-.*, except in an experiment$/);
  await until.waitFor();
  expect((await until.boundingBox())?.width).toBeLessThan(480);
  expect(await violations(page)).toEqual([]);
  await page.goto(`${stack.url}/settings/change-control`);
  await deleteWindow("one morning");
});

test("enabling a policy waits until a second operator approves it", async () => {
  await page.getByLabel("Above this number of nodes").fill("1");
  await page.getByLabel("Above this number of nodes").press("Enter");
  await expect.poll(() => page.getByText("What concerns more than 1 node waits").count()).toBe(1);
  await call(page, "POST", "/api/v1/users", { username: "grace", password: PASSWORD, role: "operator" });
  const body = { name: "spread", mode: "enforce", spec: { type: "irq-spread" }, selector: { hostnames: ["sim*"] } };
  const policy = await call(page, "POST", "/api/v1/policies", body);
  const count = async () => (await call(page, "GET", `/api/v1/policies/${policy.id}`)).nodes;
  await expect.poll(count, { timeout: 60_000 }).toBe(2);

  await page.goto(`${stack.url}/policies/${policy.id}`);
  await page.getByRole("button", { name: "Enable", exact: true }).click();
  await page.getByRole("button", { name: "Enable on 2 nodes" }).click();
  const waits = "Waits for the approval of another operator: 2 nodes are more than 1.";
  await expect.poll(() => page.getByText(waits).count()).toBe(1);
  await expect.poll(() => page.getByRole("button", { name: "Withdraw…" }).count()).toBe(1);
  expect(await page.getByRole("button", { name: "Approve…" }).count()).toBe(0);
  expect(await violations(page)).toEqual([]);

  const other = await (await browser.newContext({ viewport: { width: 1440, height: 900 } })).newPage();
  await other.request.post(`${stack.url}/api/v1/auth/login`, { data: { username: "grace", password: PASSWORD } });
  await other.goto(`${stack.url}/policies`);
  await other.getByRole("button", { name: "Reject…" }).click();
  await other.getByLabel("Why").fill("after the release");
  await other.keyboard.press("Enter");
  await expect.poll(() => page.getByText("grace rejected it: after the release").count()).toBe(1);

  await page.getByRole("button", { name: "Enable", exact: true }).click();
  await page.getByRole("button", { name: "Enable on 2 nodes" }).click();
  await other.getByRole("button", { name: "Approve…" }).click();
  await expect
    .poll(() => other.getByText("ada requests to enable version 1 on all nodes at once. It concerns 2 nodes.").count())
    .toBe(1);
  expect(await violations(other)).toEqual([]);
  await other.getByRole("dialog").getByRole("button", { name: "Approve", exact: true }).click();
  await expect.poll(() => page.getByRole("button", { name: "Disable", exact: true }).count()).toBe(1);
  await expect.poll(() => page.getByText(waits).count()).toBe(0);
  await expect.poll(() => other.getByRole("button", { name: "Approve…" }).count()).toBe(0);
});
