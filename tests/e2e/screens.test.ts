// Takes a picture of every screen, dark and light, 1440 and 390 px wide, with nodes of 2, 64 and 256 CPUs, about 8 min:
// SCREENS=<absolute path of a folder> tests/e2e/run screens.test.ts; ONLY=<pattern of names> for some of them.
// Per screen the first view, and the whole page where it is longer: node-64-390-dark.png, node-64-390-dark-whole.png.
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import type { Page } from "playwright-core";
import { expect, test } from "vitest";
import { furnish, overflow, settled } from "./screens";
import { launchBrowser, setUp, startStack } from "./stack";

const folder = process.env.SCREENS;
const only = new RegExp(process.env.ONLY ?? "");
const SIZES = [
  { width: 1440, height: 900 },
  { width: 390, height: 844 },
];
const MAX_HEIGHT = 6000;
const HISTORY_S = Number(process.env.HISTORY_S ?? 60); // for the charts to show something
const DRAWN_MS = 1200; // live values arrive once a second

/** Takes the first view, and the whole page where it is longer. */
async function shoot(page: Page, path: string): Promise<void> {
  const size = page.viewportSize();
  if (size === null) throw new Error("The page has no size.");
  await page.screenshot({ path: `${path}.png` });
  const height = await page.evaluate(() => document.documentElement.scrollHeight);
  if (height <= size.height) return;
  await page.setViewportSize({ width: size.width, height: Math.min(height, MAX_HEIGHT) });
  await page.waitForTimeout(DRAWN_MS / 2);
  await page.screenshot({ path: `${path}-whole.png` });
  await page.setViewportSize(size);
}

test.runIf(folder !== undefined)(
  "pictures of every screen",
  async () => {
    await mkdir(folder as string, { recursive: true });
    const stack = await startStack();
    const browser = await launchBrowser();
    const wide: string[] = [];
    try {
      const first = await browser.newPage();
      await setUp(first, stack);
      const screens = await furnish(first, stack, true);
      await first.waitForTimeout(HISTORY_S * 1000);
      for (const size of SIZES)
        for (const colorScheme of ["dark", "light"] as const) {
          const context = await browser.newContext({
            ...{ viewport: size, colorScheme, hasTouch: size.width < 600 },
            storageState: await first.context().storageState(),
          });
          const signedIn = await context.newPage();
          const signedOut = await browser.newPage({ viewport: size, colorScheme });
          for (const screen of screens) {
            const name = [screen.name, screen.cpus, size.width, colorScheme].filter(Boolean).join("-");
            if (!only.test(name)) continue;
            const page = screen.signedOut ? signedOut : signedIn;
            await page.goto(`${stack.url}${screen.path}`);
            await settled(page, screen).catch((error) => wide.push(`${name}: ${error}`));
            await page.waitForTimeout(DRAWN_MS);
            wide.push(...(await overflow(page)).map((line) => `${name}: ${line}`));
            await shoot(page, join(folder as string, name));
          }
          await context.close();
          await signedOut.close();
        }
    } finally {
      await browser.close();
      await stack.stop();
    }
    expect(wide).toEqual([]);
  },
  3_600_000,
);
