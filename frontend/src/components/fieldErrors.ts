import { ApiProblem } from "../api/client";

/** Messages by field path, from the form's validation and the backend's response (`body.spec.act_percent`). */
export function fieldErrors(read: Record<string, string> | null, error: unknown): Record<string, string> {
  const said = error instanceof ApiProblem ? error.errors : [];
  return {
    ...Object.fromEntries(said.map(({ field, message }) => [field.replace(/^body\./, ""), message])),
    ...read,
  };
}
