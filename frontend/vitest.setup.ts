import { readFileSync } from "node:fs";
import { cleanup, configure } from "@testing-library/react";
import { afterEach, vi } from "vitest";
import { setFormSchemas } from "./src/forms/formSchemas";

configure({ asyncUtilTimeout: 20_000 }); // on a busy machine a second is too short
afterEach(cleanup);

// the schemas that the backend publishes, as its golden test has them
setFormSchemas(JSON.parse(readFileSync("../tests/fixtures/golden/form_schemas.json", "utf8")));

// jsdom has no layout: these are asked for, and have nothing to tell here.
vi.stubGlobal("scrollTo", () => undefined);
vi.stubGlobal("matchMedia", (query: string) => ({
  matches: false,
  media: query,
  addEventListener: () => undefined,
  removeEventListener: () => undefined,
}));
vi.stubGlobal(
  "ResizeObserver",
  class {
    observe() {}
    unobserve() {}
    disconnect() {}
  },
);
