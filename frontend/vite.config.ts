import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";

export default defineConfig({
  plugins: [react()],
  build: {
    outDir: "dist",
    target: "es2023",
    assetsInlineLimit: 0,
    chunkSizeWarningLimit: 1600, // the library of /docs, which no other page loads
    rolldownOptions: { input: ["index.html", "docs.html"] },
  },
  server: { proxy: { "/api": { target: "http://127.0.0.1:8420", ws: true } } },
  test: {
    environment: "jsdom",
    setupFiles: ["vitest.setup.ts"],
    testTimeout: 60_000, // a test fails when what it awaits never comes, not when the machine is busy
    projects: [
      // a new DOM for each file takes longer than the tests; those of functions share one
      { extends: true, test: { name: "functions", include: ["src/**/*.test.ts"], isolate: false } },
      { extends: true, test: { name: "components", include: ["src/**/*.test.tsx"] } },
    ],
  },
});
