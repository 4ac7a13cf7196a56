import createClient, { type Middleware } from "openapi-fetch";
import type { components, paths } from "./schema";

export type Schemas = components["schemas"];

export type FieldError = Schemas["Problem"]["errors"][number];

/** A refused request (`application/problem+json`), or no response (`status` 0). */
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

  /** Whether the backend did not respond. */
  get isUnreachable(): boolean {
    return this.status === 0;
  }

  /** Whether the backend responds but its database does not. */
  get isDatabaseUnreachable(): boolean {
    return this.type.endsWith("database-away");
  }

  /** The backend's message about one field of a form; undefined without one. */
  field(name: string): string | undefined {
    return this.errors.find((error) => error.field === name || error.field.endsWith(`.${name}`))?.message;
  }
}

const NO_RESPONSE = "The backend does not respond. It may be restarting; this page retries.";

async function readProblem(response: Response): Promise<ApiProblem> {
  if (!response.headers.get("content-type")?.includes("problem+json")) {
    // A proxy responds in place of an unreachable backend.
    if (response.status >= 502) return new ApiProblem(0, "no-response", "No response", NO_RESPONSE);
    return new ApiProblem(
      response.status,
      "unexpected",
      response.statusText,
      `The backend returned status ${response.status}.`,
    );
  }
  const body = (await response.json()) as Partial<Schemas["Problem"]>;
  return new ApiProblem(
    response.status,
    body.type ?? "about:blank",
    body.title ?? response.statusText,
    body.detail ?? "",
    body.errors ?? [],
  );
}

let csrfToken: string | null = null;

/** Sets the token, from /api/v1/auth/me, that every modifying request carries. */
export function setCsrfToken(token: string | null): void {
  csrfToken = token;
}

const middleware: Middleware = {
  onRequest({ request }) {
    if (csrfToken !== null && request.method !== "GET") request.headers.set("X-CSRF-Token", csrfToken);
    return request;
  },
  async onResponse({ response }) {
    if (!response.ok) throw await readProblem(response);
    return undefined;
  },
  onError({ error }) {
    if (error instanceof DOMException && error.name === "AbortError") return undefined;
    return new ApiProblem(0, "no-response", "No response", NO_RESPONSE);
  },
};

/** The typed client; its promises reject with ApiProblem. Use it through `unwrap`. */
export const api = createClient<paths>({
  baseUrl: location.origin,
  credentials: "same-origin",
  fetch: (request) => globalThis.fetch(request), // looked up per request, so that a test can replace it
});
api.use(middleware);

/** Resolves with the body of a successful response: `await unwrap(api.GET("/api/v1/nodes"))`. Rejects with ApiProblem. */
export async function unwrap<T>(call: Promise<{ data?: T }>): Promise<T> {
  const { data } = await call;
  return data as T; // the middleware throws unless the request succeeded
}

/** Fetches a binary response, e.g. a heatmap block. Rejects with ApiProblem. */
export async function fetchBinary(url: string, signal?: AbortSignal): Promise<ArrayBuffer> {
  let response: Response;
  try {
    response = await fetch(url, { credentials: "same-origin", signal: signal ?? null });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiProblem(0, "no-response", "No response", NO_RESPONSE);
  }
  if (!response.ok) throw await readProblem(response);
  return response.arrayBuffer();
}

/** The message to show for an error. */
export function errorMessage(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
