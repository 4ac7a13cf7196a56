import type { UseQueryResult } from "@tanstack/react-query";
import { Fragment, type ReactNode } from "react";
import { errorMessage } from "../api/client";
import { Scroll } from "./Scroll";

interface RowsTableProps<Row> {
  rows: UseQueryResult<Row[]>;
  /** Names the scrolling region; also what there is none of. */
  label: string;
  columns: readonly string[];
  /** The columns with numbers. */
  numeric?: readonly string[];
  /** Returns a row's <tr>; its last cell has the actions. */
  children: (row: Row) => ReactNode;
}

/** A table of the rows that a request returned, why it failed, or that there are none. */
export function RowsTable<Row extends { id: number | string }>({
  rows,
  label,
  columns,
  numeric = [],
  children,
}: RowsTableProps<Row>) {
  return (
    <>
      {rows.isError && (
        <p className="body bad" role="alert">
          {errorMessage(rows.error)}
        </p>
      )}
      {rows.data?.length === 0 && <p className="body muted">No {label}.</p>}
      {rows.data !== undefined && rows.data.length > 0 && (
        <Scroll label={`Table of ${label}`}>
          <table className="table">
            <thead>
              <tr>
                {columns.map((column) => (
                  <th key={column} className={numeric.includes(column) ? "n" : undefined}>
                    {column}
                  </th>
                ))}
                <ActionsHeading />
              </tr>
            </thead>
            <tbody>
              {rows.data.map((row) => (
                <Fragment key={row.id}>{children(row)}</Fragment>
              ))}
            </tbody>
          </table>
        </Scroll>
      )}
    </>
  );
}

/** The heading of a column of buttons, which only screen readers need. */
export function ActionsHeading() {
  return (
    <th>
      <span className="visually-hidden">actions</span>
    </th>
  );
}
