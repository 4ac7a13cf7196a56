import { expect, test } from "vitest";
import { tokenAllows } from "./enrolment";

const ONE = { max_uses: 1, simulated: false, node_name: null, name_pattern: null, labels: {}, rejoin_until: null };

test.each([
  [{}, "Enrols one node. Nodes that exist do not enrol again."],
  [
    { max_uses: 50, name_pattern: "db-*", labels: { role: "db", rack: "r01" } },
    "Enrols up to 50 nodes named db-*, labelled role=db rack=r01. Nodes that exist do not enrol again.",
  ],
  [
    { rejoin_until: "2026-11-30T08:00:00", name_pattern: "*" },
    "Enrols one node named *. Until 2026-11-30 08:00:00, nodes that exist enrol again, and their keys so far end.",
  ],
  [{ simulated: true }, "Enrols simulated nodes."],
  [{ node_name: "web-1" }, "Enrols web-1 again, whose key so far ends."],
])("a token with %j is described in one line", (fields, sentence) => {
  expect(tokenAllows({ ...ONE, ...fields })).toBe(sentence);
});
