import { render, screen } from "@testing-library/react";
import { expect, test } from "vitest";
import type { Schemas } from "../api/client";
import { Figures } from "./Figures";

test.each([
  ["of all nodes, the only one is named", 2, 1, "1web-3"],
  ["of a filter without any, none is named", 1, 0, "0"],
  ["of people and policies, none is named", 2, 9, "9"],
])("the figure of unconfirmed changes %s", (_, shown, open_changes, text) => {
  const totals = { nodes: shown, open_changes, health: { live: 1 }, sums: {}, worst: {}, hot: null };
  const answer = { nodes: 2, totals, compared: null } as unknown as Schemas["FleetAnswer"];
  const changes = [{ node_name: "web-3" } as Schemas["Change"]];
  render(<Figures answer={answer} isPast={false} isLoading={false} changes={changes} />);
  const figure = screen.getByText("Unconfirmed changes").parentElement;
  expect(figure?.textContent?.replaceAll(" ", "")).toBe(`Unconfirmedchanges${text}`);
});
