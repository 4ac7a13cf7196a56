import { ApiProblem } from "../api/client";

/** By a field's path, what the form itself or the backend (`body.spec.act_percent`) says against it. */
export function fieldErrors(read: Record<string, string> | null, error: unknown): Record<string, string> {
  const said = error instanceof ApiProblem ? error.errors : [];
  return {
    ...Object.fromEntries(said.map(({ field, message }) => [field.replace(/^body\./, ""), message])),
    ...read,
  };
}
