// The fleet page with ten thousand nodes: it searches, groups, zooms and goes back, and asks for what it shows only.
import { execFile } from "node:child_process";
import { promisify } from "node:util";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { bin, collectErrors, launchBrowser, type Stack, setUp, startSimulation, startStack, violations } from "./stack";

const NODES = 10_000;
const SIMULATED = 20;
/** Bytes of the largest answer and of the largest live message; all nodes have ten megabytes. */
const MOST_BYTES = 700_000;

let stack: Stack;
let browser: Browser;
let page: Page;
const errors: string[] = [];
const received: { path: string; bytes: number }[] = [];

/** Stores nodes of 100 racks that are not connected. */
const INSERT = `
import sys, psycopg
from coresteer.cli.main import _database_url
from coresteer.config import Config
with psycopg.connect(_database_url(Config())) as database:
    database.execute("""
        INSERT INTO node (name, simulated, labels, cpus, drivers, hello, last_seen_at)
        SELECT 'web-' || n, false, jsonb_build_object('rack', 'r' || lpad((n %% 100)::text, 2, '0')), 64, '{ice}',
            '{"mode": "observe", "kernel": "6.12.117"}', now()
        FROM generate_series(1, %s::int) AS n
    """, (int(sys.argv[1]),))
`;

beforeAll(async () => {
  stack = await startStack();
  browser = await launchBrowser();
  startSimulation(stack, ["--nodes", String(SIMULATED), "--cpus", "8", "--irqs", "16"]);
  page = await browser.newPage({ viewport: { width: 1440, height: 900 } });
  collectErrors(page, (error) => errors.push(error));
  await setUp(page, stack);
  await promisify(execFile)(bin("python"), ["-c", INSERT, String(NODES)], { env: stack.env });
  page.on("response", async (response) => {
    const { pathname, search } = new URL(response.url());
    if (!pathname.startsWith("/api/v1/")) return;
    const body = await response.body().catch(() => Buffer.alloc(0));
    received.push({ path: pathname + search, bytes: body.length });
  });
  page.on("websocket", (socket) =>
    socket.on("framereceived", ({ payload }) => received.push({ path: "live", bytes: payload.length })),
  );
  await page.goto(`${stack.url}/fleet`);
  await page.getByText(/10,0\d\d nodes · /).waitFor();
});
afterAll(async () => {
  await browser?.close();
  await stack?.stop();
});

test("of many nodes the map shows the first by its figure, live ones among them", async () => {
  await page.getByText(/the first 500 of 10,0\d\d by this figure/).waitFor();
  await page.getByRole("application", { name: /^Map of 500 nodes/ }).waitFor();
  await page.getByRole("region", { name: "Figures of the shown nodes" }).getByText(/away/).waitFor();
});

test("a group is opened by keyboard, its nodes are shown, and the browser's back button shows the groups", async () => {
  await page.getByLabel("group by").selectOption("label:rack");
  const groups = page.getByRole("region", { name: "Groups by rack", exact: true });
  const rack = groups.getByRole("link", { name: "r07", exact: true });
  await rack.waitFor();
  await expect.poll(() => new URL(page.url()).searchParams.get("group")).toBe("label:rack");
  await expect
    .poll(() => groups.getByRole("row").filter({ hasText: "r07" }).first().innerText())
    .toMatch(/r07\s+100\s+0\s+100/);
  expect(await violations(page)).toEqual([]);
  await rack.focus();
  await page.keyboard.press("Enter");
  await page.getByRole("application", { name: /^Map of 100 nodes/ }).waitFor();
  await expect.poll(() => new URL(page.url()).searchParams.get("within")).toBe("r07");
  await page.getByRole("button", { name: "table" }).click();
  await page.getByRole("link", { name: "web-107", exact: true }).waitFor();
  await page.getByText("1–50 of 100").waitFor();
  await page.getByRole("button", { name: "Next" }).click();
  await page.getByText("51–100 of 100").waitFor();
  await expect.poll(() => new URL(page.url()).searchParams.get("page")).toBe("2");
  await page.reload();
  await page.getByText("51–100 of 100").waitFor();
  await page.goBack();
  await rack.waitFor();
  await page.goForward();
  await page.getByRole("link", { name: "All groups by rack" }).click();
  await rack.waitFor();
});

test("a node is found by name on the page, in the palette and in a form", async () => {
  await page.goto(`${stack.url}/fleet?view=table`);
  await page.getByLabel("Filter", { exact: true }).fill("web-9999");
  await page.getByRole("row").filter({ hasText: "web-9999" }).waitFor();
  await expect.poll(() => page.getByRole("row").count()).toBe(2);
  await page.getByRole("button", { name: /^⌘K/ }).click();
  await page.getByRole("combobox", { name: /^Search nodes/ }).fill("web-4321");
  await page.getByRole("option", { name: "web-4321" }).first().waitFor();
  await page.keyboard.press("Escape");
  await page.goto(`${stack.url}/changes`);
  await page.getByRole("combobox", { name: "Node" }).fill("web-1234");
  await page.waitForURL(/node=\d+/);
  await expect.poll(() => page.getByRole("combobox", { name: "Node" }).inputValue()).toBe("web-1234");
  await page.goto(`${stack.url}/settings/nodes`);
  await page.getByLabel("Filter nodes").fill("label:rack=r42");
  await page.getByText("1–50 of 100").waitFor();
});

test("live figures follow for the nodes that are shown", async () => {
  await page.goto(`${stack.url}/fleet?view=table&q=simulated:yes`);
  await page.getByRole("row").filter({ hasText: "sim8-0001" }).getByText("live", { exact: true }).waitFor();
  await page.getByRole("region", { name: "Figures of the shown nodes" }).getByText(`${SIMULATED} live`).waitFor();
});

test("nothing that a page received was as long as the fleet, and no page logged an error", () => {
  const largest = received.toSorted((a, b) => b.bytes - a.bytes).slice(0, 5);
  expect(received.some(({ path }) => path === "live")).toBe(true);
  expect(largest.filter(({ bytes }) => bytes > MOST_BYTES)).toEqual([]);
  expect(errors).toEqual([]);
});
