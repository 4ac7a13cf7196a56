import { Button, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { useEffect, useMemo, useState } from "react";
import { errorMessage, type Schemas } from "../api/client";
import { METRICS } from "../api/metrics";
import { labelsQuery, openChangesQuery } from "../api/queries";
import { useHasRole } from "../auth/me";
import { InlineSelect } from "../components/InlineSelect";
import { SimulatedTag } from "../components/NodeTags";
import { PageTop } from "../components/PageTop";
import { Segments } from "../components/Segments";
import { useTyped } from "../components/useTyped";
import { formatCount } from "../lib/format";
import { fleetProofQuery } from "../policies/queries";
import { EnrolNode } from "../settings/EnrolNode";
import { RemoveSimulated } from "../settings/RemoveSimulated";
import { SimulatedNodes } from "../settings/SimulatedNodes";
import { ColumnChooser } from "./ColumnChooser";
import { COLOURINGS } from "./colourings";
import { shownColumns } from "./columns";
import { Figures } from "./Figures";
import { FirstSteps, machinesQuery, useUndone } from "./FirstSteps";
import { FleetMap, Legend } from "./FleetMap";
import { FleetSavings } from "./FleetSavings";
import { FleetTable } from "./FleetTable";
import { FleetTime, useMoment } from "./FleetTime";
import { factsOf, isNewFleet } from "./firstSteps";
import styles from "./fleet.module.css";
import { ShownPast } from "./fleetStore";
import { GroupTable } from "./GroupTable";
import { HotSpots } from "./HotSpots";
import { Outliers } from "./Outliers";
import { pastFigures } from "./past";
import type { Moment } from "./pastTime";
import { COLORS, type ColorBy, type FleetSearch } from "./search";
import { TABLE_PAGE, useFleet } from "./useFleet";

const COLOR_CHOICES = COLORS.map((color) => ({ value: color, label: METRICS[COLOURINGS[color].column].short }));
/** The filter that leaves simulated nodes out. */
const MACHINES = "simulated:no";
const VIEWS = [
  { value: "map", label: "map" },
  { value: "table", label: "table" },
] as const;

function Empty({ onRemoveSimulated }: { onRemoveSimulated: () => void }) {
  return (
    <section className={`card ${styles.empty}`}>
      <h1>No node yet</h1>
      <p>A node appears here when its agent connects. Add a Linux machine with one command, or simulate nodes.</p>
      <EnrolNode />
      <h2>Simulated nodes</h2>
      <SimulatedNodes onRemove={onRemoveSimulated} />
    </section>
  );
}

type NoteProps = { count: number; isHidden: boolean; onHide: () => void; onRemove: () => void };

/** States that the fleet includes simulated nodes, and hides or removes them. */
function SimulatedNote({ count, isHidden, onHide, onRemove }: NoteProps) {
  const isAdmin = useHasRole("admin");
  return (
    <p className={styles.simulated}>
      <SimulatedTag /> {formatCount(count, "node")} with generated data {count === 1 ? "is" : "are"} part of this fleet.{" "}
      {!isHidden && <Button onClick={onHide}>Show machines only</Button>}
      {isAdmin && <Button onClick={onRemove}>Remove simulated nodes…</Button>}
    </p>
  );
}

type FleetProps = {
  answer: Schemas["FleetAnswer"];
  moment: Moment | null;
  isLoading: boolean;
  onRemoveSimulated: () => void;
};

function Fleet({ answer, moment, isLoading, onRemoveSimulated }: FleetProps) {
  const search = useSearch({ from: "/shell/fleet" });
  const navigate = useNavigate({ from: "/fleet" });
  const set = (part: Partial<FleetSearch>) =>
    void navigate({ search: (before) => ({ ...before, page: undefined, ...part }), replace: true });
  const changes = useQuery(openChangesQuery).data?.changes ?? [];
  const labels = useQuery(labelsQuery).data?.names ?? [];
  const { typed: q, type } = useTyped(search.q ?? "", (text) => set({ q: text || undefined }));
  const groupings = [
    ...new Set([...labels.map((label) => `label:${label}`), "kernel", "driver", search.group ?? "kernel"]),
  ];
  const columns = useMemo(() => shownColumns(search.columns), [search.columns]);
  const colouring = COLOURINGS[search.color ?? "softirq"];
  const isPast = moment !== null;
  const { rows, totals, problems } = answer;
  const outliers = !isPast && <Outliers search={search} />;
  const grouped = search.group !== undefined && search.within === undefined ? search.group : undefined;
  const groups = grouped !== undefined && (
    <GroupTable answer={answer} group={grouped} colouring={colouring} isPast={isPast} />
  );
  const isCut = rows.length < totals.nodes;
  const pages = Math.max(1, Math.ceil(totals.nodes / TABLE_PAGE));
  const isBeyond = !isLoading && search.view === "table" && (search.page ?? 1) > pages; // nodes were deleted
  useEffect(() => {
    if (isBeyond)
      void navigate({ search: (before) => ({ ...before, page: pages === 1 ? undefined : pages }), replace: true });
  }, [isBeyond, pages, navigate]);
  return (
    <>
      <search className={styles.filter}>
        <TextInput
          data-filter
          aria-label="Filter"
          placeholder="name, label:role=db, health:stale, softirq > 60, simulated:no"
          aria-describedby={problems.length ? "filter-problems" : undefined}
          value={q}
          onChange={(event) => type(event.currentTarget.value)}
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
          data={[
            { value: "", label: "none" },
            ...groupings.map((by) => ({ value: by, label: by.replace("label:", "") })),
          ]}
          onChange={(event) => set({ group: event.currentTarget.value || undefined, within: undefined })}
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
      {problems.length > 0 && (
        <ul id="filter-problems" className={styles.problems}>
          {problems.map((problem) => (
            <li key={problem}>{problem}</li>
          ))}
        </ul>
      )}
      {search.group !== undefined && search.within !== undefined && (
        <nav aria-label="Groups" className={styles.crumbs}>
          <Link to="/fleet" search={{ ...search, within: undefined, page: undefined }}>
            All groups by {search.group.replace("label:", "")}
          </Link>{" "}
          <span className="muted">/</span> <b>{search.within}</b>
        </nav>
      )}
      {answer.simulated > 0 && (
        <SimulatedNote
          count={answer.simulated}
          isHidden={q.includes(MACHINES)}
          onHide={() => set({ q: `${q} ${MACHINES}`.trim() })}
          onRemove={onRemoveSimulated}
        />
      )}
      {!isPast && <FleetSavings />}
      <Figures answer={answer} isPast={isPast} isLoading={isLoading} changes={changes} />
      {totals.nodes === 0 ? (
        <p className="muted">
          None of the {formatCount(answer.nodes, "node")} matches the filter.{" "}
          <Button onClick={() => set({ q: undefined, within: undefined })}>Clear the filter</Button>
        </p>
      ) : search.view === "table" ? (
        <>
          {groups || (
            <FleetTable
              nodes={rows}
              total={totals.nodes}
              page={(search.page ?? 1) - 1}
              columns={columns}
              sort={search.sort ?? "name"}
              onSort={(sort) => set({ sort })}
              onPage={(page) => set({ page: page === 0 ? undefined : page + 1 })}
            />
          )}
          {outliers}
        </>
      ) : (
        <div className={isPast ? undefined : styles.columns}>
          <div>
            {!(isCut && groups) && (
              <section className="card">
                <h2>
                  Nodes{" "}
                  <small>
                    {colouring.explanation} · one cell per node · hatched: no data
                    {isCut &&
                      ` · the first ${rows.length} of ${totals.nodes.toLocaleString("en")} by this figure; group or filter to see others`}
                  </small>
                  <span className="grow" />
                  <Legend colouring={colouring} />
                </h2>
                <FleetMap nodes={rows} group={grouped} colouring={colouring} />
              </section>
            )}
            {groups}
            {outliers}
          </div>
          {!isPast && <HotSpots spots={answer.hot_spots} />}
        </div>
      )}
    </>
  );
}

/** The fleet page: filter, figures, map or table of nodes, groups, and hot spots. */
export function FleetPage() {
  const search = useSearch({ from: "/shell/fleet" });
  const moment = useMoment(search);
  // Here, because what opens the dialog goes away while simulated nodes come and go.
  const [isRemoving, setRemoving] = useState(false);
  const removeSimulated = () => setRemoving(true);
  const { data, error, isPlaceholderData } = useFleet(search, moment);
  const machines = useQuery(machinesQuery).data;
  const proof = useQuery(fleetProofQuery); // its line is above the map, which would move
  const undone = useUndone(machines !== undefined && isNewFleet(factsOf(machines))); // the first steps are above the map, too
  const past = useMemo(() => {
    if (moment === null) return null;
    const before = data?.before && pastFigures(moment, data.rows, data.before);
    const isLoading = data === undefined || isPlaceholderData;
    return {
      figures: pastFigures(moment, isLoading ? [] : data.rows),
      before: search.compare === undefined ? null : isLoading ? ("loading" as const) : (before ?? null),
    };
  }, [moment, data, isPlaceholderData, search.compare]);
  return (
    <>
      <PageTop title="Fleet">
        <h1>Fleet</h1>
        {data !== undefined && data.nodes > 0 && (
          <span className="tag">
            {formatCount(data.nodes, "node")} · {formatCount(data.cpus, "CPU")}
          </span>
        )}
      </PageTop>
      {error !== null && (
        <p className="bad" role="alert">
          {errorMessage(error)}
        </p>
      )}
      {data === undefined || machines === undefined || proof.isPending || undone === undefined ? (
        error === null && (
          <p className="muted" aria-busy="true">
            Loading nodes.
          </p>
        )
      ) : data.nodes === 0 ? (
        <Empty onRemoveSimulated={removeSimulated} />
      ) : (
        <div className={styles.page}>
          <FirstSteps machines={machines} undone={undone} onRemoveSimulated={removeSimulated} />
          <FleetTime moment={moment} isLoading={isPlaceholderData} />
          <ShownPast value={past}>
            <Fleet answer={data} moment={moment} isLoading={isPlaceholderData} onRemoveSimulated={removeSimulated} />
          </ShownPast>
        </div>
      )}
      {isRemoving && <RemoveSimulated onClose={() => setRemoving(false)} />}
    </>
  );
}
