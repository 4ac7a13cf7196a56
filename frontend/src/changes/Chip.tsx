import styles from "./changes.module.css";
import type { Words } from "./state";

/** The state of a row of the log. */
export function Chip({ text, tone }: Words) {
  return <span className={`tag ${tone} ${styles.chip}`}>{text}</span>;
}
