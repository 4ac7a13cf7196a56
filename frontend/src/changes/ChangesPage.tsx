import { Button } from "@mantine/core";
import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useCallback, useEffect, useMemo, useRef } from "react";
import { errorMessage } from "../api/client";
import { changeQuery, openChangesQuery, queryClient } from "../api/queries";
import { PageTop } from "../components/PageTop";
import { formatCount } from "../lib/format";
import { useLive } from "../live/socket";
import { StopButton } from "../stops/StopButton";
import { ChangeDetails } from "./ChangeDetails";
import { ChangeTable } from "./ChangeTable";
import styles from "./changes.module.css";
import { Filters, SPAN_NAMES } from "./Filters";
import { type Change, filtersOf, logPages, stopEvents } from "./queries";
import { type ChangesSearch, DEFAULT_SPAN, logQuery } from "./search";
import { withStops } from "./stopRows";
import { UndoPanel } from "./Undo";
import { titleWords } from "./words";

const REFETCH_MS = 2_000;

/** Refetches the log after live events, at most every 2 s: a policy may move much at once. */
function useLiveLog(): void {
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  useLive("change", (change) => {
    queryClient.setQueryData(changeQuery(change.id).queryKey, (before) => before && change);
    timer.current ??= setTimeout(() => {
      timer.current = undefined;
      void queryClient.invalidateQueries({ queryKey: ["changes", "log"] });
    }, REFETCH_MS);
  });
  useEffect(() => () => clearTimeout(timer.current), []);
}

/** The address of an export as CSV of what a search selects. */
function exportAddress(search: ChangesSearch): string {
  const query = Object.entries(logQuery(search, Date.now())).filter(([, value]) => value !== undefined);
  return `/api/v1/changes/log.csv?${new URLSearchParams(query.map(([name, value]) => [name, String(value)]))}`;
}

/** Every change and policy move of the fleet, with the undo of each. */
export function ChangesPage() {
  const search = useSearch({ from: "/shell/changes" });
  const navigate = useNavigate({ from: "/changes" });
  const log = useInfiniteQuery(logPages(search));
  const stops = useQuery(stopEvents(search)).data;
  const pending = useQuery(openChangesQuery).data?.changes.length ?? 0;
  useLiveLog();
  const set = useCallback(
    (more: Partial<ChangesSearch>) =>
      void navigate({ search: (before) => ({ ...before, ...more }), resetScroll: false, replace: true }),
    [navigate],
  );
  const close = useCallback(() => set({ undo: undefined }), [set]);
  const entries = useMemo(() => log.data?.pages.flatMap((page) => page.entries), [log.data]);
  const rows = useMemo(
    () => entries && withStops(entries, stops ?? [], !log.hasNextPage),
    [entries, stops, log.hasNextPage],
  );
  const total = log.data?.pages[0];
  const authors = useMemo(() => [...new Set(entries?.map(({ change }) => change.created_by))], [entries]);
  const isListed = entries?.some(({ change }) => change.id === search.change) ?? true;
  const count = total === undefined ? null : total.people + total.policies + total.experiments;
  return (
    <>
      <PageTop title="Changes">
        <h1>Changes</h1>
        <span className="tag">{pending} pending</span>
        {total !== undefined && count !== null && (
          <span className={`muted ${styles.totals}`}>
            {count.toLocaleString("en")} in{" "}
            {search.from === undefined ? SPAN_NAMES[search.span ?? DEFAULT_SPAN] : "this range"}: by people{" "}
            {total.people.toLocaleString("en")}, policies {total.policies.toLocaleString("en")}, experiments{" "}
            {total.experiments.toLocaleString("en")}
          </span>
        )}
      </PageTop>
      <div className={styles.top}>
        <Filters search={search} authors={authors} change={set} />
        <Button component="a" href={exportAddress(search)} download="changes.csv">
          Export CSV
        </Button>
        <Button onClick={() => set({ undo: "choose" })}>Restore…</Button>
        <StopButton isOpen={search.stop !== undefined} setOpen={(open) => set({ stop: open ? "ask" : undefined })} />
      </div>
      <div className={styles.columns} data-panel={search.undo !== undefined || undefined}>
        <div className={styles.list}>
          {search.change !== undefined && !isListed && <Pinned id={search.change} />}
          <section className="card" aria-label="Log of changes" aria-busy={log.isFetching}>
            <div className="visually-hidden">
              <h2>Log of changes</h2>
            </div>
            {log.isError && (
              <p className="body bad" role="alert">
                {errorMessage(log.error)}
              </p>
            )}
            {rows?.length === 0 && <p className="body muted">No change matches.</p>}
            {rows !== undefined && rows.length > 0 && (
              <ChangeTable rows={rows} search={search} open={search.change} onUnfold={(change) => set({ change })} />
            )}
            {rows !== undefined && (
              <p className={styles.foot}>
                <span className="muted">
                  {formatCount(rows.length, "row")}; moves of policies and experiments are{" "}
                  {search.moves === undefined ? "grouped by hour" : "listed one by one"}
                </span>
                <button
                  type="button"
                  className="link"
                  onClick={() => set({ moves: search.moves === undefined ? "each" : undefined })}
                >
                  {search.moves === undefined ? "list each" : "group them"}
                </button>
                <span className="grow" />
                {log.hasNextPage && (
                  <Button loading={log.isFetchingNextPage} onClick={() => void log.fetchNextPage()}>
                    Older
                  </Button>
                )}
                {Object.values(filtersOf(search)).some((value) => value !== undefined) && (
                  <Button onClick={() => void navigate({ search: {} })}>All changes</Button>
                )}
              </p>
            )}
          </section>
        </div>
        {search.undo !== undefined && <UndoPanel undo={search.undo} onClose={close} />}
      </div>
    </>
  );
}

/** The change of a link that the filters leave out, or that is older than the rows. */
function Pinned({ id }: { id: string }) {
  const { data, error } = useQuery(changeQuery(id));
  if (error !== null) return <p className="bad">{errorMessage(error)}</p>;
  if (data === undefined) return null;
  return (
    <section className="card" aria-label="Linked change">
      <h2>
        <Title change={data} />
      </h2>
      <div className="body">
        <ChangeDetails change={data} />
      </div>
    </section>
  );
}

function Title({ change }: { change: Change }) {
  const { what, values } = titleWords(change);
  return (
    <>
      {change.node_name}: {what} <small>{values}</small>
    </>
  );
}
