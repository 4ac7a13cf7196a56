import { beforeAll, expect, test } from "vitest";
import { loaded, NODE, openDetails, openNode, page, setUpStack, violations } from "./stack";

setUpStack();
beforeAll(async () => {
  await openDetails(page, "Tasks");
  await page.getByRole("region", { name: "From task to memory" }).getByText("memcached").first().waitFor();
});

const classNames = () =>
  page
    .getByRole("list", { name: "Classes" })
    .getByRole("listitem")
    .evaluateAll((rows) => rows.map((row) => row.getAttribute("aria-label")));

test("a node without a service-class policy links to creating one", async () => {
  const section = page.getByRole("region", { name: "Service classes" });
  await section.getByText("No service-class policy applies to this node.").waitFor();
  await section.getByRole("link", { name: "Create one" }).click();
  await page.waitForURL(/kind=service-class/);
});

test("classes are reordered with the keyboard", async () => {
  await page.getByRole("button", { name: "bronze up" }).focus();
  expect(await classNames()).toEqual(["gold", "silver", "bronze"]);
  await page.keyboard.press("Enter");
  await page.keyboard.press("Enter");
  await expect.poll(classNames).toEqual(["bronze", "gold", "silver"]);
  await page.getByRole("button", { name: "Move bronze", exact: true }).focus();
  await page.keyboard.press("ArrowDown");
  await expect.poll(classNames).toEqual(["gold", "bronze", "silver"]);
});

test("the preview shows the processes of each class while typing", async () => {
  const gold = page.getByRole("listitem", { name: "gold" });
  await gold.getByText("no pattern: gate only").click();
  await gold.getByLabel("Commands").fill("nginx");
  const silver = page.getByRole("listitem", { name: "silver" });
  await silver.getByText("no pattern: gate only").click();
  await silver.getByLabel("Listening ports").fill("5432 11211");
  await page.getByRole("region", { name: "What it does" }).getByText("Advanced").click();
  await page.getByRole("checkbox", { name: "nice value of processes" }).check();
  const matches = page.getByRole("region", { name: `Processes by class, ${NODE}` });
  await matches.getByRole("row", { name: /^gold 1 nginx/ }).waitFor();
  await matches.getByRole("row", { name: /^silver 2 .*postgres/ }).waitFor();
  await matches.getByRole("row", { name: /^bronze 0 workers that name this class/ }).waitFor();
  const moves = page.getByRole("region", { name: `Changes, ${NODE}` });
  await moves.getByRole("row", { name: /nice.*nginx/ }).waitFor();
  await gold.getByLabel("Client networks").fill("office");
  await page.getByText("office is not a network").waitFor();
  await gold.getByLabel("Client networks").fill("");
  await loaded(page);
  expect(await violations(page)).toEqual([]);
});

test("the node page shows each class's attainment, now and over time", async () => {
  await page.getByRole("textbox", { name: "Name", exact: true }).fill("percentiles");
  await page.getByRole("button", { name: "enforce", exact: true }).click();
  await page.getByRole("button", { name: "Create policy" }).click();
  await page.waitForURL(/\/policies\/\d+/);
  await page.getByRole("region", { name: "State" }).getByRole("button", { name: "Enable" }).click();
  await page.getByRole("button", { name: /^Enable on/ }).click();
  await page.getByRole("region", { name: "State" }).getByText("in force", { exact: true }).waitFor();
  await openNode(page, NODE);
  await openDetails(page, "Tasks");
  const section = page.getByRole("article", { name: "Classes of percentiles" });
  const gold = section.getByRole("row", { name: /^gold/ });
  await gold.getByRole("cell", { name: "gate", exact: true }).waitFor();
  const [target, , f, requests] = await gold.getByRole("cell").allTextContents();
  expect(target).toBe("90 %");
  expect(Number(f)).toBeGreaterThan(0);
  expect(Number(requests?.replace(",", ""))).toBeGreaterThan(0);
  const chart = section.getByRole("region", { name: "F of percentiles" });
  await chart.getByText(/^gold \d/).waitFor();
  await chart.locator("path.recharts-line-curve").nth(2).waitFor({ state: "attached" });
  await section.getByRole("button", { name: "p99" }).click();
  await section.getByRole("region", { name: "Response time p99 of percentiles" }).waitFor();
  expect(await violations(page)).toEqual([]);
});

test("versions with different targets are compared per class", async () => {
  await page.getByRole("link", { name: "percentiles" }).first().click();
  await page.waitForURL(/\/policies\/\d+/);
  const policy = page.url();
  await page.goto(`${policy}?tab=edit`);
  await page.getByLabel("Target, %, gold").fill("95");
  await page.getByRole("button", { name: "Save as version 2" }).click();
  await page.getByRole("button", { name: "Save as version 3" }).waitFor();
  await page.goto(`${policy}?tab=versions&version=2&diff=1`);
  const line = page.getByRole("region", { name: "Differences" }).getByRole("row", { name: /^Class gold/ });
  await line.waitFor();
  await expect
    .poll(() => line.getByRole("cell").allTextContents())
    .toEqual(["Class gold", "1st · target 90 % · commands nginx", "1st · target 95 % · commands nginx"]);
});
