// Who changed an interrupt, the undo of that change from the Changes page, and its files for other tools.
import { readFile } from "node:fs/promises";
import { expect, test } from "vitest";
import { admin, apply, NODE, openIrq, page, setUpStack, stack, violations } from "./stack";

const IRQ = 25;

setUpStack();

async function node() {
  const nodes = await (await page.request.get(`${stack.url}/api/v1/nodes`)).json();
  const { id } = nodes.find(({ name }: { name: string }) => name === NODE);
  return (await page.request.get(`${stack.url}/api/v1/nodes/${id}`)).json();
}

async function affinity(): Promise<string> {
  const irqs: { irq: number; requested: string }[] = (await node()).inventory.irqs;
  return irqs.find(({ irq }) => irq === IRQ)?.requested ?? "none";
}

test("a change is found by its interrupt, undone from its row, and both are on record", async () => {
  const before = await affinity();
  const target = before === "5" ? "6" : "5";
  await openIrq(page, NODE, IRQ);
  await apply(page, IRQ, target, "600");
  await page.getByRole("button", { name: "Confirm" }).click();
  await page.getByRole("status").getByText("Confirmed.").first().waitFor();
  await expect.poll(affinity).toBe(target);

  await page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name: "Changes" }).click();
  await page.getByLabel("Search", { exact: true }).fill(`IRQ ${IRQ}`);
  await page.waitForURL(/q=IRQ/);
  const rows = page.locator("[data-change-row]").filter({ hasText: `IRQ ${IRQ}` });
  await expect.poll(() => rows.count()).toBe(1);
  await expect.poll(() => rows.first().innerText()).toMatch(new RegExp(`${admin.username}\\s+confirmed`));
  await rows.getByRole("button", { name: /details of/ }).click();
  await page.getByRole("region", { name: "Before and after" }).getByText("observed, not proof").waitFor();
  expect(await violations(page)).toEqual([]);

  await rows.getByRole("link", { name: `Undo IRQ ${IRQ} on ${NODE}` }).click();
  const panel = page.getByRole("complementary", { name: "Undo" });
  await panel.getByRole("region", { name: "Preview" }).getByRole("cell", { name: before, exact: true }).waitFor();
  expect(await affinity()).toBe(target); // a preview writes nothing
  expect(await violations(page)).toEqual([]);
  await panel.getByRole("button", { name: "Undo, then confirm" }).click();
  await expect.poll(affinity).toBe(before);
  await page.getByRole("button", { name: "Confirm", exact: true }).click();
  await rows.nth(1).waitFor();
  await expect.poll(() => rows.nth(1).innerText()).toMatch(new RegExp(`undone\\s+.*undone by ${admin.username}`));
});

test("a link to an undo opens its preview, and another earlier value can be chosen", async () => {
  const log = await (await page.request.get(`${stack.url}/api/v1/changes/log?text=IRQ%20${IRQ}`)).json();
  await page.goto(`${stack.url}/changes?undo=${log.entries[0].change.id}`);
  const panel = page.getByRole("complementary", { name: "Undo" });
  await panel.getByRole("region", { name: "Preview" }).waitFor();
  await page.keyboard.press("Escape");
  await panel.waitFor({ state: "detached" });
  const found = await affinity();
  await page.goto(`${stack.url}/changes?undo=${log.entries[0].change.id}`);
  await panel.getByRole("button", { name: "Undo and confirm now" }).click();
  await panel.getByText("Applied and confirmed.").waitFor();
  expect((await affinity()) === found).toBe(false);
  await page.getByRole("button", { name: "Restore…" }).click();
  const restore = page.getByRole("complementary", { name: "Restore" });
  await restore.getByLabel("Every change on a node").fill(NODE);
  await restore.getByRole("button", { name: "Restore and confirm now" }).click();
  await restore.getByText("Applied and confirmed.").waitFor();
  expect(await affinity()).toBe(found);
  const rows = page.locator("[data-change-row]").filter({ hasText: `IRQ ${IRQ}` });
  await expect.poll(() => rows.nth(1).innerText()).toMatch(new RegExp(`undone\\s+.*undone by ${admin.username}`));
});

test("a confirmed change is handed over, with what no file can keep in its comment", async () => {
  const { changes } = await (await page.request.get(`${stack.url}/api/v1/changes?limit=1`)).json();
  await page.goto(`${stack.url}/changes?change=${changes[0].id}`);
  await page.getByRole("button", { name: "Hand over" }).click();
  const saving = page.waitForEvent("download");
  await page.getByRole("menuitem", { name: "Ansible tasks" }).click();
  const saved = await saving;
  expect(saved.suggestedFilename()).toBe(`coresteer-${changes[0].id.slice(0, 8)}.txt`);
  const text = await readFile(await saved.path(), "utf8");
  expect(text).toContain(`# Change ${changes[0].id} of ${NODE}`);
  expect(text).toContain(`#   irq/${IRQ}/affinity = `);
});
