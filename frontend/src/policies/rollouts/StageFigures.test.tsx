import { render, screen } from "@testing-library/react";
import { expect, test } from "vitest";
import type { Schemas } from "../../api/client";
import { StageFigures } from "./StageFigures";

test("a figure that is not compared says why, not that no node waits", () => {
  const why = "of 50 waiting nodes, none that was read has enough samples and traffic";
  const sentence = `CPU per gigabit: +300 % from before to after; ${why}, so this may have other causes.`;
  const figure: Schemas["StageFigure"] = {
    ...{ metric: "cpu_s_per_gbit", label: "CPU per gigabit", unit: "s/Gbit", nodes: 1, before: 0.1, after: 0.4 },
    ...{ change: 3, waiting_nodes: 0, waiting_change: null, effect: null, low: null, high: null },
    ...{ verdict: "not_compared", sentence },
  };
  const evidence = { stage: 0, at: "2026-11-21T08:00:00Z", window_s: 45, figures: [figure], sentence };
  render(<StageFigures evidence={evidence as unknown as Schemas["StageEvidence"]} />);
  expect(screen.getAllByTitle(sentence).map((one) => one.tagName)).toEqual(["SPAN", "SPAN"]);
});
