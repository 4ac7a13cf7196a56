import { readFile } from "node:fs/promises";
import { expect, test } from "vitest";
import { NODE, openDetails, page, setUpStack, stack, violations } from "./stack";

setUpStack();

/** The file that a menu item of an export saves. */
async function exported(chart: RegExp, format: string): Promise<Buffer> {
  await page.getByRole("button", { name: chart }).click();
  const download = page.waitForEvent("download");
  await page.getByRole("menuitem", { name: format }).click();
  const file = await download;
  expect(file.suggestedFilename()).toMatch(new RegExp(`\\.${format.toLowerCase()}$`));
  return readFile(await file.path());
}

test("a click on a small chart opens it large with a line per interrupt, whose name selects it", async () => {
  await page.getByRole("button", { name: "Interrupts", exact: true }).click();
  await page.waitForURL(/chart=interrupts/);
  const large = page.getByRole("region", { name: "Interrupts, large" });
  const line = large.getByRole("button", { name: /^IRQ \d+ / }).first();
  const irq = (await line.textContent())?.match(/^IRQ (\d+)/)?.[1];
  await line.click();
  await page.getByRole("complementary", { name: `IRQ ${irq}`, exact: true }).waitFor();
  expect(await violations(page)).toEqual([]);
  await large.getByRole("button", { name: "Close Interrupts" }).click();
  await large.waitFor({ state: "detached" });
  await page.getByRole("complementary").getByRole("button", { name: "chart", exact: true }).click();
  await large.waitFor();
});

test("a chart is exported as CSV with times and units, as SVG and as PNG", async () => {
  const lines = (await exported(/^Export .* Interrupts$/, "CSV")).toString().split("\r\n");
  expect(lines[0]).toMatch(/^time \(UTC\),IRQ \d+ .* \(1\/s\),/);
  expect(lines[1]).toMatch(/^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z,[\d.]+/);
  const svg = (await exported(/^Export .* Interrupts$/, "SVG")).toString();
  expect(svg).toContain("recharts-line-curve");
  expect(svg.includes("var(--")).toBe(false);
  const png = await exported(/^Export .* Interrupts$/, "PNG");
  expect(png.subarray(1, 4).toString()).toBe("PNG");
});

test("heatmap, matrix and trade-off are exported, too", async () => {
  const cpus = (await exported(/^Export .* CPUs busy$/, "CSV")).toString();
  expect(cpus).toMatch(/^time \(UTC\),CPU 0 busy \(%\),CPU 1 busy \(%\),/);
  expect((await exported(/^Export .* CPUs busy$/, "SVG")).toString()).toContain('<image x="');
  await openDetails(page, "Interrupts");
  expect((await exported(/^Export .* interrupts by CPU$/, "CSV")).toString()).toMatch(/^IRQ,name,NIC,CPU 0 \(1\/s\),/);
  await openDetails(page, "Coalescing");
  const surface = (await exported(/^Export .* coalescing$/, "CSV")).toString();
  expect(surface).toMatch(/^rx-usecs \(µs\),rx-frames,interrupts \(1\/s\),/);
});

test("received bytes are stacked by distance, for protocol work and for polling", async () => {
  await page.getByRole("button", { name: "Received by distance", exact: true }).click();
  await page.waitForURL(/chart=distance/);
  const large = page.getByRole("region", { name: "Received by distance, large" });
  await large.locator(".recharts-area-area").first().waitFor({ state: "attached" }); // an area of 0 is hidden
  await expect.poll(() => large.getByRole("listitem").allInnerTexts()).toHaveLength(6);
  await large
    .getByRole("listitem")
    .filter({ hasText: "another NUMA node" })
    .getByText(/bit\/s$/)
    .waitFor();
  expect(await violations(page)).toEqual([]);
  await large.getByRole("button", { name: "polling" }).focus();
  await page.keyboard.press("Enter");
  await page.waitForURL(/chart=polling/);
  await expect.poll(() => large.getByRole("button", { name: "polling" }).getAttribute("aria-pressed")).toBe("true");
  await large.locator(".recharts-area-area").first().waitFor({ state: "attached" });
});

test("the fleet's table has wrong-node bytes of each node, and the figures name the worst node", async () => {
  await page.goto(`${stack.url}/fleet?view=table&sort=-wrong-node&columns=wrong-node`);
  const figures = page.getByRole("region", { name: "Figures of the shown nodes" });
  await figures.getByText("Wrong-node bytes").waitFor();
  const row = page.getByRole("row").filter({ hasText: NODE });
  await row.getByText(/^[\d.]+\s%$/).waitFor();
  expect(await violations(page)).toEqual([]);
});
