import { type ComponentProps, Fragment, type MouseEvent, type ReactNode } from "react";
import { clock, dayName } from "../lib/time";
import styles from "./logTable.module.css";
import { Scroll } from "./Scroll";

type LogTableProps = {
  label: string;
  className?: string | undefined;
  /** Number of columns. */
  columns: number;
  /** Headings of the columns. */
  head: ReactNode;
  rows: { key: string | number; ms: number; row: ReactNode }[];
};

/** What happened, newest first, under the days of their times. */
export function LogTable({ label, className = "", columns, head, rows }: LogTableProps) {
  const now = Date.now();
  const days = rows.map(({ ms }) => dayName(ms, now));
  return (
    <Scroll label={label}>
      <table className={`table ${styles.log} ${className}`}>
        <thead>
          <tr>{head}</tr>
        </thead>
        <tbody>
          {rows.map(({ key, row }, index) => (
            <Fragment key={key}>
              {days[index] !== days[index - 1] && (
                <tr className={styles.day}>
                  <td colSpan={columns}>{days[index]}</td>
                </tr>
              )}
              {row}
            </Fragment>
          ))}
        </tbody>
      </table>
    </Scroll>
  );
}

type LogRowProps = Omit<ComponentProps<"tr">, "onToggle"> & {
  ms: number;
  /** What the row is about, for screen readers. */
  name: string;
  isOpen: boolean;
  onToggle: () => void;
  columns: number;
  /** What is unfolded below the row. */
  details: ReactNode;
};

/** A row of a log with its time first; a click on it unfolds its details, except on links and buttons in it. */
export function LogRow({
  ms,
  name,
  isOpen,
  onToggle,
  columns,
  details,
  children,
  className = "",
  ...row
}: LogRowProps) {
  const toggle = ({ target }: MouseEvent) => {
    const isOther = target instanceof Element && target.closest("a, button") !== null;
    if (!isOther && getSelection()?.type !== "Range") onToggle();
  };
  return (
    <>
      <tr {...row} className={`${styles.row} ${className}`} onClick={toggle}>
        <td className={styles.time}>
          <button
            type="button"
            className={styles.fold}
            aria-expanded={isOpen}
            aria-label={`${clock(ms)}, details of ${name}`}
            onClick={onToggle}
          >
            <span aria-hidden="true">{isOpen ? "▾" : "▸"}</span>{" "}
            <time dateTime={new Date(ms).toISOString()}>{clock(ms)}</time>
          </button>
        </td>
        {children}
      </tr>
      {isOpen && (
        <tr className={styles.unfolded}>
          <td colSpan={columns}>{details}</td>
        </tr>
      )}
    </>
  );
}
