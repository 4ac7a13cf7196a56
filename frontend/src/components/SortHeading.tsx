import styles from "./sortHeading.module.css";

/** Columns of text, which sort ascending first; figures sort descending first. */
const TEXTS = new Set(["name", "task", "health"]);

/** The sort after a click on a column: its first direction, the other one, then none. */
export function nextSort<C extends string>(sort: string | undefined, column: C): C | `-${C}` | undefined {
  const descending = `-${column}` as const;
  const [first, second] = TEXTS.has(column) ? ([column, descending] as const) : ([descending, column] as const);
  return sort === first ? second : sort === second ? undefined : first;
}

type Props<C extends string> = {
  /** The sort in force: a column, `-column` for descending, or undefined for the table's own order. */
  sort: string | undefined;
  column: C;
  label: string;
  /** `n` for a column of numbers. */
  className?: string | undefined;
  title?: string | undefined;
  onSort: (next: C | `-${C}` | undefined) => void;
};

/** A column heading that sorts its table by a click. */
export function SortHeading<C extends string>({ sort, column, label, className, title, onSort }: Props<C>) {
  const isDescending = sort === `-${column}`;
  const isSorted = isDescending || sort === column;
  return (
    <th
      className={className || undefined}
      title={title}
      aria-sort={isSorted ? (isDescending ? "descending" : "ascending") : "none"}
    >
      <button type="button" className={styles.sortable} onClick={() => onSort(nextSort(sort, column))}>
        {label}
        <span aria-hidden="true" data-sorted={isSorted || undefined}>
          {sort === column ? "↑" : "↓"}
        </span>
      </button>
    </th>
  );
}
