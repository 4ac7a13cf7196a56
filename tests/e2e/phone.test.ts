// On call with a phone: a pending change is undone from the bar, a policy is disabled from its page's sheet.
import { join } from "node:path";
import type { Locator } from "playwright-core";
import { beforeAll, expect, test } from "vitest";
import { apply, NODE, openIrq, page, setUpStack, stack, violations } from "./stack";

const IRQ = 25;
const PHONE = { width: 390, height: 844 };
const FINGER = 40;
const shots = process.env.SHOTS; // absolute path of a folder

setUpStack();

beforeAll(() => page.setViewportSize(PHONE));

async function shot(name: string): Promise<void> {
  if (shots !== undefined) await page.screenshot({ path: join(shots, `${name}.png`) });
}

async function box(of: Locator) {
  const found = await of.boundingBox();
  if (found === null) throw new Error("It is not visible.");
  return { ...found, right: found.x + found.width, bottom: found.y + found.height };
}

/** Whether a finger can press a button without scrolling. */
async function expectInReach(button: Locator): Promise<void> {
  const { x, y, right, bottom, height } = await box(button);
  expect(height).toBeGreaterThanOrEqual(FINGER);
  expect([x >= 0, y >= 0, right <= PHONE.width, bottom <= PHONE.height]).toEqual([true, true, true, true]);
}

async function affinity(): Promise<string> {
  const nodes: { id: number; name: string }[] = await (await page.request.get(`${stack.url}/api/v1/nodes`)).json();
  const id = nodes.find(({ name }) => name === NODE)?.id;
  const { inventory } = await (await page.request.get(`${stack.url}/api/v1/nodes/${id}`)).json();
  return inventory.irqs.find(({ irq }: { irq: number }) => irq === IRQ).requested;
}

test("a pending change is undone from the bar above the tab bar, on any page", async () => {
  const before = await affinity();
  await openIrq(page, NODE, IRQ);
  const target = before === "5" ? "6" : "5";
  await apply(page, IRQ, target, "600");
  await expect.poll(affinity).toBe(target);
  await page.goto(`${stack.url}/policies`);
  const bar = page.locator("[data-change]");
  await bar.getByRole("link", { name: `IRQ ${IRQ}` }).waitFor();
  const tabs = page.getByRole("navigation", { name: "Pages" });
  expect((await box(bar)).bottom).toBeLessThanOrEqual((await box(tabs)).y);
  const undo = bar.getByRole("button", { name: "Undo" });
  await expectInReach(undo);
  expect(await violations(page)).toEqual([]);
  await shot("phone-pending");
  await undo.click();
  await page.getByRole("status").getByText("Rolled back by a user.").waitFor();
  await expect.poll(affinity).toBe(before);
  await shot("phone-undone");
});

test("a policy is disabled from the sheet of its page", async () => {
  const id = await page.evaluate(async () => {
    const { csrf_token } = await (await fetch("/api/v1/auth/me")).json();
    const headers = { "Content-Type": "application/json", "X-CSRF-Token": csrf_token };
    const body = JSON.stringify({
      ...{ name: "spread", mode: "enforce", selector: { hostnames: ["sim8-*"] }, proof: { holdout_percent: 0 } },
      spec: { type: "irq-spread", act_percent: 5, gap_points: 1 },
    });
    const { id } = await (await fetch("/api/v1/policies", { method: "POST", headers, body })).json();
    await fetch(`/api/v1/policies/${id}/enable`, { method: "POST", headers });
    return id;
  });
  await page.goto(`${stack.url}/policies/${id}`);
  const disable = page.getByRole("region", { name: "State" }).getByRole("button", { name: "Disable" });
  await disable.click();
  const sheet = page.getByRole("dialog");
  const confirm = sheet.getByRole("button", { name: "Disable on 1 node" });
  await expectInReach(confirm);
  expect(Math.round((await box(sheet)).bottom)).toBe(PHONE.height);
  expect(await violations(page)).toEqual([]);
  await shot("phone-disable");
  await confirm.click();
  await page.getByText(/^Restored on/).waitFor();
  await shot("phone-disabled");
});
