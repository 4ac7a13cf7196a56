import { readdir, readFile } from "node:fs/promises";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { launchBrowser, openNode, type Stack, setUp, startStack } from "./stack";

let stack: Stack;
let browser: Browser;
let page: Page;

beforeAll(async () => {
  stack = await startStack();
  browser = await launchBrowser();
  page = await browser.newPage();
  await setUp(page, stack);
  await openNode(page, "here");
});

afterAll(async () => {
  await browser?.close();
  await stack?.stop();
});

/** PIDs of this stack's processes with a text in their command line, and of their children. */
async function processes(text: string): Promise<number[]> {
  const found: number[] = [];
  for (const entry of await readdir("/proc")) {
    if (!/^\d+$/.test(entry)) continue;
    const read = (file: string) => readFile(`/proc/${entry}/${file}`, "utf8").catch(() => "");
    const [command, environment] = await Promise.all([read("cmdline"), read("environ")]);
    if (!command.includes(text) || !`${command}${environment}`.includes(stack.env.CORESTEER_STATE_DIR ?? "")) continue;
    const children = await read(`task/${entry}/children`);
    found.push(Number(entry), ...children.split(" ").filter(Boolean).map(Number));
  }
  return found;
}

function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch (error) {
    // a child may have ended together with its parent
    if (!(error instanceof Error && "code" in error && error.code === "ESRCH")) throw error;
  }
}

test.each([
  ["backend", "serve", "SIGSTOP", /The backend has not responded since/],
  ["backend's database", "postgres", "SIGSTOP", /database has been unreachable since/],
] as const)("the page reports an outage of the %s and recovers", async (_, text, stop, sentence) => {
  const stopped = await processes(text);
  for (const pid of stopped) signal(pid, stop);
  await page.getByText(sentence).waitFor();
  for (const pid of stopped) signal(pid, "SIGCONT");
  await page.getByText(sentence).waitFor({ state: "detached" });
  await page.getByRole("status").getByText("live", { exact: true }).waitFor();
});

test("a killed backend and database restart, and samples and the page recover", async () => {
  const killed = [...(await processes("serve")), ...(await processes("postgres"))];
  const at = Date.now();
  for (const pid of killed) signal(pid, "SIGKILL");
  const lastSample = async () => {
    const answer = await page.request.get(`${stack.url}/api/v1/nodes`).catch(() => null);
    return answer?.ok() ? Date.parse((await answer.json())[0].figures?.time ?? 0) : 0;
  };
  await expect.poll(lastSample).toBeGreaterThan(at);
  await page.reload();
  await page.getByRole("application", { name: /^Heatmap/ }).waitFor();
});
