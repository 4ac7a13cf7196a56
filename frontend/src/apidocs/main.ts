// The page /docs: the API's operations, to read and to try out. A page of its own, because its library is large.
import "swagger-ui-dist/swagger-ui.css";
import SwaggerUI, { type SentRequest } from "swagger-ui-dist/swagger-ui-es-bundle.js";
import { api } from "../api/client";

/** Adds the session's CSRF token, which a modifying request without an API token needs. */
async function withCsrfToken(request: SentRequest): Promise<SentRequest> {
  if (request.loadSpec || request.method === "GET" || "Authorization" in request.headers) return request;
  const { data: me } = await api.GET("/api/v1/auth/me").catch(() => ({ data: undefined })); // nobody is signed in
  if (me?.csrf_token) request.headers["X-CSRF-Token"] = me.csrf_token;
  return request;
}

SwaggerUI({
  dom_id: "#api",
  url: "/api/v1/openapi.json",
  validatorUrl: null, // a service elsewhere
  docExpansion: "none",
  defaultModelsExpandDepth: -1,
  deepLinking: true,
  filter: true,
  tryItOutEnabled: true,
  requestInterceptor: withCsrfToken,
});
