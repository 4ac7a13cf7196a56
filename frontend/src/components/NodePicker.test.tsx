import { MantineProvider } from "@mantine/core";
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { fireEvent, render, screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { beforeEach, expect, test, vi } from "vitest";
import { NodePicker, NodeSelect } from "./NodePicker";

const NODES = [
  { id: 1, name: "db-1" },
  { id: 2, name: "web-1" },
  { id: 3, name: "db-10" },
];

/** A fake backend that searches names, and answers after `answer` is called. */
const backend = vi.hoisted(() => {
  const state = {
    answer: () => undefined as unknown,
    ready: Promise.resolve() as Promise<unknown>,
    sizes: [] as number[],
    asked: [] as string[],
  };
  globalThis.fetch = async (input) => {
    const { searchParams } = new URL((input as Request).url);
    const [q, ids] = [searchParams.get("q") ?? "", searchParams.getAll("id").map(Number)];
    state.sizes.push(Number(searchParams.get("limit")));
    state.asked.push(q);
    await state.ready;
    const rows = NODES.filter(({ id, name }) => name.includes(q.toLowerCase()) && (!ids.length || ids.includes(id)));
    return Response.json({ rows });
  };
  return state;
});

beforeEach(() => {
  backend.ready = new Promise((resolve) => {
    backend.answer = () => resolve(undefined);
  });
  backend.sizes.length = 0;
  backend.asked.length = 0;
});

const show = (field: React.ReactNode) =>
  render(
    <MantineProvider>
      <QueryClientProvider client={new QueryClient()}>{field}</QueryClientProvider>
    </MantineProvider>,
  );

function setUp() {
  const onPick = vi.fn();
  show(<NodePicker label="Node" placeholder="by name" onPick={onPick} />);
  return { input: screen.getByRole<HTMLInputElement>("combobox"), onPick };
}

test("a full name selects its node, Enter the first match, of what the backend finds", async () => {
  const { input, onPick } = setUp();
  backend.answer();
  await userEvent.type(input, "web-1");
  await waitFor(() => expect(onPick.mock.calls).toEqual([[2]]));
  expect(input.value).toBe("");
  await userEvent.type(input, "DB{Enter}");
  await waitFor(() => expect(onPick.mock.calls).toEqual([[2], [1]]));
  await userEvent.type(input, "mail{Enter}");
  await screen.findByText("No node has this name.");
  expect(onPick).toHaveBeenCalledTimes(2);
  expect(Math.max(...backend.sizes)).toBe(50);
});

test.each(["web-1", "web{Enter}"])("%s typed before the nodes are loaded selects its node", async (typed) => {
  const { input, onPick } = setUp();
  await userEvent.type(input, typed);
  expect(screen.queryByText("No node has this name.")).toBeNull();
  backend.answer();
  await waitFor(() => expect(onPick.mock.calls).toEqual([[2]]));
  expect(input.value).toBe("");
});

test("a name with which another one begins is selected by Enter or as a suggestion, not as it is typed", async () => {
  const { input, onPick } = setUp();
  backend.answer();
  await userEvent.type(input, "db-1");
  await waitFor(() => expect(backend.asked).toContain("db-1"));
  await userEvent.type(input, "0");
  await waitFor(() => expect(onPick.mock.calls).toEqual([[3]]));
  await userEvent.type(input, "db-1{Enter}");
  await waitFor(() => expect(onPick.mock.calls).toEqual([[3], [1]]));
  fireEvent.change(input, { target: { value: "db-1" } });
  await waitFor(() => expect(onPick.mock.calls).toEqual([[3], [1], [1]]));
});

test("a field shows the chosen node, selects another one, and none when it is emptied", async () => {
  backend.answer();
  const onChange = vi.fn();
  show(<NodeSelect label="Node" none="all nodes" nodeId={1} onChange={onChange} />);
  const input = screen.getByRole<HTMLInputElement>("combobox", { name: "Node" });
  await waitFor(() => expect(input.value).toBe("db-1"));
  await userEvent.click(input);
  await userEvent.paste("web-1");
  await waitFor(() => expect(onChange.mock.calls).toEqual([[2]]));
  await userEvent.clear(input);
  await waitFor(() => expect(onChange.mock.lastCall).toEqual([undefined]));
});
