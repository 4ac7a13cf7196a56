import type { Schemas } from "../../api/client";

export type PolicyProof = Schemas["PolicyProof"];
export type FleetProof = Schemas["FleetProof"];
export type VersionProof = Schemas["VersionProof"];
export type MetricProof = Schemas["MetricProof"];
export type ProvenEffect = Schemas["ProvenEffect"];
export type Finding = Schemas["Finding"];
