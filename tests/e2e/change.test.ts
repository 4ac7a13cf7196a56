import { spawnSync } from "node:child_process";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { affinity, generatedMachine, type Machine, someMachine } from "./machine";
import {
  apply,
  bin,
  Child,
  launchBrowser,
  openIrq,
  openNode,
  type Stack,
  setUp,
  startStack,
  waitForAffinity,
} from "./stack";

let machine: Machine;
let before: string;
let elsewhere: string; // both differ from the original
let another: string;
let stack: Stack;
let browser: Browser;
let page: Page;

beforeAll(async () => {
  machine = await someMachine();
  before = await affinity(machine, machine.movable);
  [elsewhere = "", another = ""] = ["1", "0", "0-1"].filter((cpus) => cpus !== before);
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

test("an interrupt moved from the browser is rolled back when not confirmed", async () => {
  await openIrq(page, "here", machine.movable);
  await apply(page, machine.movable, elsewhere, "30");
  expect(await affinity(machine, machine.movable)).toBe(elsewhere);
  await page.getByText(/rolls back unless confirmed/).waitFor();
  await page.goto(`${stack.url}/audit`);
  await page.getByText(/rolls back unless confirmed/).waitFor(); // every page shows the countdown
  await waitForAffinity(() => affinity(machine, machine.movable), before);
  await page.getByText("Rolled back: not confirmed within 30 s.").waitFor();
});

test("a confirmed change persists after its timeout and can be reverted later", async () => {
  await openIrq(page, "here", machine.movable);
  await apply(page, machine.movable, another, "30");
  await page.getByRole("button", { name: "Confirm" }).click();
  await page.getByRole("status").getByText("Confirmed.").first().waitFor();
  const changes = await page.request.get(`${stack.url}/api/v1/changes?limit=1`);
  const [confirmed] = (await changes.json()).changes;
  expect(confirmed.state).toBe("confirmed");
  expect(confirmed.deadline_at).toBeNull();
  expect(await affinity(machine, machine.movable)).toBe(another);

  await page.reload();
  await page.getByRole("button", { name: /^previous/ }).click();
  await page.getByRole("region", { name: "Preview" }).waitFor();
  await page.getByRole("button", { name: /^Apply for/ }).click();
  await page.getByRole("button", { name: "Confirm" }).click();
  await waitForAffinity(() => affinity(machine, machine.movable), before);
});

test("Undo restores the original at once", async () => {
  await openIrq(page, "here", machine.movable);
  await apply(page, machine.movable, elsewhere, "600");
  await page.getByRole("button", { name: "Undo" }).click();
  await page.getByText("Rolled back by a user.").waitFor();
  expect(await affinity(machine, machine.movable)).toBe(before);
});

test.each([
  ["4095", /CPU 4095 is not online on this node/],
  ["9999", /CPU 9999 is beyond the largest number/],
  ["3-1", /The range 3-1 runs backwards/],
  ["a", /“a” is not a CPU or a range of CPUs/],
  ["", /An interrupt needs at least one CPU/],
])("the CPU list “%s” is rejected with a reason and not written", async (cpus, reason) => {
  await openIrq(page, "here", machine.movable);
  await page.getByLabel("Move to CPUs").fill(cpus);
  await page.getByText(reason).first().waitFor();
  await expect.poll(() => page.getByRole("button", { name: /^Apply for/ }).isDisabled()).toBe(true);
  expect(await affinity(machine, machine.movable)).toBe(before);
});

test("a managed interrupt is locked in the page and in the API", async () => {
  const tree = machine.managed === null ? await generatedMachine() : machine;
  const { managed } = tree;
  if (managed === null) throw new Error("The generated machine has managed interrupts.");
  let captured: Child | null = null;
  if (tree !== machine) {
    const join =
      '"$0" run --backend "$1" --root "$2" --name captured --state-dir "$3" --token-file <("$4" enrolment-token)';
    const state = `${stack.env.CORESTEER_STATE_DIR}/captured`;
    const args = [bin("coresteer-agent"), stack.url, tree.root, state, bin("coresteer")];
    captured = new Child("bash", ["-c", join, ...args], stack.env);
    await captured.until(/Connected/);
  }
  await openNode(page, captured === null ? "here" : "captured");
  const node = page.url().match(/nodes\/(\d+)/)?.[1];
  await page.goto(`${stack.url}/nodes/${node}?sel=irq%3A${managed}`);
  await page.getByText("This interrupt cannot be moved.").waitFor();
  await expect.poll(() => page.getByLabel("Move to CPUs").count()).toBe(0);

  const me = await (await page.request.get(`${stack.url}/api/v1/auth/me`)).json();
  const answer = await page.request.post(`${stack.url}/api/v1/nodes/${node}/previews`, {
    headers: { "X-CSRF-Token": me.csrf_token },
    data: { desired: [{ key: `irq/${managed}/affinity`, value: "0" }] },
  });
  const { can_apply, refused } = await answer.json();
  expect(can_apply).toBe(false);
  expect(refused[0].code).toBe("managed");
  await captured?.stop();
  if (tree !== machine) await tree.stop();
});

test("afterwards coresteer-agent restore has nothing to restore", () => {
  const { stdout, status } = spawnSync(bin("coresteer-agent"), ["restore", "-o", "json"], { env: stack.env });
  expect(status).toBe(0);
  expect(JSON.parse(stdout.toString()).flat()).toEqual([]);
});
