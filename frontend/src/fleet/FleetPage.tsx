import { Button, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useContext, useMemo, useState } from "react";
import { errorMessage, type Schemas } from "../api/client";
import { METRICS } from "../api/metrics";
import { nodesQuery, openChangesQuery } from "../api/queries";
import { useHasRole } from "../auth/me";
import { InlineSelect } from "../components/InlineSelect";
import { SimulatedTag } from "../components/NodeTags";
import { PageTop } from "../components/PageTop";
import { Segments } from "../components/Segments";
import { formatCount } from "../lib/format";
import { useFleetSubscription } from "../live/socket";
import { fleetProofQuery } from "../policies/queries";
import { EnrolNode } from "../settings/EnrolNode";
import { SimulatedNodes } from "../settings/SimulatedNodes";
import { useRemoveSimulation } from "../settings/simulatedNodes";
import { ColumnChooser } from "./ColumnChooser";
import { COLOURINGS } from "./colourings";
import { shownColumns } from "./columns";
import { Figures } from "./Figures";
import { FirstSteps, useUndone } from "./FirstSteps";
import { FleetMap, Legend } from "./FleetMap";
import { FleetSavings } from "./FleetSavings";
import { FleetTable } from "./FleetTable";
import { FleetTime } from "./FleetTime";
import { parseFilter } from "./filter";
import { isNewFleet } from "./firstSteps";
import styles from "./fleet.module.css";
import { ShownPast, useStableFigures } from "./fleetStore";
import { groupings } from "./groups";
import { HotSpots } from "./HotSpots";
import { Outliers } from "./Outliers";
import { COLORS, type ColorBy, type FleetSearch } from "./search";

const COLOR_CHOICES = COLORS.map((color) => ({ value: color, label: METRICS[COLOURINGS[color].column].short }));
/** The filter that leaves simulated nodes out. */
const MACHINES = "simulated:no";
const VIEWS = [
  { value: "map", label: "map" },
  { value: "table", label: "table" },
] as const;

function Empty() {
  return (
    <section className={`card ${styles.empty}`}>
      <h1>No node yet</h1>
      <p>A node appears here when its agent connects. Add a Linux machine with one command, or simulate nodes.</p>
      <EnrolNode />
      <h2>Simulated nodes</h2>
      <SimulatedNodes />
    </section>
  );
}

/** States that the fleet includes simulated nodes, and hides or removes them. */
function SimulatedNote({ count, isHidden, onHide }: { count: number; isHidden: boolean; onHide: () => void }) {
  const isAdmin = useHasRole("admin");
  const remove = useRemoveSimulation();
  return (
    <p className={styles.simulated}>
      <SimulatedTag /> {formatCount(count, "node")} with generated data {count === 1 ? "is" : "are"} part of this fleet.{" "}
      {!isHidden && <Button onClick={onHide}>Show machines only</Button>}
      {isAdmin && (
        <Button loading={remove.isPending} onClick={() => remove.mutate()}>
          Remove simulated nodes
        </Button>
      )}
      {remove.isError && (
        <span className="bad" role="alert">
          {errorMessage(remove.error)}
        </span>
      )}
    </p>
  );
}

function Fleet({ nodes }: { nodes: Schemas["NodeSummary"][] }) {
  const search = useSearch({ from: "/shell/fleet" });
  const navigate = useNavigate({ from: "/fleet" });
  const set = (part: Partial<FleetSearch>) =>
    void navigate({ search: (before) => ({ ...before, ...part }), replace: true });
  const changes = useQuery(openChangesQuery).data?.changes ?? [];
  const stable = useStableFigures();
  const isPast = useContext(ShownPast) !== null;
  const q = search.q ?? "";
  const filter = useMemo(() => parseFilter(q), [q]);
  const matching = useMemo(() => nodes.filter((node) => filter.test(node, stable)), [nodes, filter, stable]);
  const shown = useSame(matching);
  const ids = useMemo(() => new Set(shown.map((node) => node.id)), [shown]);
  const simulated = nodes.filter((node) => node.simulated).length;
  const groups = useMemo(() => groupings(nodes), [nodes]);
  const columns = useMemo(() => shownColumns(search.columns), [search.columns]);
  const colouring = COLOURINGS[search.color ?? "softirq"];
  const outliers = !isPast && <Outliers nodes={shown} group={search.group} />;
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
        <InlineSelect
          label="group by"
          value={search.group ?? ""}
          data={[{ value: "", label: "none" }, ...groups.map((by) => ({ value: by, label: by.replace("label:", "") }))]}
          onChange={(event) => set({ group: event.currentTarget.value || undefined })}
        />
        <span className="grow" />
        {search.view === "table" && <ColumnChooser columns={search.columns} onChange={(columns) => set({ columns })} />}
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
      {simulated > 0 && (
        <SimulatedNote
          count={simulated}
          isHidden={q.includes(MACHINES)}
          onHide={() => set({ q: `${q} ${MACHINES}`.trim() })}
        />
      )}
      {!isPast && <FleetSavings />}
      <Figures nodes={shown} total={nodes.length} changes={changes.filter((change) => ids.has(change.node_id))} />
      {shown.length === 0 ? (
        <p className="muted">
          None of the {formatCount(nodes.length, "node")} matches the filter.{" "}
          <Button onClick={() => set({ q: undefined })}>Clear the filter</Button>
        </p>
      ) : search.view === "table" ? (
        <>
          <FleetTable nodes={shown} columns={columns} sort={search.sort ?? "name"} onSort={(sort) => set({ sort })} />
          {outliers}
        </>
      ) : (
        <div className={isPast ? undefined : styles.columns}>
          <div>
            <section className="card">
              <h2>
                Nodes <small>{colouring.explanation} · one cell per node · hatched: no data</small>
                <span className="grow" />
                <Legend colouring={colouring} />
              </h2>
              <FleetMap nodes={shown} group={search.group} colouring={colouring} />
            </section>
            {outliers}
          </div>
          {!isPast && <HotSpots nodes={shown} />}
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
  const proof = useQuery(fleetProofQuery); // its line is above the map, which would move
  const undone = useUndone(nodes.data !== undefined && isNewFleet(nodes.data)); // the first steps are above the map, too
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
      {nodes.data === undefined && nodes.isError ? (
        <p className="bad" role="alert">
          {errorMessage(nodes.error)}
        </p>
      ) : nodes.data === undefined || proof.isPending || undone === undefined ? (
        <p className="muted" aria-busy="true">
          Loading nodes.
        </p>
      ) : nodes.data.length === 0 ? (
        <Empty />
      ) : (
        <div className={styles.page}>
          <FirstSteps nodes={nodes.data} undone={undone} />
          <FleetTime>
            <Fleet nodes={nodes.data} />
          </FleetTime>
        </div>
      )}
    </>
  );
}
