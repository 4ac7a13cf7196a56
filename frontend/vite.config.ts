import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";

export default defineConfig({
  plugins: [react()],
  build: { outDir: "dist", target: "es2023", assetsInlineLimit: 0 },
  server: { proxy: { "/api": { target: "http://127.0.0.1:8420", ws: true } } },
  test: { environment: "jsdom", setupFiles: ["vitest.setup.ts"], include: ["src/**/*.test.{ts,tsx}"] },
});
