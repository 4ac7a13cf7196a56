import { useQuery } from "@tanstack/react-query";
import { useId } from "react";
import { labelsQuery } from "../../api/queries";
import { SchemaInput } from "../../forms/SchemaField";
import type { Schema } from "../../forms/schema";
import { suggestedLabels } from "./labelSuggestions";

type Props = { schema: Schema; value: string; error: string | undefined; onChange: (value: string) => void };

/** The labels of a policy's selector, with those that nodes have as suggestions. */
export function LabelsInput({ schema, value, error, onChange }: Props) {
  const id = useId();
  const known = useQuery(labelsQuery).data?.common ?? [];
  const example = known[0] === undefined ? {} : { placeholder: `${schema.placeholder}, or ${known[0]}` };
  return (
    <>
      <SchemaInput schema={{ ...schema, ...example }} value={value} error={error} list={id} onChange={onChange} />
      <datalist id={id}>
        {suggestedLabels(known, value).map((line) => (
          <option key={line} value={line} />
        ))}
      </datalist>
    </>
  );
}
