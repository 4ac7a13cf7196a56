// The lab's browser test: from a click to the kernel of a virtual machine with two sockets, and back.
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { apply, bin, Child, kernelSays, launchBrowser, openIrq, setUp } from "./stack";

const node = "two-socket";
const screenshot = process.env.LAB_SCREENSHOT;
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

test("a queue's interrupt moved to the other socket is there in the guest's kernel, and returns when nobody keeps it", async () => {
  const irq = await irqOf("eth0-TxRx-3");
  const before = await affinity(irq);
  const target = before === "6" ? "5" : "6";
  await openIrq(page, node, irq);
  await apply(page, irq, target, "30");
  expect(await affinity(irq)).toBe(target);
  await page.getByText(/it returns in/i).waitFor();
  await kernelSays(() => affinity(irq), before);
  await page.getByText("Nobody kept it in time, so it returned by itself.").waitFor();
});

test("a kept one stays when its time is over", async () => {
  const kept = await irqOf("eth1-TxRx-2");
  await openIrq(page, node, kept);
  await apply(page, kept, "4-5", "30");
  await page.getByRole("button", { name: "Keep" }).click();
  await page.getByRole("status").getByText("Kept.").first().waitFor();
  // one that nobody keeps, applied later for as long: once it is back, the time of the kept one is over too
  const other = await irqOf("eth1-TxRx-3");
  const before = await affinity(other);
  await openIrq(page, node, other);
  await apply(page, other, "7", "30");
  expect(await affinity(other)).toBe("7");
  await kernelSays(() => affinity(other), before);
  expect(await affinity(kept)).toBe("4-5");
});

test("a queue of the guest's disk, whose interrupt the kernel keeps to itself, is locked", async () => {
  await openIrq(page, node, await irqOf("nvme0q3"));
  await page.getByText("This interrupt cannot be moved.").waitFor();
  expect(await page.getByLabel("Move to CPUs").count()).toBe(0);
});

test.runIf(screenshot !== undefined)("the node's page under traffic, for the documents", async () => {
  await inGuest("ethtool -N eth0 rx-flow-hash udp4 sdfn"); // over all queues; those of eth1 stay on one
  await page.goto(`${page.url().split("?")[0]}?sel=irq%3A${await irqOf("eth0-TxRx-3")}`);
  await page.getByRole("application", { name: /^Heatmap/ }).waitFor();
  await page.locator("[aria-busy=true]").waitFor({ state: "detached" });
  await page.waitForTimeout(60_000); // a minute of it fills the charts
  await page.screenshot({ path: screenshot });
});
