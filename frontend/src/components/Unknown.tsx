import styles from "./unknown.module.css";

/** A hatched placeholder for an unknown value. why: the reason, as tooltip and for screen readers. */
export function Unknown({ why }: { why?: string | null | undefined }) {
  return (
    <span className={`hatched ${styles.unknown}`} title={why ?? undefined}>
      <span>unknown</span>
      {why && <span className="visually-hidden">: {why}</span>}
    </span>
  );
}
