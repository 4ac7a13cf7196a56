import type { Schemas } from "../api/client";

export type Study = Schemas["Simulation"];
export type Summary = Schemas["SimulationSummary"];
export type State = Schemas["SimulationState"];
/** A specification in a response: every field is present. */
export type Spec = Study["spec"];
/** A specification in a request: fields with a default may be absent. */
export type SpecIn = Schemas["SimulationRequest"]["spec"];
export type CellSummary = Study["cells"][number];
export type Cell = CellSummary["cell"];
export type Pattern = Cell["pattern"];
export type SystemTime = CellSummary["times"];
export type Verdict = Study["verdicts"][number];
export type Effect = Verdict["effects"][number];
export type ParameterValue = Study["parameters"][number];
