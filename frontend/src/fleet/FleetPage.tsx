import { NativeSelect, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import { errorMessage, type Schemas } from "../api/client";
import { METRICS } from "../api/metrics";
import { nodesQuery, openChangesQuery } from "../api/queries";
import { PageTop } from "../components/PageTop";
import { Segments } from "../components/Segments";
import { formatCount } from "../lib/format";
import { useFleetSubscription } from "../live/socket";
import { EnrolNode } from "../settings/EnrolNode";
import { COLOURINGS } from "./colourings";
import { Figures } from "./Figures";
import { FleetMap, Legend } from "./FleetMap";
import { FleetSavings } from "./FleetSavings";
import { FleetTable } from "./FleetTable";
import { parseFilter } from "./filter";
import styles from "./fleet.module.css";
import { useStableFigures } from "./fleetStore";
import { groupings } from "./groups";
import { HotSpots } from "./HotSpots";
import { COLORS, type ColorBy, type FleetSearch } from "./search";

const COLOR_CHOICES = COLORS.map((color) => ({ value: color, label: METRICS[COLOURINGS[color].column].short }));
const VIEWS = [
  { value: "map", label: "map" },
  { value: "table", label: "table" },
] as const;

function Empty() {
  return (
    <section className={`card ${styles.empty}`}>
      <h1>No node yet</h1>
      <p>
        A node appears here when its agent connects. Run the agent on a Linux machine with a one-time enrolment token,
        or start simulated nodes.
      </p>
      <EnrolNode />
    </section>
  );
}

function Fleet({ nodes }: { nodes: Schemas["NodeSummary"][] }) {
  const search = useSearch({ from: "/shell/fleet" });
  const navigate = useNavigate({ from: "/fleet" });
  const set = (part: Partial<FleetSearch>) =>
    void navigate({ search: (before) => ({ ...before, ...part }), replace: true });
  const changes = useQuery(openChangesQuery).data?.changes ?? [];
  const stable = useStableFigures();
  const q = search.q ?? "";
  const filter = useMemo(() => parseFilter(q), [q]);
  const matching = useMemo(() => nodes.filter((node) => filter.test(node, stable)), [nodes, filter, stable]);
  const shown = useSame(matching);
  const ids = useMemo(() => new Set(shown.map((node) => node.id)), [shown]);
  const groups = useMemo(() => groupings(nodes), [nodes]);
  const colouring = COLOURINGS[search.color ?? "softirq"];
  return (
    <>
      <search className={styles.filter}>
        <TextInput
          data-filter
          aria-label="Filter"
          placeholder="name, label:role=db, health:stale, softirq > 60, simulated:no"
          aria-describedby={filter.problems.length ? "filter-problems" : undefined}
          value={q}
          onChange={(event) => set({ q: event.currentTarget.value || undefined })}
          onKeyDown={(event) => event.key === "Escape" && event.currentTarget.blur()}
        />
        <Segments<ColorBy>
          label="Colour by"
          options={COLOR_CHOICES}
          value={search.color ?? "softirq"}
          onChange={(color) => set({ color: color === "softirq" ? undefined : color })}
        />
        {/* biome-ignore lint/a11y/noLabelWithoutControl: the select inside is the control */}
        <label>
          group by
          <NativeSelect
            value={search.group ?? ""}
            data={[
              { value: "", label: "none" },
              ...groups.map((by) => ({ value: by, label: by.replace("label:", "") })),
            ]}
            onChange={(event) => set({ group: event.currentTarget.value || undefined })}
          />
        </label>
        <span className="grow" />
        <Segments<"map" | "table">
          label="Show as"
          options={VIEWS}
          value={search.view ?? "map"}
          onChange={(view) => set({ view: view === "table" ? "table" : undefined })}
        />
      </search>
      {filter.problems.length > 0 && (
        <ul id="filter-problems" className={styles.problems}>
          {filter.problems.map((problem) => (
            <li key={problem}>{problem}</li>
          ))}
        </ul>
      )}
      <FleetSavings />
      <Figures nodes={shown} changes={changes.filter((change) => ids.has(change.node_id))} />
      {shown.length === 0 ? (
        <p className="muted">None of the {formatCount(nodes.length, "node")} matches the filter.</p>
      ) : search.view === "table" ? (
        <FleetTable nodes={shown} sort={search.sort ?? "name"} onSort={(sort) => set({ sort })} />
      ) : (
        <div className={styles.columns}>
          <section className="card">
            <h2>
              Nodes <small>{colouring.explanation} · one cell per node · hatched: no data</small>
              <span className="grow" />
              <Legend colouring={colouring} />
            </h2>
            <FleetMap nodes={shown} group={search.group} colouring={colouring} />
          </section>
          <HotSpots nodes={shown} />
        </div>
      )}
    </>
  );
}

/** The previous array while its members are unchanged, to avoid a new layout every second. */
function useSame<T>(items: T[]): T[] {
  const [stable, setStable] = useState(items);
  if (stable.length === items.length && stable.every((item, index) => item === items[index])) return stable;
  setStable(items);
  return items;
}

/** The fleet page: filter, figures, map or table of nodes, and hot spots. */
export function FleetPage() {
  useFleetSubscription();
  const nodes = useQuery(nodesQuery);
  const cpus = nodes.data?.reduce((sum, node) => sum + (node.cpus ?? 0), 0) ?? 0;
  return (
    <>
      <PageTop title="Fleet">
        <h1>Fleet</h1>
        {nodes.data !== undefined && nodes.data.length > 0 && (
          <span className="tag">
            {formatCount(nodes.data.length, "node")} · {formatCount(cpus, "CPU")}
          </span>
        )}
      </PageTop>
      {nodes.data === undefined ? (
        nodes.isError ? (
          <p className="bad" role="alert">
            {errorMessage(nodes.error)}
          </p>
        ) : (
          <p className="muted">Loading nodes.</p>
        )
      ) : nodes.data.length === 0 ? (
        <Empty />
      ) : (
        <Fleet nodes={nodes.data} />
      )}
    </>
  );
}
