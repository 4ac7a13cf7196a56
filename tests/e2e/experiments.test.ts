import { beforeAll, expect, test } from "vitest";
import { browser, NODE, page, setUpStack, stack, violations } from "./stack";

let node: string;
/** The experiment of a template. What else is tried meanwhile is tried while it runs. */
let template: string;

setUpStack();
beforeAll(() => {
  node = new URL(page.url()).pathname.split("/").at(-1) ?? "";
});

const region = (name: string) => page.getByRole("region", { name, exact: true });
const state = () => region("State");
const start = () => region("Start").getByRole("button", { name: "Start" });

/** As short as an experiment may be. */
async function shorten(): Promise<void> {
  await page.getByLabel("Warm-up, s").fill("0.5");
  await page.getByLabel("Measurement, s").fill("1");
  await page.getByLabel("Blocks", { exact: true }).fill("3");
  await page.getByLabel("A/A blocks").fill("3");
}

/** Starts what the form says, once its preview has that number of runs. */
async function begin(runs: number): Promise<string> {
  await region("Preview").getByText(`${runs} runs`, { exact: true }).waitFor();
  await start().click();
  await page.waitForURL(/\/experiments\/\d+/);
  return page.url();
}

test("an empty list explains experiments and links to the templates", async () => {
  await page.getByRole("link", { name: "Experiments" }).click();
  await page.getByRole("link", { name: "Choose a node" }).click();
  await page.getByRole("heading", { name: "New experiment" }).waitFor();
  await page.getByRole("combobox", { name: "Node" }).fill(NODE);
  await page.waitForURL(/node=\d+/);
  await region("Templates").getByRole("article").filter({ hasText: "rx-usecs" }).first().waitFor();
  await region("Templates").getByText("Unavailable:").first().waitFor();
});

test("a template is opened, started and followed", async () => {
  await page.goto(`${stack.url}/experiments/new?node=${node}&template=rx-usecs`);
  await page.getByRole("listitem", { name: "72 µs" }).locator("summary").click();
  await page.getByRole("button", { name: "Remove 72 µs" }).click();
  await shorten();
  template = await begin(27);
  await state().getByText("running").waitFor();
  await state()
    .getByText(/^Run \d+ of 27/)
    .waitFor();
  await page.getByRole("link", { name: "Fleet" }).click();
  await page.getByText("An experiment runs on").waitFor();
  await expect.poll(() => page.getByRole("button", { name: "Confirm" }).count()).toBe(0);
  await page
    .getByRole("region", { name: "Running experiments" })
    .getByRole("link", { name: /rx-usecs/ })
    .click();
  await page.waitForURL(template);
});

test("an invalid experiment cannot be started, and the reason is shown", async () => {
  await page.goto(`${stack.url}/experiments/new?node=${node}&template=own`);
  await expect.poll(() => start().isDisabled()).toBe(true);
  await page.getByRole("textbox", { name: "Name", exact: true }).fill("two waits");
  await region("Start").getByText("Level 2, name: Required.").waitFor();
  await page.getByRole("button", { name: "A/A", exact: true }).click();
  await page.getByLabel("Measurement, s").fill("0");
  await region("Start").getByText("Measurement: A number from 1 to 300.").waitFor();
});

test("a custom experiment is queued on its node and cancelled after a confirmation", async () => {
  await page.goto(`${stack.url}/experiments/new?node=${node}&template=own`);
  await page.getByRole("textbox", { name: "Name", exact: true }).fill("two waits");
  await page.getByRole("textbox", { name: "Factor name" }).fill("rx-usecs");
  const other = page.getByRole("listitem", { name: "level 2" });
  await other.getByRole("textbox", { name: "Level name" }).fill("60 µs");
  const level = page.getByRole("listitem", { name: "60 µs" });
  await level.getByRole("button", { name: "+ setting" }).click();
  await level.getByRole("combobox", { name: "Setting" }).fill("netdev/ens5/coalesce/rx-usecs");
  await level.getByRole("textbox", { name: "Value, µs" }).fill("60");
  await shorten();
  await begin(24);
  await state().getByText("queued, position 1").waitFor();
  await state().getByRole("button", { name: "Cancel experiment" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Cancel the experiment" }).click();
  await state().getByText("cancelled", { exact: true }).waitFor();
});

test.each(["dark", "light"] as const)("the form has no axe violations, %s", async (theme) => {
  await page.emulateMedia({ colorScheme: theme });
  await page.goto(`${stack.url}/experiments/new?node=${node}&template=rx-usecs`);
  await region("Preview").getByText("runs", { exact: false }).first().waitFor();
  expect(await violations(page)).toEqual([]);
});

test("a completed experiment shows its findings, also in the list", async () => {
  await page.goto(template);
  await state().getByText("27 of 27 runs").waitFor();
  await state().getByText("done", { exact: true }).waitFor();
  await region("Findings").getByText("lower, better").first().waitFor();
  await region("Settings before and after").getByText("all restored").waitFor();
  await region("By factor")
    .getByRole("img", { name: /^The authors' Device interrupts/ })
    .waitFor();
  await page.goto(`${stack.url}/experiments?state=done`);
  await page.getByRole("row", { name: /rx-usecs.*(lower with|are lower)/ }).waitFor();
  await page.goto(template);
}, 90_000);

test("a row selects its metric, which is part of the address", async () => {
  await region("All metrics").getByRole("button", { name: "Packets per interrupt" }).click();
  await page.waitForURL(/metric=packets_per_interrupt/);
  await region("Runs in order")
    .getByRole("img", { name: /^Packets per interrupt of \d+ runs/ })
    .waitFor();
  await region("Runs in order").getByRole("button", { name: "as table" }).click();
  await expect.poll(() => region("Runs in order").getByRole("row").count()).toBeGreaterThan(27);
});

test("the report is exported, also in Korean, and shared by a link that can be revoked", async () => {
  const link = (format: string) => page.getByRole("link", { name: `${format} report of this experiment` });
  await region("Report of this experiment").getByRole("button", { name: "Korean" }).click();
  for (const [format, type] of [
    ["HTML", "text/html"],
    ["PDF", "application/pdf"],
    ["CSV", "text/csv"],
    ["JSON", "application/json"],
    ["Markdown", "text/markdown"],
  ] as const) {
    const answer = await page.request.get(new URL((await link(format).getAttribute("href")) ?? "", stack.url).href);
    expect([answer.status(), answer.headers()["content-type"]?.split(";")[0]]).toEqual([200, type]);
  }
  await region("Compare and share").getByRole("button", { name: "Create link" }).click();
  const shared = await region("Compare and share").getByRole("status").locator("code").innerText();
  const stranger = await browser.newPage();
  await stranger.goto(shared);
  await stranger.getByRole("heading").first().waitFor();
  await region("Compare and share").getByRole("button", { name: "Revoke all links" }).click();
  await region("Compare and share").getByText("All links to this report are revoked.").waitFor();
  expect((await stranger.goto(shared))?.status()).toBe(404);
  await stranger.close();
});

test.each(["dark", "light"] as const)("the findings have no axe violations, %s", async (theme) => {
  await page.emulateMedia({ colorScheme: theme });
  expect(await violations(page)).toEqual([]);
});

test.each(["dark", "light"] as const)("the list has no axe violations, %s", async (theme) => {
  await page.emulateMedia({ colorScheme: theme });
  await page.goto(`${stack.url}/experiments?state=cancelled`);
  await page.getByRole("row", { name: /two waits.*cancelled/ }).waitFor();
  expect(await violations(page)).toEqual([]);
});
