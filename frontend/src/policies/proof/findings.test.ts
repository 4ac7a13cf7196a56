import { describe, expect, test } from "vitest";
import type { Policy } from "../types";
import { firstEvidence, provenText, reasonOf, rhythm, standingOf } from "./findings";
import type { VersionProof } from "./types";

const effect = (low: number | null, high: number | null) => ({ estimate: -0.031, low, high, episodes: 40 });

test.each([
  [effect(-0.04, -0.022), "−3.1 % (−4.0 to −2.2 %)"],
  [effect(null, null), "−3.1 %"],
])("an effect %o is written %s", (given, text) => expect(provenText(given)).toBe(text));

const policy = (version: number, enabled: boolean, to?: number) =>
  ({ version, enabled, rollout: to === undefined ? null : { state: "batches", to_version: to } }) as Policy;

test.each([
  [2, null, policy(2, true), "in force"],
  [2, "2026-11-22T12:00:00Z", policy(1, true), "rolled back"],
  [2, "2026-11-22T12:00:00Z", policy(2, true), "in force"], // an operator put it in force again
  [1, null, policy(2, true), "retired"],
  [2, null, policy(2, false), "retired"],
  [2, null, policy(1, true, 2), "rolling out"],
  [1, null, policy(1, true, 2), "in force"],
] as const)("version %i, rolled back at %s, of %o is %s", (version, rolled_back_at, of, standing) =>
  expect(standingOf({ version, rolled_back_at }, of)).toBe(standing),
);

test("the reason of a rollback is the metric that became worse", () => {
  const metrics = [
    { finding: "none_yet", sentence: "No effect detected yet." },
    { finding: "worsens", sentence: "Worsens RTT p99: +9.0 % [4.0, 15]." },
  ] as VersionProof["metrics"];
  expect(reasonOf({ metrics })).toBe("Worsens RTT p99: +9.0 % [4.0, 15].");
  expect(reasonOf({ metrics: [] })).toBeNull();
});

test("the rhythm follows from block length and share", () => {
  expect(rhythm({ block_s: 600, holdout_percent: 5 })).toBe(
    "Each node has an episode of 2 × 10\u00a0min in every 3\u00a0h 20\u00a0min.",
  );
});

describe("before the first evidence", () => {
  const start = Date.parse("2026-11-22T12:00:00Z");
  const given = (more: object) => ({
    episodes: 0,
    running: 0,
    waiting: 0,
    started_at: "2026-11-22T12:00:00Z",
    ...more,
  });
  const settings = { block_s: 600, holdout_percent: 5 };
  test.each([
    [{}, settings, start, /^The first episode ends by .* at the latest\.$/],
    [{ running: 2 }, settings, start, "The first episode ends within 20\u00a0min."],
    [{ waiting: 1 }, settings, start, "The samples of the first episode are being completed."],
    [{}, settings, start + 86_400_000, "No episode has counted so far."],
  ] as const)("%o is shown", (more, of, now, text) => expect(firstEvidence(given(more), of, now)).toMatch(text));
  test("nothing is shown with evidence, or without a holdout", () => {
    expect(firstEvidence(given({ episodes: 1 }), settings, start)).toBeNull();
    expect(firstEvidence(given({}), { block_s: 600, holdout_percent: 0 }, start)).toBeNull();
  });
});
