// Starts the whole of Coresteer as `make up` does, in a private state directory on a free port, and stops it again.
import { type ChildProcess, spawn } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Browser, chromium, type Page } from "playwright-core";

export const repository = new URL("../../", import.meta.url).pathname;
const bin = (name: string) => join(repository, ".venv/bin", name);

export const admin = { username: "ada", password: "correct horse battery" };

async function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.on("error", reject);
    server.listen(0, "127.0.0.1", () => {
      const address = server.address();
      const port = typeof address === "object" && address !== null ? address.port : 0;
      server.close(() => resolve(port));
    });
  });
}

/** A child process whose output can be awaited. */
export class Child {
  output = "";
  readonly exited: Promise<number | null>;

  constructor(readonly process: ChildProcess) {
    const collect = (chunk: Buffer) => {
      this.output += chunk.toString();
    };
    process.stdout?.on("data", collect);
    process.stderr?.on("data", collect);
    this.exited = new Promise((resolve) => process.on("exit", (code) => resolve(code)));
  }

  async until(pattern: RegExp): Promise<RegExpMatchArray> {
    const ended = { code: undefined as number | null | undefined };
    void this.exited.then((code) => {
      ended.code = code;
    });
    for (;;) {
      const match = this.output.match(pattern);
      if (match) return match;
      if (ended.code !== undefined) throw new Error(`It ended with ${ended.code} before ${pattern}:\n${this.output}`);
      await new Promise((resolve) => this.process.stdout?.once("data", resolve) && this.process.once("exit", resolve));
    }
  }

  async stop(): Promise<void> {
    this.process.kill("SIGINT");
    await this.exited;
  }
}

export interface Stack {
  url: string;
  setupLink: string;
  env: NodeJS.ProcessEnv;
  child: Child;
  stop(): Promise<void>;
}

/** `agentRoot` lets the local agent work on a captured tree instead of this machine. */
export async function startStack(options: { agentRoot?: string } = {}): Promise<Stack> {
  const stateDir = await mkdtemp(join(tmpdir(), "coresteer-e2e-"));
  const port = await freePort();
  const env: NodeJS.ProcessEnv = { ...process.env, CORESTEER_STATE_DIR: stateDir, CORESTEER_PORT: String(port) };
  delete env.DATABASE_URL;
  if (options.agentRoot) env.CORESTEER_AGENT_ROOT = options.agentRoot;
  const child = new Child(spawn(bin("coresteer"), ["up"], { env, stdio: ["ignore", "pipe", "pipe"] }));
  const link = await child.until(/(http:\/\/\S+\/setup\?token=\S+)/);
  return {
    url: `http://127.0.0.1:${port}`,
    setupLink: link[1] ?? "",
    env,
    child,
    async stop() {
      await child.stop();
      await rm(stateDir, { recursive: true, force: true });
    },
  };
}

/** Simulated nodes that join a stack. */
export function startSimulation(stack: Stack, args: string[]): Child {
  const script = `exec "$0" simulate --backend "$1" --token "$("$2" enrolment-token --simulated)" "\${@:3}"`;
  return new Child(
    spawn("bash", ["-c", script, bin("coresteer-agent"), stack.url, bin("coresteer"), ...args], {
      env: stack.env,
      stdio: ["ignore", "pipe", "pipe"],
    }),
  );
}

export async function launchBrowser(): Promise<Browser> {
  return chromium.launch({
    executablePath: process.env.CHROMIUM,
    args: [
      "--no-sandbox",
      "--disable-gpu",
      "--disable-quic",
      "--no-first-run",
      "--disable-background-networking",
      "--disable-component-update",
      "--disable-sync",
    ],
  });
}

/** Makes the first administrator through the set-up link, as a person would, and leaves them signed in. */
export async function setUp(page: Page, stack: Stack): Promise<void> {
  await page.goto(stack.setupLink);
  await page.getByLabel("User name").fill(admin.username);
  await page.getByLabel(/^Password/).first().fill(admin.password);
  await page.getByRole("button", { name: /create|make|set up/i }).click();
  await page.waitForURL(/\/(fleet|nodes)/);
}
