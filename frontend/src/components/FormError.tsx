import { ApiProblem, sentenceOf } from "../api/client";

/** What a form's request was refused for, unless every message already stands at its field. */
export function FormError({ error, fields }: { error: unknown; fields: string[] }) {
  if (error === null) return null;
  if (error instanceof ApiProblem && error.errors.length > 0 && fields.some((field) => error.field(field))) return null;
  return (
    <p className="bad" role="alert">
      {sentenceOf(error)}
    </p>
  );
}

/** The message for one field of a form, for an input's error property. */
export function fieldError(error: unknown, name: string): string | undefined {
  return error instanceof ApiProblem ? error.field(name) : undefined;
}
