// Retakes docs/node-dark.png: SCREENSHOT=<absolute path> tests/e2e/run screenshot.test.ts
import { expect, test } from "vitest";
import { launchBrowser, openIrq, setUp, startSimulation, startStack } from "./stack";

const screenshot = process.env.SCREENSHOT;
const SPAN_S = 300;

test.runIf(screenshot !== undefined)(
  "screenshot of a simulated node's page with the preview of an affinity",
  async () => {
    const stack = await startStack();
    startSimulation(stack, ["--nodes", "1", "--cpus", "16", "--irqs", "60"]);
    const browser = await launchBrowser();
    try {
      const page = await browser.newPage({ viewport: { width: 1560, height: 1180 }, colorScheme: "dark" });
      await setUp(page, stack);
      await openIrq(page, "sim16-0001", 26);
      await page.waitForTimeout(SPAN_S * 1000); // the charts show this span
      await page.getByLabel("Move to CPUs").fill("9");
      await page.getByRole("region", { name: "Preview" }).getByText("if not confirmed").waitFor();
      await page.screenshot({ path: screenshot });
      await expect.poll(() => page.locator("[aria-busy=true]").count()).toBe(0);
    } finally {
      await browser.close();
      await stack.stop();
    }
  },
  (SPAN_S + 60) * 1000,
);
