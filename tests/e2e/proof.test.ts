// Fifty simulated nodes with planted effects: a good version is found, a harmful one is found and rolled back.
// That takes a minute and a half, so it needs PROOF_SHOTS=<absolute path of a folder>, which keeps screenshots of each
// step; otherwise a few nodes show what there is before the first evidence, and pausing.
import { join } from "node:path";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import {
  bin,
  launchBrowser,
  openDetails,
  openNode,
  type Stack,
  setUp,
  startSimulation,
  startStack,
  violations,
} from "./stack";

const BLOCK_S = 10;
const EFFECTS = ["good@1=0.75", "bad@2=1.35"];
const DETECTION = { timeout: 240_000 };

let stack: Stack;
let browser: Browser;
let page: Page;
let began = 0;
const shots = process.env.PROOF_SHOTS;
const NODES_OF_EACH = shots === undefined ? 2 : 25;

beforeAll(async () => {
  stack = await startStack({ settings: { CORESTEER_CHUNK_SECONDS: "1" } });
  browser = await launchBrowser();
  page = await browser.newPage({ viewport: { width: 1440, height: 1000 } });
  await setUp(page, stack);
  const effects = EFFECTS.flatMap((effect) => ["--effect", effect]);
  const agent = [bin("python"), "-m", "tests.support.quick_rounds"];
  for (const cpus of ["4", "8"])
    startSimulation(
      stack,
      ["--nodes", String(NODES_OF_EACH), "--cpus", cpus, "--irqs", "12", "--interval", "0.5", ...effects],
      agent,
    );
  await page
    .getByText(`${2 * NODES_OF_EACH + 1} nodes`, { exact: false })
    .first()
    .waitFor();
});

afterAll(async () => {
  await browser?.close();
  await stack?.stop();
});

/** Calls the API as the signed-in page does. */
async function call<T>(method: string, path: string, body?: unknown): Promise<T> {
  return page.evaluate(
    async ([verb, target, json]) => {
      const me = await (await fetch("/api/v1/auth/me")).json();
      const headers = { "Content-Type": "application/json", "X-CSRF-Token": me.csrf_token };
      const answer = await fetch(`/api/v1${target}`, { method: verb, headers, ...(json !== "" && { body: json }) });
      if (!answer.ok) throw new Error(await answer.text());
      return answer.json();
    },
    [method, path, body === undefined ? "" : JSON.stringify(body)] as const,
  );
}

const policyBody = (name: string, hosts: string, proof: object) => ({
  name,
  mode: "enforce",
  spec: { type: "irq-spread" },
  selector: { hostnames: [hosts] },
  proof: { holdout_percent: 20, block_s: BLOCK_S, domain_percent: 100, guardrails: ["cpu_softirq_percent"], ...proof },
});

/** Prints when a step was reached, and keeps screenshots of the page in both themes and at two widths. */
async function reached(step: string): Promise<void> {
  console.log(`${((performance.now() - began) / 1000).toFixed(1).padStart(6)} s  ${step}`);
  if (shots === undefined) return;
  for (const colorScheme of ["dark", "light"] as const)
    for (const width of [1440, 390]) {
      await page.emulateMedia({ colorScheme });
      await page.setViewportSize({ width, height: width === 390 ? 844 : 1000 });
      await page.waitForTimeout(300); // the charts take their new width
      const path = join(shots, `${step.replaceAll(/[^a-z0-9]+/gi, "-")}-${colorScheme}-${width}.png`);
      await page.screenshot({ path, fullPage: true });
    }
  await page.setViewportSize({ width: 1440, height: 1000 });
}

const effect = () => page.getByRole("region", { name: "Effect", exact: true });

async function detected(bad: number): Promise<void> {
  await effect()
    .getByText(/^(v1)?Saves [\d.]+\s%/)
    .waitFor(DETECTION);
  await reached("good version detected");
  expect(await violations(page)).toEqual([]);
  const metrics = page.getByRole("region", { name: "Metrics of v1", exact: true });
  await metrics.getByRole("row", { name: /^CPU per gigabit primary .* better/ }).waitFor();
  await page.getByLabel("Group by label").selectOption("role");
  await page.waitForURL(/label=role/);
  await page.getByRole("region", { name: "Groups of v1", exact: true }).getByRole("row", { name: /^web/ }).waitFor();

  await page.goto(`${stack.url}/policies/${bad}?tab=proof`);
  await effect().getByText("Version 2 was rolled back automatically").waitFor(DETECTION);
  await effect().getByText("Worsens CPU per gigabit", { exact: false }).waitFor();
  await page.getByRole("row", { name: /v2 rolled back/ }).waitFor();
  await page.getByRole("row", { name: /v1 in force/ }).waitFor();
  await reached("harmful version rolled back");
  await page.getByRole("radio", { name: "v2" }).check();
  await page.getByRole("region", { name: "Metrics of v2", exact: true }).getByText("worse", { exact: true }).waitFor();
  await reached("harmful version");
  expect(await violations(page)).toEqual([]);
}

test("policies are proved in the browser, which pauses and resumes it", {
  timeout: 600_000,
}, async () => {
  // The good policy is made in the form; its proof has a part of its own there.
  await page.goto(`${stack.url}/policies/new?kind=irq-spread`);
  await page.getByRole("textbox", { name: "Name", exact: true }).fill("good");
  await page.getByRole("textbox", { name: "Nodes", exact: true }).fill("sim4-*");
  await page.getByRole("button", { name: "enforce", exact: true }).click();
  const proof = page.getByRole("region", { name: "Proof", exact: true });
  await page.locator("summary", { hasText: /^Proof$/ }).click();
  await proof.getByRole("textbox", { name: "Holdout, %" }).fill("20");
  await proof.getByText("Advanced").click();
  await proof.getByRole("textbox", { name: "Block length, s" }).fill(String(BLOCK_S));
  await proof.getByRole("textbox", { name: "Most of a failure domain, %" }).fill("100");
  began = performance.now();
  await reached("form");
  await page.getByRole("button", { name: "Create policy" }).click();
  await page.waitForURL(/\/policies\/\d+/);
  const good = page.url();
  await effect().getByText("No evidence: the policy is not enabled.", { exact: false }).waitFor();
  await page.getByRole("button", { name: "Enable" }).click();
  await page.getByRole("button", { name: /^Enable on \d+ nodes?$/ }).click();

  const bad = await call<{ id: number }>("POST", "/policies", policyBody("bad", "sim8-*", {}));
  await call("POST", `/policies/${bad.id}/enable`);
  await call("POST", `/policies/${bad.id}/versions`, { body: policyBody("bad", "sim8-*", { roll_back: true }) });
  await call("POST", `/policies/${bad.id}/rollouts`, { version: 2, canary: 1000, wait_s: 0 });
  began = performance.now();
  await page.goto(`${good}?tab=proof`);
  await effect().getByText("No evidence yet.").first().waitFor();
  await reached("no evidence yet");

  if (shots !== undefined) await detected(bad.id);

  await page.goto(`${stack.url}/fleet`);
  await page.getByText(/2 enforced policies/).waitFor();
  await reached("fleet");
  await openNode(page, "sim4-0001");
  await openDetails(page, "Policies");
  await page.getByRole("article", { name: /^good/ }).waitFor();
  await reached("node");

  await page.goto(`${stack.url}/policies`);
  const holdouts = page.getByRole("region", { name: "Holdouts" });
  await holdouts.getByText("Pausing ends the holdouts of all policies").waitFor();
  await holdouts.getByRole("button", { name: "Pause holdouts" }).click();
  await holdouts.getByText(/^Since .* by ada\./).waitFor();
  await reached("paused");
  await page.goto(`${good}?tab=proof`);
  await effect()
    .getByText(/All holdouts are paused by ada since/)
    .waitFor();
  await reached("policy while paused");
  expect(await violations(page)).toEqual([]);
  await page.goto(`${stack.url}/policies`);
  await holdouts.getByRole("button", { name: "Resume holdouts" }).click();
  await holdouts.getByText(/^Holdouts: .* of node time/).waitFor();
  await reached("resumed");
});
