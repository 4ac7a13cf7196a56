import { expect, test } from "vitest";
import { loaded, openDetails, page, setUpStack, violations } from "./stack";

setUpStack();

const card = () => page.getByRole("region", { name: "Interrupt coalescing" });
const chart = () => card().getByRole("application", { name: "Trade-off of ens5" });
const panel = () => page.getByRole("complementary", { name: "ens5" });
const apply = () => panel().getByRole("button", { name: /^Apply for/ });

/** The table's row of an rx-usecs value while it is the current one. */
const currentRow = (usecs: string) => card().getByRole("row", { name: new RegExp(`^${usecs} .* now$`) });

test("a point of the trade-off is selected, previewed, applied and rolled back", async () => {
  await openDetails(page, "Coalescing");
  await chart().waitFor();
  await card()
    .getByText(/^Mean of the last [5-9]\ss/) // a shorter period has no prediction
    .waitFor();
  const box = await chart().boundingBox();
  await chart().click({ position: { x: (box?.width ?? 0) * 0.8, y: 80 } });
  await page.waitForURL(/point=\d+/);
  const selected = new URL(page.url()).searchParams.get("point") ?? "";
  const usecs = panel().getByRole("textbox", { name: /^rx-usecs/ });
  await expect.poll(() => usecs.inputValue()).toBe(selected);
  const preview = panel().getByRole("region", { name: "Preview" });
  await preview.getByRole("cell", { name: "ens5 rx-usecs" }).waitFor();
  await preview.getByText(/interrupts\/s/).waitFor();
  await card().getByRole("button", { name: "as table" }).click();
  await apply().click();
  await currentRow(selected).waitFor();
  await expect.poll(() => usecs.inputValue()).toBe(selected); // the table may update first
  await page.getByRole("button", { name: "Undo" }).click();
  await currentRow("20").waitFor();
});

test("the driver's response to a value is shown at its field", async () => {
  await panel()
    .getByRole("checkbox", { name: /adaptive-rx/ })
    .check();
  await apply().click();
  await panel().getByRole("list", { name: "Driver response to adaptive-rx" }).getByText("ignored on").waitFor();
});

test("arrow keys move through the trade-off with announcements, and Enter selects", async () => {
  await page.goto(`${page.url().split("?")[0]}?sel=nic%3Aens5`);
  await chart().focus();
  await chart().press("ArrowRight");
  await card()
    .locator("[aria-live]")
    .getByText(/^rx-usecs \d+: [\d.]+\sk?\/s, /)
    .waitFor({ state: "attached" });
  await chart().press("Enter");
  await page.waitForURL(/point=\d+/);
});

test.each(["dark", "light"] as const)("the trade-off and its panel have no axe violations, %s", async (theme) => {
  await page.emulateMedia({ colorScheme: theme });
  for (const table of ["", "&table=coalescing"]) {
    await page.goto(`${page.url().split("?")[0]}?sel=nic%3Aens5&point=54&bound=100${table}`);
    await panel().getByRole("region", { name: "Preview" }).getByRole("cell", { name: "ens5 rx-usecs" }).waitFor();
    await (table === "" ? chart() : card().getByRole("table")).waitFor();
    await loaded(page);
    expect(await violations(page)).toEqual([]);
  }
});
