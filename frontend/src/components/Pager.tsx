import { Button } from "@mantine/core";
import styles from "./pager.module.css";

type Props = { page: number; size: number; total: number; onPage: (page: number) => void };

/** Which rows of a long table are shown, and the way to the others; nothing if all are shown. page: from 0. */
export function Pager({ page, size, total, onPage }: Props) {
  if (total <= size && page === 0) return null;
  return (
    <div className={styles.pager}>
      <Button disabled={page === 0} onClick={() => onPage(page - 1)}>
        Previous
      </Button>
      <span>
        {(page * size + 1).toLocaleString("en")}–{Math.min(total, (page + 1) * size).toLocaleString("en")} of{" "}
        {total.toLocaleString("en")}
      </span>
      <Button disabled={(page + 1) * size >= total} onClick={() => onPage(page + 1)}>
        Next
      </Button>
    </div>
  );
}
