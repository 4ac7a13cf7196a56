// Starts the whole of Coresteer as `make up` does, in a private state directory on a free port, and stops it again.
import { type ChildProcess, spawn } from "node:child_process";
import { EventEmitter, once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout } from "node:timers/promises";
import axe from "axe-core";
import { type Browser, chromium, type Page } from "playwright-core";
import { afterAll, beforeAll } from "vitest";

export const repository = new URL("../../", import.meta.url).pathname;
export const bin = (name: string) => join(repository, ".venv/bin", name);

export const admin = { username: "ada", password: "correct horse battery" };

export async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  server.close();
  await once(server, "close");
  if (address === null || typeof address === "string") throw new Error("The port's number is not known.");
  return address.port;
}

/** A child process with stdin, output to wait for, and a stop by its PID. */
export class Child {
  output = "";
  private exitCode: number | null | undefined;
  private readonly process: ChildProcess;
  private readonly ended: Promise<unknown>;
  private readonly events = new EventEmitter();

  constructor(command: string, args: string[], env: NodeJS.ProcessEnv) {
    this.process = spawn(command, args, { env, cwd: repository, stdio: "pipe" });
    for (const stream of [this.process.stdout, this.process.stderr])
      stream?.on("data", (chunk: Buffer) => {
        this.output += chunk.toString();
        this.events.emit("more");
      });
    this.ended = once(this.process, "close").then(([code]) => {
      this.exitCode = code;
      this.events.emit("more");
    });
  }

  type(line: string): void {
    this.process.stdin?.write(`${line}\n`);
  }

  /** Waits for output that matches a pattern, after a given number of characters. */
  async until(pattern: RegExp, after = 0): Promise<string> {
    for (;;) {
      const match = this.output.slice(after).match(pattern);
      if (match !== null) return match[0];
      if (this.exitCode !== undefined)
        throw new Error(`It ended with ${this.exitCode} before ${pattern}:\n${this.output}`);
      await once(this.events, "more");
    }
  }

  async stop(): Promise<void> {
    this.process.kill("SIGINT");
    await this.ended;
  }
}

/** simulations: of nodes that joined it; they end with it, also where a test fails before it knows them. */
export type Stack = {
  url: string;
  setUpLink: string;
  env: NodeJS.ProcessEnv;
  simulations: Child[];
  stop: () => Promise<void>;
};

/** `root` lets the local agent work on a captured tree instead of this machine; `settings` are further variables. */
export async function startStack({ root = "/", settings = {} as Record<string, string> } = {}): Promise<Stack> {
  const stateDir = await mkdtemp(join(tmpdir(), "coresteer-e2e-"));
  const port = await freePort();
  const env = {
    ...process.env,
    DATABASE_URL: "",
    CORESTEER_STATE_DIR: stateDir,
    CORESTEER_PORT: String(port),
    CORESTEER_NODE_NAME: "here",
    CORESTEER_AGENT_ROOT: root,
    ...settings,
  };
  const child = new Child(bin("coresteer"), ["up"], env);
  const setUpLink = await child.until(/http:\S+\/setup\?token=\S+/);
  const simulations: Child[] = [];
  return {
    url: `http://127.0.0.1:${port}`,
    setUpLink,
    env,
    simulations,
    stop: async () => {
      await Promise.all(simulations.map((simulation) => simulation.stop()));
      await child.stop();
      await rm(stateDir, { recursive: true, force: true });
    },
  };
}

/** Starts simulated nodes that join a stack. `agent`: the command that simulates them. */
export function startSimulation(
  { url, env, simulations }: Stack,
  args: string[],
  agent = [bin("coresteer-agent")],
): void {
  const script = `exec "\${@:3}" --backend "$1" --token "$("$2" enrolment-token --simulated)"`;
  const command = ["-c", script, "bash", url, bin("coresteer"), ...agent, "simulate", ...args];
  simulations.push(new Child("bash", command, env));
}

export async function launchBrowser(): Promise<Browser> {
  const quiet = ["quic", "background-networking", "component-update", "sync", "gpu"].map((part) => `--disable-${part}`);
  return chromium.launch({ executablePath: process.env.CHROMIUM, args: ["--no-sandbox", "--no-first-run", ...quiet] });
}

/** Collects the errors of a page's scripts and console. */
export function collectErrors(page: Page, collect: (error: string) => void): void {
  page.on("pageerror", (error) => collect(error.message));
  page.on("console", (message) => {
    // Chromium ends requests when a network device appears on the machine, as other programs' may at any time
    if (message.type() !== "error" || message.text().includes("net::ERR_NETWORK_CHANGED")) return;
    collect(`${message.text()} ${message.location().url}`);
  });
}

/** Rules whose result depends on the theme. */
const COLOR_RULES = ["color-contrast", "link-in-text-block"];

/** Waits until nothing of a page is loading, or dimmed because it shows former input. */
export const loaded = (page: Page): Promise<void> =>
  page.locator("[aria-busy=true]").first().waitFor({ state: "detached" });

/** The violations that axe finds on a page, one line each. colors: only of the rules about colors. */
export async function violations(page: Page, { colors = false } = {}): Promise<string[]> {
  await page.evaluate(axe.source);
  const options: axe.RunOptions = { resultTypes: ["violations"], ...(colors && { runOnly: COLOR_RULES }) };
  const result = await page.evaluate((chosen) => (window as unknown as { axe: typeof axe }).axe.run(chosen), options);
  return result.violations.map(({ id, nodes }) => `${id}: ${nodes[0]?.html} ${nodes[0]?.failureSummary}`);
}

/** For what takes a second on an idle machine: a test fails when it never comes, not when it is late. */
const PATIENCE_MS = 60_000;

/** Creates the first administrator through the set-up link and stays signed in. */
export async function setUp(page: Page, { setUpLink }: Pick<Stack, "setUpLink">): Promise<void> {
  page.context().setDefaultTimeout(PATIENCE_MS);
  await page.goto(setUpLink);
  await page.getByLabel("Name").fill(admin.username);
  await page.getByLabel(/^Password/).fill(admin.password);
  await page.getByLabel("Repeat the password").fill(admin.password);
  await page.getByRole("button", { name: "Create administrator and sign in" }).click();
  await page.waitForURL(/\/fleet/);
  await page.getByRole("navigation", { name: "Pages" }).waitFor();
}

export const NODE = "sim8-0001";
export let stack: Stack;
export let browser: Browser;
/** A page signed in as administrator, at the node NODE. */
export let page: Page;

/** Registers hooks for a test file: a stack with a simulated node, NODE, and a browser page of it. */
export function setUpStack(): void {
  beforeAll(async () => {
    stack = await startStack();
    browser = await launchBrowser();
    startSimulation(stack, ["--nodes", "1", "--cpus", "8", "--irqs", "60"]);
    page = await browser.newPage({ viewport: { width: 1400, height: 1000 } });
    await setUp(page, stack);
    await openNode(page, NODE); // the heatmap appears with the agent's first report
    await page.getByRole("application", { name: /^Heatmap/ }).waitFor();
  });
  afterAll(async () => {
    await browser?.close();
    await stack?.stop();
  });
}

/** Opens a tab of a node's page. */
export async function openDetails(page: Page, tab: string): Promise<void> {
  await page.getByRole("navigation", { name: "Details" }).getByRole("link", { name: tab }).click();
}

/** Opens a node's page by its name, through the palette. */
export async function openNode(page: Page, name: string): Promise<void> {
  await page.getByRole("button", { name: /^⌘K/ }).click();
  await page.getByRole("combobox", { name: /^Search nodes/ }).fill(name);
  // not Enter: nodes that arrive meanwhile would change which option it takes; until then a change may name the node
  const nodes = page.getByRole("listbox").getByRole("group", { name: "Nodes" });
  await nodes.getByRole("option", { name }).first().click();
  await page.waitForURL(/\/nodes\/\d+/);
}

export async function openIrq(page: Page, node: string, irq: number): Promise<void> {
  await openNode(page, node);
  await page.goto(`${page.url().split("?")[0]}?sel=irq%3A${irq}`);
  await page.getByRole("heading", { name: new RegExp(`^IRQ ${irq}\\b`) }).waitFor();
}

/** Moves the selected interrupt, with a confirmation timeout in seconds. */
export async function apply(page: Page, irq: number, cpus: string, seconds: string): Promise<void> {
  await page.getByLabel("Move to CPUs").fill(cpus);
  await page.getByLabel("Confirm within").selectOption(seconds);
  await page
    .getByRole("region", { name: "Preview" })
    .getByRole("cell", { name: `IRQ ${irq}`, exact: true })
    .waitFor();
  await page.getByRole("button", { name: /^Apply for/ }).click();
  await page.getByRole("button", { name: "Confirm" }).waitFor();
}

/** Creates a policy in mode recommend through its form and returns the URL of its page. */
export async function newPolicy(page: Page, { url }: Stack, kind: string, name: string): Promise<string> {
  await page.goto(`${url}/policies`);
  await page.getByRole("link", { name: kind }).click();
  await page.getByRole("textbox", { name: "Name", exact: true }).fill(name);
  await page.getByRole("button", { name: "Create policy" }).click();
  await page.waitForURL(/\/policies\/\d+/);
  return page.url();
}

/** Polls an affinity until it has the given value: procfs has no notifications. Throws after 60 s. */
export async function waitForAffinity(affinity: () => Promise<string>, cpus: string): Promise<void> {
  const end = Date.now() + 60_000;
  let current = await affinity();
  while (current !== cpus) {
    if (Date.now() > end) throw new Error(`The affinity is ${current}, not ${cpus}.`);
    await setTimeout(50);
    current = await affinity();
  }
}
