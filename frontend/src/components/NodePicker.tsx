import { TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useId, useState } from "react";
import { nodesQuery } from "../api/queries";

const MOST = 50;

type Props = { label: string; placeholder: string; except?: ReadonlySet<number>; onPick: (nodeId: number) => void };

/** Text field that selects a node by name; Enter selects the first match. */
export function NodePicker({ label, placeholder, except, onPick }: Props) {
  const nodes = useQuery(nodesQuery).data ?? [];
  const [typed, setTyped] = useState("");
  const [missing, setMissing] = useState(false);
  const id = useId();
  const wanted = typed.trim().toLowerCase();
  const fitting = nodes
    .filter((node) => !except?.has(node.id) && node.name.toLowerCase().includes(wanted))
    .slice(0, MOST);
  const take = (nodeId: number) => {
    setTyped("");
    onPick(nodeId);
  };
  return (
    <>
      <TextInput
        label={label}
        placeholder={placeholder}
        list={id}
        value={typed}
        error={missing ? "No node has this name." : undefined}
        autoComplete="off"
        onChange={(event) => {
          const { value } = event.currentTarget;
          setMissing(false);
          setTyped(value);
          const picked = fitting.find((node) => node.name === value);
          if (picked !== undefined) take(picked.id);
        }}
        onKeyDown={(event) => {
          if (event.key !== "Enter") return;
          event.preventDefault();
          const first = fitting[0];
          if (wanted !== "" && first !== undefined) take(first.id);
          else setMissing(wanted !== "");
        }}
      />
      <datalist id={id}>
        {fitting.map((node) => (
          <option key={node.id} value={node.name} />
        ))}
      </datalist>
    </>
  );
}
