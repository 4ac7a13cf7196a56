import { beforeAll, expect, test } from "vitest";
import { loaded, page, setUpStack, stack, violations } from "./stack";

let node: string;
let tune: string;

setUpStack();
beforeAll(() => {
  node = new URL(page.url()).pathname.split("/").at(-1) ?? "";
});

const region = (name: string) => page.getByRole("region", { name, exact: true });
const shots = process.env.SCREENSHOTS;
/** Takes a screenshot in both themes, if a folder for them is given. */
async function shoot(name: string): Promise<void> {
  if (shots === undefined) return;
  for (const colorScheme of ["dark", "light"] as const) {
    await page.emulateMedia({ colorScheme });
    await page.screenshot({ path: `${shots}/${name}-${colorScheme}.png`, fullPage: true });
  }
}

test("a tune is prepared for a node, with its search in the form", async () => {
  await page.goto(`${stack.url}/experiments/new?node=${node}`);
  await page.getByRole("button", { name: "Use: Tune: the best setting under this load" }).click();
  await region("Preview")
    .getByText(/searches \d+ combinations of levels/)
    .waitFor();
  // CPU time hardly depends on rx-usecs while the CPU of the simulated hot queue is saturated
  await region("Primary metric").getByLabel("Metric").selectOption("interrupts_per_s");
  await region("Search").getByLabel("Limit of the second metric").fill("20000");
  await region("Search").getByLabel("Maximum runs").fill("36");
  await page.getByLabel("Warm-up, s").fill("0.5");
  await page.getByLabel("Measurement, s").fill("2");
  await expect.poll(() => page.getByLabel("A/A blocks").count()).toBe(0);
  await region("Preview").getByText("36 runs", { exact: true }).waitFor();
  await loaded(page);
  expect(await violations(page)).toEqual([]);
  await shoot("form");
  await region("Start").getByRole("button", { name: "Start" }).click();
  await page.waitForURL(/\/experiments\/\d+/);
  tune = page.url();
});

test("its candidates appear while it runs", async () => {
  await region("State")
    .getByText(/^Run \d+ of at most 36/)
    .waitFor();
  await region("Combinations").getByRole("row").nth(8).waitFor();
  await region("Front")
    .getByRole("img", { name: /RTT p99|99th percentile/ })
    .waitFor();
  await shoot("running");
}, 90_000);

test("the best combination is found, and poor ones are eliminated with their reason", async () => {
  await region("State").getByText("done", { exact: true }).waitFor({ timeout: 120_000 });
  await region("Findings")
    .getByText(/^The best combination found is .*: Device interrupts/)
    .waitFor();
  const rows = region("Combinations").getByRole("row");
  await rows.filter({ hasText: "best" }).first().waitFor();
  await rows.filter({ hasText: "eliminated:" }).first().waitFor();
  await region("Settings before and after").getByText("all restored").waitFor();
  await shoot("done");
}, 150_000);

test.each(["dark", "light"] as const)("the result has no axe violations, %s", async (theme) => {
  await page.emulateMedia({ colorScheme: theme });
  expect(await violations(page)).toEqual([]);
});

test("an A/B experiment compares the best combination with the baseline", async () => {
  await page.getByRole("link", { name: "Confirm in an A/B experiment" }).click();
  await page.waitForURL(/confirm=\d+/);
  await page.getByRole("button", { name: "A/B", exact: true, pressed: true }).waitFor();
  await expect
    .poll(() => page.getByRole("textbox", { name: "Name", exact: true }).inputValue())
    .toMatch(/, confirmation$/);
  await region("Preview").getByText("48 runs", { exact: true }).waitFor();
  await shoot("confirm");
  await region("Start").getByRole("button", { name: "Start" }).click();
  await region("State")
    .getByText(/^Run \d+ of 48/)
    .waitFor();
  await region("State").getByRole("button", { name: "Cancel experiment" }).click(); // experiments.test.ts awaits the end of one
  await page.getByRole("dialog").getByRole("button", { name: "Cancel the experiment" }).click();
  await region("State").getByText("cancelled", { exact: true }).waitFor();
});

test("one click makes it a policy for nodes with the same driver", async () => {
  await page.goto(tune);
  await page.getByRole("button", { name: "Save as policy (unconfirmed)" }).click();
  await page.waitForURL(/\/policies\/\d+/);
  await page.getByText("Fixed settings").first().waitFor();
  await page.getByRole("link", { name: "Edit", exact: true }).click();
  await expect
    .poll(() => page.getByRole("textbox", { name: "Settings" }).inputValue())
    .toMatch(/\{netdev\}\/coalesce\/rx-usecs=\d+/);
  await shoot("policy");
});
