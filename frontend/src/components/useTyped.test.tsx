import { act, renderHook } from "@testing-library/react";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { useTyped } from "./useTyped";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

/** A field whose navigations change the URL when the test says so. */
function setUp(url = "") {
  const published: string[] = [];
  const { result, rerender } = renderHook((value: string) => useTyped(value, (text) => published.push(text)), {
    initialProps: url,
  });
  return {
    published,
    text: () => result.current.typed,
    navigated: rerender,
    type: (text: string) => act(() => result.current.type(text)),
    pause: () => act(() => vi.advanceTimersByTime(1_000)),
  };
}

test("text typed during a navigation stays in the field and is published next", () => {
  const field = setUp();
  field.type("role");
  field.pause();
  field.type("role=");
  field.pause();
  field.type("role=db");
  field.navigated("role");
  expect(field.text()).toBe("role=db");
  field.navigated("role=");
  expect(field.text()).toBe("role=db");
  field.pause();
  expect(field.published).toEqual(["role", "role=", "role=db"]);
});

test("a space at the end stays in the field and is not published", () => {
  const field = setUp();
  field.type("IRQ ");
  field.pause();
  field.navigated("IRQ");
  expect([field.text(), field.published]).toEqual(["IRQ ", ["IRQ"]]);
});

test("the field takes over what it did not publish", () => {
  const field = setUp("db");
  field.type("web");
  field.pause();
  field.navigated("web");
  field.navigated("db");
  field.pause();
  expect([field.text(), field.published]).toEqual(["db", ["web"]]);
});
