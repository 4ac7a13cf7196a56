import { expect, test } from "vitest";
import { onStage, page, violations } from "./stack";

onStage();

const card = () => page.getByRole("region", { name: "Interrupt coalescing" });
const picture = () => card().getByRole("application", { name: "Trade-off of ens5" });
const panel = () => page.getByRole("complementary", { name: "ens5" });
const apply = () => panel().getByRole("button", { name: /^Apply for/ });

/** The row of the table for a value of rx-usecs, once it is the one that stands. */
const standsAt = (usecs: string) => card().getByRole("row", { name: new RegExp(`^${usecs} .* now$`) });

test("a point of the trade-off is picked, looked at, applied, stands, and is undone", async () => {
  await picture().waitFor();
  await card()
    .getByText(/^Mean of the last [5-9] s/) // a shorter time predicts nothing
    .waitFor();
  const box = await picture().boundingBox();
  await picture().click({ position: { x: (box?.width ?? 0) * 0.8, y: 80 } });
  await page.waitForURL(/point=\d+/);
  const picked = new URL(page.url()).searchParams.get("point") ?? "";
  const usecs = panel().getByRole("textbox", { name: /^rx-usecs/ });
  expect(await usecs.inputValue()).toBe(picked);
  const preview = panel().getByRole("region", { name: "Preview" });
  await preview.getByRole("cell", { name: "ens5 rx-usecs" }).waitFor();
  await preview.getByText(/interrupts\/s/).waitFor();
  await card().getByRole("button", { name: "view as table" }).click();
  await apply().click();
  await standsAt(picked).waitFor();
  await expect.poll(() => usecs.inputValue()).toBe(picked); // the table may be there before it
  await page.getByRole("button", { name: "Roll back now" }).click();
  await standsAt("20").waitFor();
});

test("what a driver makes of a value stands beside its field", async () => {
  await panel()
    .getByRole("checkbox", { name: /adaptive-rx/ })
    .check();
  await apply().click();
  await panel().getByRole("list", { name: "What the driver made of adaptive-rx" }).getByText("ignored on").waitFor();
});

test("the trade-off is walked by arrow keys, which say what is there, and Enter picks", async () => {
  await page.goto(`${page.url().split("?")[0]}?sel=nic%3Aens5`);
  await picture().focus();
  await picture().press("ArrowRight");
  await card()
    .locator("[aria-live]")
    .getByText(/^rx-usecs \d+: [\d.]+ k?\/s, /)
    .waitFor({ state: "attached" });
  await picture().press("Enter");
  await page.waitForURL(/point=\d+/);
});

test.each(["dark", "light"] as const)(
  "the trade-off and its panel are free of what axe objects to, %s",
  async (theme) => {
    await page.emulateMedia({ colorScheme: theme });
    for (const tab of ["", "&tab=coalescing"]) {
      await page.goto(`${page.url().split("?")[0]}?sel=nic%3Aens5&point=54&bound=100${tab}`);
      await panel().getByRole("region", { name: "Preview" }).getByRole("cell", { name: "ens5 rx-usecs" }).waitFor();
      await (tab === "" ? picture() : card().getByRole("table")).waitFor();
      await page.locator("[aria-busy=true]").waitFor({ state: "detached" });
      expect(await violations(page)).toEqual([]);
    }
  },
);
