import { useQuery } from "@tanstack/react-query";
import { api, type Schemas, unwrap } from "../api/client";

/** By which set of YAML files a resource is managed; nothing for one that is not. */
export function Managed({ kind, id }: Schemas["ManagedResource"]) {
  const sets = useQuery({
    queryKey: ["managed-sets"],
    queryFn: ({ signal }) => unwrap(api.GET("/api/v1/managed-sets", { signal })),
  });
  const by = sets.data?.find(({ resources }) => resources.some((one) => one.kind === kind && one.id === id));
  if (by === undefined) return null;
  return (
    <span className="tag warn" title="Change its YAML file: the next coresteer apply undoes what is edited here.">
      managed by files: {by.name}
    </span>
  );
}
