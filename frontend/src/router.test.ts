import { waitFor } from "@testing-library/react";
import { expect, test, vi } from "vitest";
import { meQuery, openChangesQuery, queryClient } from "./api/queries";
import { router } from "./router";

/** A fake backend with the status of its answers by the end of the path; undefined: it does not answer. */
const backend = vi.hoisted(() => {
  const state = { status: (_path: string): number | undefined => 200 };
  globalThis.fetch = async (input) => {
    const { pathname } = new URL((input as Request).url);
    const status = state.status(pathname);
    if (status === undefined) return new Promise<Response>(() => undefined);
    const body = pathname.endsWith("/setup") ? { needs_setup: false } : { changes: [], experiments: [] };
    return Response.json(body, { status });
  };
  return state;
});

/** Opens a page; all that was loaded before is old. */
async function open(path: string) {
  await queryClient.invalidateQueries();
  router.history.push(path);
  void router.load();
}
const opened = (path: string) => waitFor(() => expect(router.state.resolvedLocation?.pathname).toBe(path));

test("only the first page waits for the backend", async () => {
  await open("/first");
  await opened("/first");
  expect(queryClient.getQueryData(openChangesQuery.queryKey)).toBeDefined();
  backend.status = () => undefined;
  await open("/during-an-outage");
  await opened("/during-an-outage");
});

test("a session that has ended while a page is open leads to the login, when the user is asked for again", async () => {
  await queryClient.cancelQueries();
  backend.status = () => 200;
  await open("/first");
  await opened("/first");
  backend.status = (path) => (path.endsWith("/me") ? 401 : 200);
  await queryClient.invalidateQueries({ queryKey: meQuery.queryKey, refetchType: "all" });
  await opened("/login");
});

test("a session that has ended leads to the login, from a page that did not wait", async () => {
  await queryClient.cancelQueries();
  backend.status = (path) => (path.endsWith("/setup") ? 200 : 401);
  await open("/after-the-session");
  await opened("/login");
  expect(router.state.location.search).toEqual({ back: "/after-the-session" });
  expect(queryClient.getQueryData(meQuery.queryKey)).toBeUndefined();
});
