import { ApiProblem } from "../api/client";

/** Error messages by field path: those of the backend's response, and of the form's validation (read), which take precedence. */
export function fieldErrors(read: Record<string, string> | null, error: unknown): Record<string, string> {
  const rejected = error instanceof ApiProblem ? error.errors : [];
  return {
    ...Object.fromEntries(rejected.map(({ field, message }) => [field.replace(/^body\./, ""), message])),
    ...read,
  };
}
