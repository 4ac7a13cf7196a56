import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));

// The browser tests live beside the other tests, outside this package, so their imports are pointed at its modules.
export default defineConfig({
  root: here("../tests/e2e"),
  resolve: {
    alias: {
      "playwright-core": here("node_modules/playwright-core/index.mjs"),
      "axe-core": here("node_modules/axe-core/axe.js"),
      vitest: here("node_modules/vitest/dist/index.js"),
    },
  },
  test: {
    include: ["**/*.test.ts"],
    setupFiles: ["failed.ts"],
    fileParallelism: false,
    retry: process.env.CI ? 1 : 0, // a shared machine can starve a test, see the Makefile
    testTimeout: 300_000,
    hookTimeout: 300_000,
    expect: { poll: { timeout: 60_000 } },
  },
});
