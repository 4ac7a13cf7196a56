import { api as typed } from "../api/client";

/** Endpoints that the generated types do not know yet, by backend/coresteer/experiments/schemas.py. */

type ShareAnswer = { url: string; token: string; expires_at: string };
type Path = { params: { path: { experiment_id: number } } };

export const api = typed as unknown as {
  POST(
    path: "/api/experiments/{experiment_id}/share",
    init: Path & { body: { days: number } },
  ): Promise<{ data?: ShareAnswer }>;
  DELETE(path: "/api/experiments/{experiment_id}/share", init: Path): Promise<{ data?: undefined }>;
};
