import { queryOptions } from "@tanstack/react-query";
import { api, unwrap } from "../api/client";
import type { Schema } from "./schema";

/** JSON Schemas of the forms for policies, rollouts, experiments and studies. */
export type FormSchemas = { policy: Schema; rollout: Schema; experiment: Schema; simulation: Schema };

let loaded: FormSchemas | undefined;

/** Stores the schemas; the shell loads them before it shows a page that needs them. */
export function setFormSchemas(schemas: FormSchemas): void {
  loaded = schemas;
}

/** The schemas that the backend published when the page was loaded. Throws if they are not loaded yet. */
export function formSchemas(): FormSchemas {
  if (loaded === undefined) throw new Error("The form schemas are not loaded.");
  return loaded;
}

/** Loads the schemas once: they change only with the backend's version. */
export const formSchemasQuery = queryOptions({
  queryKey: ["form-schemas"],
  staleTime: Number.POSITIVE_INFINITY,
  gcTime: Number.POSITIVE_INFINITY,
  queryFn: async () => {
    const schemas = (await unwrap(api.GET("/api/v1/schemas"))) as FormSchemas;
    setFormSchemas(schemas);
    return schemas;
  },
});
