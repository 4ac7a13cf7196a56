import type { Schemas } from "../api/client";

export type PolicyBody = Schemas["PolicyBody"];
export type Policy = Schemas["Policy"];
export type Rollout = Schemas["Rollout"];
export type Approval = Schemas["Approval"];
export type RolloutCreate = Schemas["RolloutCreate"];
export type Spec = PolicyBody["spec"];
export type Kind = Spec["type"];
export type ServiceClasses = Extract<Spec, { type: "service-class" }>;
export type ServiceClass = ServiceClasses["classes"][number];
export type Mode = Schemas["Mode"];
export type Decision = Schemas["Decision"];
export type Evaluation = Decision["evaluation"];
export type Metric = Schemas["GuardrailIn"]["metric"];

export type PolicyVersion = { version: number; body: PolicyBody; created_at: string; created_by: string; note: string };
export type Overview = Schemas["PolicyOverview"];
export type OnNode = Overview["nodes"][number];
