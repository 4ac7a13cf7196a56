// Browser test of the lab: from a click to the kernel of a virtual machine with two sockets.
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { apply, bin, Child, launchBrowser, loaded, openIrq, setUp, waitForAffinity } from "./stack";

const node = "two-socket";
const screenshot = process.env.LAB_SCREENSHOT; // absolute path of docs/node-lab-dark.png to create it again
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
}, 900_000);

afterAll(async () => {
  await browser?.close();
  await lab?.stop();
});

/** Runs a shell command in the guest and returns its output. Throws if it fails. */
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

test("an interrupt moved in the browser moves in the guest's kernel; it stays if confirmed and is rolled back if not", async () => {
  const [confirmed, unconfirmed] = [await irqOf("eth0-TxRx-2"), await irqOf("eth0-TxRx-3")];
  await openIrq(page, node, confirmed);
  const target = (await affinity(confirmed)) === "4-5" ? "6-7" : "4-5"; // a second try finds what the first one confirmed
  await apply(page, confirmed, target, "30");
  expect(await affinity(confirmed)).toBe(target);
  await page.getByRole("button", { name: "Confirm" }).click();
  await page.getByRole("status").getByText("Confirmed.").first().waitFor();

  const before = await affinity(unconfirmed);
  await openIrq(page, node, unconfirmed);
  await apply(page, unconfirmed, "6", "30");
  expect(await affinity(unconfirmed)).toBe("6");
  await page.getByText(/rolls back unless confirmed/).waitFor();
  await waitForAffinity(() => affinity(unconfirmed), before);
  await page.getByText("Rolled back: not confirmed within 30 s.").waitFor();
  expect(await affinity(confirmed)).toBe(target); // past its own timeout
});

test("the managed interrupt of the guest's disk is locked", async () => {
  await openIrq(page, node, await irqOf("nvme0q3"));
  await page.getByText("This interrupt cannot be moved.").waitFor();
  await expect.poll(() => page.getByLabel("Move to CPUs").count()).toBe(0);
});

test.runIf(screenshot !== undefined)("screenshot of the node page under traffic", async () => {
  await inGuest("ethtool -N eth0 rx-flow-hash udp4 sdfn"); // over all queues; those of eth1 stay on one
  await page.goto(`${page.url().split("?")[0]}?span=60&sel=irq%3A${await irqOf("eth1-TxRx-2")}`);
  await page.getByRole("application", { name: /^Heatmap/ }).waitFor();
  await loaded(page);
  await page.waitForTimeout(70_000); // the charts show the last 60 s
  await page.getByLabel("Move to CPUs").fill("6");
  await page.getByRole("region", { name: "Preview" }).waitFor();
  await page.screenshot({ path: screenshot });
});
