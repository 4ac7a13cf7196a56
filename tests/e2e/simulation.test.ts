import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { launchBrowser, type Stack, setUp, startStack, violations } from "./stack";

let stack: Stack;
let browser: Browser;
let page: Page;
/** The address of the finished study. */
let study: string;

beforeAll(async () => {
  stack = await startStack();
  browser = await launchBrowser();
  page = await browser.newPage({ viewport: { width: 1440, height: 1000 } });
  await setUp(page, stack);
});

afterAll(async () => {
  await browser?.close();
  await stack?.stop();
});

const region = (name: string) => page.getByRole("region", { name, exact: true });
const themes = ["dark", "light"] as const;

test("from the fleet page, an empty list explains the study and opens its form", async () => {
  await page.getByRole("link", { name: "Studies" }).click();
  await page.getByText("nothing to do with simulated nodes", { exact: false }).waitFor();
  await page.getByRole("link", { name: "Start the authors' study" }).click();
  await page.getByRole("heading", { name: "New study" }).waitFor();
  await region("Start")
    .getByText(/^480 runs, estimated to take about \d+\smin on \d+ CPUs?\.$/)
    .waitFor();
});

test("an invalid study cannot be started, and the reason is shown", async () => {
  await region("Schemes").getByRole("button", { name: "None" }).click();
  await region("Start").getByText("Schemes: Choose at least one.").waitFor();
  await expect.poll(() => region("Start").getByRole("button", { name: "Start" }).isDisabled()).toBe(true);
});

test.each(themes)("the form has no axe violations, %s", async (theme) => {
  await page.emulateMedia({ colorScheme: theme });
  expect(await violations(page)).toEqual([]);
});

test("a file that is no trace is refused with a sentence, and a trace is chosen", async () => {
  const upload = page.locator("input[type=file]");
  await upload.setInputFiles({ name: "wrong.swf", mimeType: "text/plain", buffer: Buffer.from("a b c\n") });
  await region("Jobs").getByText("Line 1 of wrong.swf is not a job in Standard Workload Format.").waitFor();
  const jobs = Array.from({ length: 40 }, (_, at) => `${at} ${at * 3} 0 ${2 + (at % 5)} ${2 ** (1 + (at % 4))}`);
  await upload.setInputFiles({ name: "small.swf", mimeType: "text/plain", buffer: Buffer.from(jobs.join("\n")) });
  await region("Jobs").getByText("40 jobs of up to 16 processes", { exact: false }).waitFor();
  await expect.poll(() => page.getByLabel("Trace").inputValue()).toBe("small.swf");
});

test("a trace is deleted after a confirmation", async () => {
  await region("Jobs").getByRole("button", { name: "Delete this trace" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Delete the trace" }).click();
  await page.getByRole("dialog").waitFor({ state: "detached" });
  await expect.poll(() => page.getByLabel("Trace").inputValue()).toBe("generated");
  await expect.poll(() => page.getByRole("option", { name: "small.swf" }).count()).toBe(0);
});

test("a small study is started, and shows its results when it is done", async () => {
  for (const scheme of ["SB", "SB+RO"]) await page.getByRole("checkbox", { name: scheme, exact: true }).click();
  await page.getByRole("checkbox", { name: /AA/ }).uncheck();
  for (const jobs of [/^SWL2/, /^SWL3/]) await page.getByRole("checkbox", { name: jobs }).uncheck();
  await page.getByLabel("Imbalance v").fill("0.5");
  await page.getByLabel("Seeds").fill("2");
  await page.getByRole("textbox", { name: "Jobs", exact: true }).fill("10");
  await page.getByRole("button", { name: "quick" }).click();
  await region("Start").getByText("4 runs, estimated", { exact: false }).waitFor();
  await region("Start").getByRole("button", { name: "Start" }).click();
  await page.waitForURL(/\/simulations\/\d+/);
  study = page.url();
  await region("State").getByText("done", { exact: true }).waitFor({ timeout: 280_000 });
  await region("State").getByText("4 of 4 runs").waitFor();
  await region("The authors' statements")
    .getByRole("cell", { name: "Not judged: 2 of the 10 seeds that a verdict needs." })
    .first()
    .waitFor();
  await page.getByRole("img", { name: /^Response time, NN, SWL1, v 0.5: SB [\d.]+ m?s, SB\+RO/ }).waitFor();
  await page.getByRole("img", { name: /^System time, NN, SWL1, v 0.5: SB compute/ }).waitFor();
  await expect.poll(() => region("Every cell").getByRole("rowheader").allInnerTexts()).toEqual(["SB", "SB+RO"]);
  await region("Parameters").getByText("Context switch", { exact: true }).waitFor();
}, 300_000); // the engine is compiled first

test.each(themes)("the results have no axe violations, %s", async (theme) => {
  await page.emulateMedia({ colorScheme: theme });
  expect(await violations(page)).toEqual([]);
});

test("the report is downloaded in every format, in Korean too", async () => {
  for (const [format, type] of [
    ["HTML", "text/html"],
    ["PDF", "application/pdf"],
    ["CSV", "text/csv"],
    ["JSON", "application/json"],
    ["Markdown", "text/markdown"],
  ] as const) {
    const link = page.getByRole("link", { name: `${format} report of this study` });
    const answer = await page.request.get(new URL((await link.getAttribute("href")) ?? "", stack.url).href);
    expect([answer.status(), answer.headers()["content-type"]?.split(";")[0]]).toEqual([200, type]);
  }
  await page.getByRole("button", { name: "Korean" }).click();
  const html = page.getByRole("link", { name: "HTML report of this study" });
  const korean = await page.request.get(new URL((await html.getAttribute("href")) ?? "", stack.url).href);
  expect(await korean.text()).toContain("협력 스케줄링 연구");
});

test("a study that runs shows its progress and is cancelled after a confirmation", async () => {
  await region("State").getByRole("link", { name: "Run again" }).click();
  await page.getByLabel("Seeds").fill("100");
  await page.getByRole("textbox", { name: "Jobs", exact: true }).fill("2000");
  await region("Start").getByRole("button", { name: "Start" }).click();
  await region("State").getByRole("button", { name: "Cancel study" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Cancel the study" }).click();
  await region("State").getByText("cancelled", { exact: true }).waitFor();
});

test.each(themes)("the list has no axe violations, %s", async (theme) => {
  await page.emulateMedia({ colorScheme: theme });
  await page.goto(`${stack.url}/simulations`);
  await page.getByRole("row", { name: /cancelled/ }).waitFor();
  expect(await violations(page)).toEqual([]);
  await page.getByRole("link", { name: "Study 1", exact: true }).click();
  await page.waitForURL(study);
});
