import type { Schemas } from "../api/client";
import { api as typed } from "../api/client";

/** Endpoints that the generated types do not know yet, by backend/coresteer/experiments/schemas.py. */

export type Template = {
  slug: string;
  title: string;
  paper: string;
  explains: string;
  spec: Schemas["Experiment"]["spec"] | null;
  unavailable_because: string | null;
  differs: string[];
  authors: { arm: string; metric: string; text: string; value: number | null }[];
};
type ShareAnswer = { url: string; token: string; expires_at: string };
type Path = { params: { path: { experiment_id: number } } };

export const api = typed as unknown as {
  GET(
    path: "/api/nodes/{node_id}/experiment-templates",
    init: { params: { path: { node_id: number } }; signal: AbortSignal },
  ): Promise<{ data?: Template[] }>;
  POST(
    path: "/api/experiments/{experiment_id}/share",
    init: Path & { body: { days: number } },
  ): Promise<{ data?: ShareAnswer }>;
  DELETE(path: "/api/experiments/{experiment_id}/share", init: Path): Promise<{ data?: undefined }>;
};
