import { NativeSelect, TextInput } from "@mantine/core";
import { NodeSelect } from "../components/NodePicker";
import { RangePicker } from "../components/RangePicker";
import { Segments } from "../components/Segments";
import { useTyped } from "../components/useTyped";
import styles from "./changes.module.css";
import { type ChangesSearch, DEFAULT_SPAN, ORIGINS, SETTINGS, SPANS, type Span, STATES } from "./search";

export const SPAN_NAMES: Record<Span, string> = { "1h": "1 h", "24h": "24 h", "7d": "7 d" };

type Props = {
  search: ChangesSearch;
  /** Authors of the changes that are shown. */
  authors: string[];
  change: (more: Partial<ChangesSearch>) => void;
};

const byName = (a: string, b: string) => a.localeCompare(b, "en", { numeric: true });

/** The filters of the log of changes; their state is the URL. */
export function Filters({ search, authors, change }: Props) {
  const { from, to, node, by, setting, state } = search;
  const past = from === undefined || to === undefined ? null : { from, to };
  const names = [...new Set(by === undefined ? authors : [...authors, by])].filter((one) => !isOrigin(one));
  const kind = Object.values<string>(SETTINGS).includes(setting ?? "");
  return (
    <div className={styles.filters}>
      <Segments
        label="Time range"
        value={past === null ? (search.span ?? DEFAULT_SPAN) : null}
        options={(Object.keys(SPANS) as Span[]).map((span) => ({ value: span, label: SPAN_NAMES[span] }))}
        onChange={(span) => change({ span: span === DEFAULT_SPAN ? undefined : span, from: undefined, to: undefined })}
      />
      <RangePicker
        past={past}
        proposed={() => ({ from: Date.now() - SPANS[search.span ?? DEFAULT_SPAN], to: Date.now() })}
        onChange={(range) => change({ ...range, span: undefined })}
      />
      <NodeSelect label="Node" hidesLabel none="all nodes" nodeId={node} onChange={(node) => change({ node })} />
      <Choice
        label="By"
        value={by}
        all="by anyone"
        options={[...ORIGINS, ...names.toSorted(byName)].map((one) => [one, one])}
        onChange={(value) => change({ by: value })}
      />
      <Choice
        label="Setting"
        value={setting}
        all="all settings"
        options={[
          ...Object.entries(SETTINGS).map(([name, keys]): [string, string] => [keys, name]),
          ...(setting === undefined || kind ? [] : [[setting, setting] as [string, string]]),
        ]}
        onChange={(value) => change({ setting: value })}
      />
      <Choice
        label="State"
        value={state}
        all="all states"
        options={STATES.map((one) => [one, one.replace("_", " ")])}
        onChange={(value) => change({ state: STATES.find((one) => one === value) })}
      />
      <SearchText value={search.q ?? ""} onChange={(q) => change({ q: q || undefined })} />
    </div>
  );
}

const isOrigin = (name: string): boolean => ORIGINS.some((one) => one === name);

type ChoiceProps = {
  label: string;
  value: string | undefined;
  all: string;
  options: [value: string, label: string][];
  onChange: (value: string | undefined) => void;
};

function Choice({ label, value, all, options, onChange }: ChoiceProps) {
  return (
    <NativeSelect
      aria-label={label}
      value={value ?? ""}
      data={[{ value: "", label: all }, ...options.map(([one, name]) => ({ value: one, label: name }))]}
      onChange={(event) => onChange(event.currentTarget.value || undefined)}
      data-set={value !== undefined || undefined}
    />
  );
}

/** Text to search for; it takes effect when typing pauses. */
function SearchText({ value, onChange }: { value: string; onChange: (text: string) => void }) {
  const { typed, type } = useTyped(value, onChange);
  return (
    <TextInput
      data-filter
      className={styles.search}
      aria-label="Search"
      placeholder="search: IRQ 38, rx-usecs"
      maxLength={200}
      value={typed}
      onChange={(event) => type(event.currentTarget.value)}
    />
  );
}
