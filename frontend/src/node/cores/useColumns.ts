import { useMemo, useState } from "react";
import { formatCount } from "../../lib/format";
import type { NodeView } from "../nodeView";
import { bandsOf, type Density, densityOf, flatRows, type Row, type RowBand, rowsOf } from "./coreRows";
import { type Column, columnsOf, FOLD_FROM, type Group, groupsOf } from "./groups";
import { byLoad, groupsByLoad } from "./hottest";
import type { Order } from "./useLevels";

/** A column of the heatmap as it is drawn. first: number of the rows in the columns before. */
export type ShownColumn = Column & { rows: Row[]; bands: RowBand[]; height: number; first: number };

/** Most CPUs listed without groups, until all are asked for. */
const LISTED = 64;
/** CPUs up to which a phone starts with all groups open. */
const OPEN_ON_PHONE = 16;

export type Columns = {
  columns: ShownColumn[];
  density: Density;
  groups: Group[];
  open: ReadonlySet<number>;
  /** Opens or folds a group. */
  toggle: (id: number) => void;
  openAll: (open: boolean) => void;
  /** Number of CPUs left out of a list without groups, and the function that lists them. */
  hidden: number;
  showHidden: () => void;
};

/** The columns of the heatmap: by structure, by load, or on a phone one column of groups by load. */
export function useColumns(view: NodeView, { levels, hottest }: Order, phone: boolean): Columns {
  const { topology, search, navigate } = view;
  const [all, setAll] = useState(false);
  const groups = useMemo(() => groupsOf(topology), [topology]);
  const cpus = useMemo(() => groups.flatMap((group) => group.cpus), [groups]);
  const open = useOpenGroups(groups, cpus.length, hottest, search.open, phone);
  const listed = search.order === "load" && !phone;
  const sortLevels = listed || phone ? levels : null;
  const { columns, density } = useMemo(() => {
    const parts =
      sortLevels === null
        ? columnsOf(groups)
        : phone
          ? [columnOf("", groupsByLoad(groups, sortLevels))]
          : listColumns(byLoad(cpus, sortLevels).slice(0, all ? undefined : LISTED));
    const density = densityOf(cpus.length, parts.length, phone);
    let first = 0;
    const columns = parts.map((column): ShownColumn => {
      const rows = column.groups.length === 0 ? flatRows(column.cpus) : rowsOf(column, open);
      first += rows.length;
      return { ...column, rows, ...bandsOf(rows, density), first: first - rows.length };
    });
    return { columns, density };
  }, [groups, cpus, sortLevels, open, phone, all]);

  const setOpen = (ids: number[]) => navigate({ open: ids.length === 0 ? "none" : ids.join(",") });
  return {
    ...{ columns, density, groups, open },
    toggle: (id) => setOpen(open.has(id) ? [...open].filter((other) => other !== id) : [...open, id]),
    openAll: (isOpen) => setOpen(isOpen ? groups.map(({ id }) => id) : []),
    hidden: listed && !all ? Math.max(0, cpus.length - LISTED) : 0,
    showHidden: () => setAll(true),
  };
}

function columnOf(title: string, groups: Group[]): Column {
  const cpus = groups.flatMap((group) => group.cpus);
  return { title, detail: formatCount(cpus.length, "CPU"), cpus, groups };
}

/** Two columns of CPUs without groups, or one if they are few. */
function listColumns(cpus: number[]): Column[] {
  const half = cpus.length > LISTED / 2 ? Math.ceil(cpus.length / 2) : cpus.length;
  return [cpus.slice(0, half), cpus.slice(half)]
    .filter((part) => part.length > 0)
    .map((part, index) => {
      const from = index * half + 1;
      return { title: `hottest ${from}–${from + part.length - 1}`, detail: "", cpus: part, groups: [] };
    });
}

/** The open groups: those that the URL names, else all of a small machine, or the one with the hottest CPU. */
function useOpenGroups(
  groups: Group[],
  cpus: number,
  hottest: number | null,
  named: string | undefined,
  phone: boolean,
): ReadonlySet<number> {
  const everything = phone ? cpus <= OPEN_ON_PHONE : cpus < FOLD_FROM;
  const own = groups.find((group) => hottest !== null && group.cpus.includes(hottest));
  const first = everything ? null : (own ?? groups[0])?.id;
  return useMemo(() => {
    if (named === "none") return new Set();
    if (named !== undefined) return new Set(named.split(",").map(Number));
    return new Set(first === null || first === undefined ? groups.map(({ id }) => id) : [first]);
  }, [groups, named, first]);
}
