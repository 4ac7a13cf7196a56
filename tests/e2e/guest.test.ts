// The lab's browser test: from a click to the kernel of a virtual machine with two sockets, and back.
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { apply, bin, Child, kernelSays, launchBrowser, openIrq, setUp } from "./stack";

const node = "two-socket";
const screenshot = process.env.LAB_SCREENSHOT; // absolute path of docs/node-lab-dark.png to make it anew
const traffic = screenshot === undefined ? [] : ["--traffic", "udp"];

let lab: Child;
let browser: Browser;
let page: Page;

beforeAll(async () => {
  lab = new Child(bin("python"), ["-m", "tests.lab.up", "two_socket", ...traffic], process.env);
  const setUpLink = await lab.until(/http:\S+\/setup\?token=\S+/);
  await lab.until(/Ctrl-C ends everything\.\n/);
  browser = await launchBrowser();
  page = await browser.newPage({ viewport: { width: 1440, height: 1100 }, colorScheme: "dark" });
  await setUp(page, { setUpLink });
}, 240_000);

afterAll(async () => {
  await browser?.close();
  await lab?.stop();
});

/** What a shell command prints in the guest. */
async function inGuest(command: string): Promise<string> {
  const before = lab.output.length;
  lab.type(command);
  const answer = await lab.until(/^[\s\S]*\[\d+\]\n$/, before);
  if (!answer.endsWith("[0]\n")) throw new Error(`“${command}” failed in the guest: ${answer}`);
  return answer.slice(0, -"[0]\n".length).trim();
}

async function irqOf(name: string): Promise<number> {
  return Number(await inGuest(`sed -n 's/^ *\\([0-9]*\\):.* ${name}$/\\1/p' /proc/interrupts`));
}

const affinity = (irq: number) => inGuest(`cat /proc/irq/${irq}/smp_affinity_list`);

test("an interrupt moved in the browser is there in the guest's kernel, stays if kept and returns if not", async () => {
  const [kept, left] = [await irqOf("eth0-TxRx-2"), await irqOf("eth0-TxRx-3")];
  await openIrq(page, node, kept);
  await apply(page, kept, "4-5", "30");
  expect(await affinity(kept)).toBe("4-5");
  await page.getByRole("button", { name: "Keep" }).click();
  await page.getByRole("status").getByText("Kept.").first().waitFor();

  const before = await affinity(left);
  await openIrq(page, node, left);
  await apply(page, left, "6", "30");
  expect(await affinity(left)).toBe("6");
  await page.getByText(/it returns in/i).waitFor();
  await kernelSays(() => affinity(left), before);
  await page.getByText("Nobody kept it in time, so it returned by itself.").waitFor();
  expect(await affinity(kept)).toBe("4-5"); // its time was over earlier
});

test("a queue of the guest's disk, whose interrupt the kernel keeps to itself, is locked", async () => {
  await openIrq(page, node, await irqOf("nvme0q3"));
  await page.getByText("This interrupt cannot be moved.").waitFor();
  expect(await page.getByLabel("Move to CPUs").count()).toBe(0);
});

test.runIf(screenshot !== undefined)("the node's page under traffic, for the documents", async () => {
  await inGuest("ethtool -N eth0 rx-flow-hash udp4 sdfn"); // over all queues; those of eth1 stay on one
  await page.goto(`${page.url().split("?")[0]}?span=60&sel=irq%3A${await irqOf("eth1-TxRx-2")}`);
  await page.getByRole("application", { name: /^Heatmap/ }).waitFor();
  await page.locator("[aria-busy=true]").waitFor({ state: "detached" });
  await page.waitForTimeout(70_000); // more than a minute of it fills the charts
  await page.getByLabel("Move to CPUs").fill("6");
  await page.getByRole("region", { name: "Preview" }).waitFor();
  await page.screenshot({ path: screenshot });
});
