import { queryOptions } from "@tanstack/react-query";
import { answer, api } from "../api/client";
import type { Schema } from "./schema";

/** The schemas of what people fill in. */
export type FormSchemas = { policy: Schema; rollout: Schema; experiment: Schema };

let loaded: FormSchemas | undefined;

/** Sets the schemas; the shell loads them before any page that needs them. */
export function setFormSchemas(schemas: FormSchemas): void {
  loaded = schemas;
}

/** The schemas that the backend published when this page was loaded. Throws before. */
export function formSchemas(): FormSchemas {
  if (loaded === undefined) throw new Error("The schemas of forms are not loaded.");
  return loaded;
}

/** Loads the schemas once; they depend on the backend's version alone. */
export const formSchemasQuery = queryOptions({
  queryKey: ["form-schemas"],
  staleTime: Number.POSITIVE_INFINITY,
  gcTime: Number.POSITIVE_INFINITY,
  queryFn: async () => {
    const schemas = (await answer(api.GET("/api/schemas"))) as FormSchemas;
    setFormSchemas(schemas);
    return schemas;
  },
});
