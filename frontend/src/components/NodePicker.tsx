import { TextInput } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { type ChangeEvent, type KeyboardEvent, useEffect, useId, useMemo, useState } from "react";
import { fleetQuery, nodeSummaryQuery } from "../api/queries";

const MAX_SUGGESTIONS = 50;
const TYPING_MS = 150;

/** A text field and what is found for it: the nodes whose name, or label:NAME=VALUE, is typed. */
function useNodeSearch(except: ReadonlySet<number> | undefined, onPick: (nodeId: number) => void) {
  const [typed, setTyped] = useState("");
  const [isChosen, setIsChosen] = useState(false);
  const [isEntered, setIsEntered] = useState(false);
  const search = typed.trim();
  const [q] = useDebouncedValue(search, TYPING_MS);
  const { data, isPlaceholderData } = useQuery({
    ...fleetQuery({ q, limit: MAX_SUGGESTIONS }),
    placeholderData: keepPreviousData,
  });
  const isCurrent = q === search && data !== undefined && !isPlaceholderData;
  const matching = data?.rows.filter((node) => !except?.has(node.id)) ?? [];
  const exact = matching.find((node) => node.name === search);
  // a name with which another one begins may not be typed to its end
  const isWhole = isChosen || (isCurrent && !matching.some((node) => node !== exact && node.name.startsWith(search)));
  const picked = isEntered && isCurrent ? (exact ?? matching[0]) : isWhole ? exact : undefined;
  // An effect, because the nodes may be loaded after the name is typed.
  useEffect(() => {
    if (picked === undefined) return;
    setTyped("");
    setIsEntered(false);
    onPick(picked.id);
  }, [picked, onPick]);
  const type = (text: string, isChoice = false) => {
    setTyped(text);
    setIsChosen(isChoice);
    setIsEntered(false);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    setIsEntered(search !== "");
  };
  const error = isEntered && isCurrent && matching.length === 0 ? "No node has this name." : undefined;
  return { typed, type, onKeyDown, matching, exact, error };
}

/** Whether a suggestion was chosen: the text was not typed. */
function isChoice({ nativeEvent }: ChangeEvent): boolean {
  const { inputType } = nativeEvent as InputEvent;
  return inputType === undefined || inputType === "insertReplacementText";
}

function Suggestions({ id, nodes }: { id: string; nodes: readonly { id: number; name: string }[] }) {
  return (
    <datalist id={id}>
      {nodes.map((node) => (
        <option key={node.id} value={node.name} />
      ))}
    </datalist>
  );
}

type Props = { label: string; placeholder: string; except?: ReadonlySet<number>; onPick: (nodeId: number) => void };

/** Text field that selects a node by its full name; Enter selects it, or the first one whose name contains the text. */
export function NodePicker({ label, placeholder, except, onPick }: Props) {
  const { typed, type, onKeyDown, matching, error } = useNodeSearch(except, onPick);
  const id = useId();
  return (
    <>
      <TextInput
        label={label}
        placeholder={placeholder}
        list={id}
        value={typed}
        error={error}
        autoComplete="off"
        onChange={(event) => type(event.currentTarget.value, isChoice(event))}
        onKeyDown={onKeyDown}
      />
      <Suggestions id={id} nodes={matching} />
    </>
  );
}

type SelectProps = {
  label: string;
  /** What the empty field stands for: "all nodes". */
  none: string;
  /** The label is read, not shown. */
  hidesLabel?: boolean;
  nodeId: number | undefined;
  /** A node that cannot be selected. */
  except?: number | undefined;
  onChange: (nodeId: number | undefined) => void;
};

/** Text field that shows the name of the selected node, and selects another one, or none when it is emptied. */
export function NodeSelect({ label, none, hidesLabel = false, nodeId, except, onChange }: SelectProps) {
  const { typed, type, onKeyDown, matching, exact, error } = useNodeSearch(
    useMemo(() => new Set(except === undefined ? [] : [except]), [except]),
    onChange,
  );
  const chosen = useQuery({ ...nodeSummaryQuery(nodeId ?? 0), enabled: nodeId !== undefined }).data;
  const [isEdited, setIsEdited] = useState(false);
  const id = useId();
  const name = nodeId === undefined ? "" : (chosen?.name ?? `node ${nodeId}`);
  const edits = isEdited && typed !== "";
  return (
    <>
      <TextInput
        {...(hidesLabel ? { "aria-label": label } : { label })}
        placeholder={none}
        list={id}
        value={edits ? typed : name}
        error={error}
        autoComplete="off"
        spellCheck={false}
        data-set={nodeId !== undefined || undefined}
        onFocus={(event) => event.currentTarget.select()}
        onBlur={() => {
          if (isEdited && exact !== undefined) onChange(exact.id);
          setIsEdited(false);
          type("");
        }}
        onChange={(event) => {
          const text = event.currentTarget.value;
          setIsEdited(true);
          type(text, isChoice(event));
          if (text === "" && nodeId !== undefined) onChange(undefined);
        }}
        onKeyDown={onKeyDown}
      />
      <Suggestions id={id} nodes={matching} />
    </>
  );
}
