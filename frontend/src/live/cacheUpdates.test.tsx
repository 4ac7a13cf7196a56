import { act, renderHook } from "@testing-library/react";
import { expect, test, vi } from "vitest";
import type { Schemas } from "../api/client";
import { nodeQuery, queryClient } from "../api/queries";
import { useLiveCache } from "./cacheUpdates";

/** The socket through which the test sends events. */
const sockets = vi.hoisted(() => {
  const opened: WebSocket[] = [];
  vi.stubGlobal(
    "WebSocket",
    class {
      constructor() {
        opened.push(this as unknown as WebSocket);
      }
      close() {}
    },
  );
  return opened;
});

test.each([
  ["live", false],
  ["away", true],
])("when a node that was live is %s, its previews are outdated: %s", (health, outdated) => {
  const node = { id: 1, name: "db-1", health: "live" } as Schemas["Node"];
  const preview = ["preview", 1, {}];
  queryClient.setQueryData(nodeQuery(1).queryKey, node);
  queryClient.setQueryData(preview, {});
  renderHook(useLiveCache);
  const data = JSON.stringify({ type: "node", node: { ...node, health } });
  act(() => sockets.at(-1)?.onmessage?.({ data } as MessageEvent));
  expect(queryClient.getQueryData(nodeQuery(1).queryKey)?.health).toBe(health);
  expect(queryClient.getQueryState(preview)?.isInvalidated).toBe(outdated);
});
