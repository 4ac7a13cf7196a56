import { ApiProblem, errorMessage } from "../api/client";

/** The error of a form's request, unless all its messages are shown at their fields. */
export function FormError({ error, fields }: { error: unknown; fields: string[] }) {
  if (error === null) return null;
  if (error instanceof ApiProblem && error.errors.length > 0 && fields.some((field) => error.field(field))) return null;
  return (
    <p className="bad" role="alert">
      {errorMessage(error)}
    </p>
  );
}

/** The message for one field of a form, for an input's error property; null without one. */
export function fieldError(error: unknown, name: string): string | undefined {
  return error instanceof ApiProblem ? error.field(name) : undefined;
}
