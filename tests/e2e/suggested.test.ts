import type { Browser, Locator, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { launchBrowser, openNode, type Stack, setUp, startSimulation, startStack, violations } from "./stack";

let stack: Stack;
let browser: Browser;
let page: Page;

beforeAll(async () => {
  stack = await startStack({ settings: { CORESTEER_CHUNK_SECONDS: "1" } });
  browser = await launchBrowser();
  // all queues of the first simulated node interrupt one CPU
  startSimulation(stack, ["--nodes", "1", "--cpus", "8", "--irqs", "20"]);
  page = await browser.newPage({ viewport: { width: 1440, height: 900 } });
  await setUp(page, stack);
});

afterAll(async () => {
  await browser?.close();
  await stack?.stop();
});

const card = () => page.getByRole("region", { name: "Suggested" });

/** A screenshot in both themes and widths, where SHOTS has the start of a path. */
async function shoot(name: string, part: Locator): Promise<void> {
  const shots = process.env.SHOTS;
  if (shots === undefined) return;
  for (const colorScheme of ["dark", "light"] as const)
    for (const width of [1440, 390]) {
      await page.emulateMedia({ colorScheme });
      await page.setViewportSize({ width, height: 900 });
      await part.screenshot({ path: `${shots}-${name}-${colorScheme}-${width}.png` });
    }
  await page.setViewportSize({ width: 1440, height: 900 });
}

test("a hot CPU has a suggestion that fills the forms of an experiment and of a policy", async () => {
  await openNode(page, "sim8-0001");
  await card().getByRole("button", { name: "Preview", exact: true }).waitFor();
  const move = await card().locator("b").first().innerText();
  expect(move).toMatch(/^IRQ \d+ → CPU \d+(, \d+ → \d+)*( and \d+ more)?$/);
  await shoot("node", card());
  await card().getByRole("link", { name: "Test A/B" }).click();
  const experiment = page.getByRole("form", { name: "Experiment" });
  await experiment.waitFor();
  const keys = await experiment
    .locator("input")
    .evaluateAll((all) => all.map((one) => (one as HTMLInputElement).value).filter((value) => /^irq\//.test(value)));
  expect(keys.length).toBeGreaterThan(0);
  await page.goBack();
  await card().getByRole("link", { name: "Save as policy" }).click();
  const form = page.getByRole("form", { name: "Policy" });
  await form.waitFor();
  await expect.poll(() => new URL(page.url()).searchParams.get("kind")).toBe("irq-spread");
  await expect
    .poll(() => form.locator("input").evaluateAll((all) => all.map((one) => (one as HTMLInputElement).value)))
    .toContain("sim8-0001");
});

test("from the fleet's hot spot, a suggestion is previewed, applied, observed before and after, and confirmed", async () => {
  await page.goto(`${stack.url}/fleet`);
  const spots = page.getByRole("region", { name: /^Hot spots/ });
  const move = spots.getByRole("link", {
    name: /^IRQ \d+ → CPU \d+(, \d+ → \d+)*( and \d+ more)?: CPU \d+ from \d+ % to (between \d+ and )?\d+ %$/,
  });
  await move.waitFor();
  const [, irq] = (await move.innerText()).match(/^IRQ (\d+)/) ?? [];
  await shoot("fleet", spots);
  await move.click();
  await page.getByRole("region", { name: "Why" }).getByText("All 8 queues of ens5 interrupt CPU 7.").waitFor();
  await card().getByRole("region", { name: "Preview" }).getByText("if not confirmed").waitFor();
  await shoot("preview", card());
  await expect.poll(() => card().getByText("management connection").count()).toBe(0);
  await card()
    .getByRole("button", { name: /^Apply for/ })
    .click();
  const banner = page.locator("[data-change]");
  await banner.getByText(/→ *\d/).first().waitFor();
  await banner.getByRole("button", { name: "Confirm" }).click();
  await page.getByText("Confirmed.").first().waitFor();
  await page.goto(`${page.url().split("?")[0]}?sel=irq%3A${irq}`);
  await page.getByRole("region", { name: "Before and after" }).getByText("observed, not proof").waitFor();
});

test("the fleet is shown at a past time, compared with an hour before, and saved as a view", async () => {
  await page.goto(`${stack.url}/fleet`);
  let at = 0;
  await expect
    .poll(
      async () => {
        at = Date.now();
        const answer = await page.request.get(`${stack.url}/api/v1/fleet?limit=0&at=${new Date(at).toISOString()}`);
        return (await answer.json()).totals.with_data;
      },
      { timeout: 60_000 },
    )
    .toBe(2);
  await page.getByRole("button", { name: "range…" }).click();
  const local = (ms: number) =>
    page.evaluate(
      (time) => new Date(time - new Date(time).getTimezoneOffset() * 60_000).toISOString().slice(0, 19),
      ms,
    );
  await page.getByLabel("From").fill(await local(at));
  await page.getByLabel("To", { exact: true }).fill(await local(at + 60_000));
  await page.getByRole("button", { name: "Show", exact: true }).click();
  await page.getByText("means of a minute").waitFor();
  const figures = page.getByRole("region", { name: "Figures of the shown nodes" });
  await figures.getByText("of 2").waitFor();
  await page.getByRole("slider", { name: "Shown time" }).waitFor();

  await page.getByLabel("compare with").selectOption("an hour before");
  await figures.getByText("unknown before").first().waitFor();
  await page.getByRole("button", { name: "table" }).click();
  await page.getByRole("button", { name: "Columns" }).click();
  await page.getByRole("checkbox", { name: "kernel" }).uncheck();
  await page.keyboard.press("Escape");
  await page.getByRole("columnheader", { name: "drivers" }).waitFor();
  await expect.poll(() => page.getByRole("columnheader", { name: "kernel" }).count()).toBe(0);
  await shoot("past", page.locator("main"));

  await page.getByRole("button", { name: "Views" }).click();
  await page.getByLabel("Save what is shown as").fill("Compared by an hour");
  await page.getByRole("checkbox", { name: "Share with everyone" }).check();
  await shoot("views", page.locator("body"));
  expect(await violations(page)).toEqual([]);
  await page.getByRole("button", { name: "Save view" }).click();
  await page.getByRole("button", { name: "View: Compared by an hour" }).waitFor();
  await page.goto(`${stack.url}/fleet`);
  await page.getByRole("button", { name: "Views" }).click();
  await page
    .getByRole("list", { name: "Saved views" })
    .getByRole("button", { name: "Compared by an hour", exact: true })
    .click();
  await page.waitForURL(/compare=1h/);
  await expect.poll(() => new URL(page.url()).searchParams.get("columns")?.split(",").includes("kernel")).toBe(false);
  await page.getByText("means of a minute").waitFor();
  await page.getByRole("columnheader", { name: "drivers" }).waitFor();
});
