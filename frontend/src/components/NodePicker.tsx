import { TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useEffect, useId, useState } from "react";
import { nodesQuery } from "../api/queries";

const MAX_SUGGESTIONS = 50;

type Props = { label: string; placeholder: string; except?: ReadonlySet<number>; onPick: (nodeId: number) => void };

/** Text field that selects a node by its full name; Enter selects the first node whose name contains the text. */
export function NodePicker({ label, placeholder, except, onPick }: Props) {
  const { data: nodes } = useQuery(nodesQuery);
  const [typed, setTyped] = useState("");
  const [isEntered, setIsEntered] = useState(false);
  const id = useId();
  const search = typed.trim().toLowerCase();
  const matching = (nodes ?? [])
    .filter((node) => !except?.has(node.id) && node.name.toLowerCase().includes(search))
    .slice(0, MAX_SUGGESTIONS);
  const picked = matching.find((node) => node.name === typed) ?? (isEntered ? matching[0] : undefined);
  // An effect, because the nodes may be loaded after the name is typed.
  useEffect(() => {
    if (picked === undefined) return;
    setTyped("");
    setIsEntered(false);
    onPick(picked.id);
  }, [picked, onPick]);
  return (
    <>
      <TextInput
        label={label}
        placeholder={placeholder}
        list={id}
        value={typed}
        error={isEntered && nodes !== undefined && matching.length === 0 ? "No node has this name." : undefined}
        autoComplete="off"
        onChange={(event) => {
          setTyped(event.currentTarget.value);
          setIsEntered(false);
        }}
        onKeyDown={(event) => {
          if (event.key !== "Enter") return;
          event.preventDefault();
          setIsEntered(search !== "");
        }}
      />
      <datalist id={id}>
        {matching.map((node) => (
          <option key={node.id} value={node.name} />
        ))}
      </datalist>
    </>
  );
}
