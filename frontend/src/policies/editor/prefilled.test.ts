import { describe, expect, it } from "vitest";
import { newDraft, prefilled } from "./policyDraft";

describe("a form that another page fills", () => {
  it("gets the values of fields that its kind has, and keeps its defaults otherwise", () => {
    const draft = newDraft("irq-spread");
    const filled = prefilled(draft, { "selector.hostnames": "db-1", "spec.exclude": undefined, "spec.unknown": "1" });
    expect(filled.values).toEqual({ ...draft.values, "selector.hostnames": "db-1" });
    expect(prefilled(draft, { "spec.exclude": "0-1" }).values["spec.exclude"]).toBe("0-1");
  });
});
