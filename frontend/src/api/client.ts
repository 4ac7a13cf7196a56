import createClient, { type Middleware } from "openapi-fetch";
import type { components, paths } from "./schema";

export type Schemas = components["schemas"];

export type FieldError = { field: string; message: string };

/** What the backend said when it refused (`application/problem+json`), or that it said nothing (`status` 0). */
export class ApiProblem extends Error {
  readonly status: number;
  readonly type: string;
  readonly title: string;
  readonly detail: string;
  readonly errors: FieldError[];

  constructor(status: number, type: string, title: string, detail: string, errors: FieldError[] = []) {
    super(detail || title);
    this.name = "ApiProblem";
    this.status = status;
    this.type = type;
    this.title = title;
    this.detail = detail;
    this.errors = errors;
  }

  /** No answer from the backend itself. */
  get away(): boolean {
    return this.status === 0;
  }

  /** The backend answers, its database does not. */
  get databaseAway(): boolean {
    return this.type.endsWith("database-away");
  }

  /** The message for one field of a form, if there is one. */
  field(name: string): string | undefined {
    return this.errors.find((error) => error.field === name || error.field.endsWith(`.${name}`))?.message;
  }
}

const NO_ANSWER = "The backend does not answer. It may be restarting; this page keeps trying.";

async function problemOf(response: Response): Promise<ApiProblem> {
  if (!response.headers.get("content-type")?.includes("problem+json")) {
    // A proxy in between speaks for a backend that is away.
    if (response.status >= 502) return new ApiProblem(0, "away", "No answer", NO_ANSWER);
    return new ApiProblem(
      response.status,
      "unexpected",
      response.statusText,
      `The backend answered ${response.status}.`,
    );
  }
  const body = (await response.json()) as Partial<Omit<ApiProblem, "errors">> & { errors?: FieldError[] };
  return new ApiProblem(
    response.status,
    body.type ?? "about:blank",
    body.title ?? response.statusText,
    body.detail ?? "",
    body.errors ?? [],
  );
}

let csrfToken: string | null = null;

/** Told by Me; sent with every request that changes something. */
export function setCsrfToken(token: string | null): void {
  csrfToken = token;
}

const middleware: Middleware = {
  onRequest({ request }) {
    if (csrfToken !== null && request.method !== "GET") request.headers.set("X-CSRF-Token", csrfToken);
    return request;
  },
  async onResponse({ response }) {
    if (!response.ok) throw await problemOf(response);
    return undefined;
  },
  onError({ error }) {
    if (error instanceof DOMException && error.name === "AbortError") return undefined;
    return new ApiProblem(0, "away", "No answer", NO_ANSWER);
  },
};

/** The typed client; its promises reject with ApiProblem, so use it through `answer`. */
export const api = createClient<paths>({ baseUrl: location.origin, credentials: "same-origin" });
api.use(middleware);

/** The body of a successful answer: `await answer(api.GET("/api/nodes"))`. Rejects with ApiProblem. */
export async function answer<T>(call: Promise<{ data?: T }>): Promise<T> {
  const { data } = await call;
  return data as T; // the middleware has already thrown for everything but success
}

/** A binary answer, for example a heatmap block. Rejects with ApiProblem. */
export async function binary(url: string, signal?: AbortSignal): Promise<ArrayBuffer> {
  let response: Response;
  try {
    response = await fetch(url, { credentials: "same-origin", signal: signal ?? null });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiProblem(0, "away", "No answer", NO_ANSWER);
  }
  if (!response.ok) throw await problemOf(response);
  return response.arrayBuffer();
}

/** The sentence to show for whatever went wrong. */
export function sentenceOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
