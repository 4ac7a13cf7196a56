import styles from "../shell/shell.module.css";

type Option<T> = { value: T; label: string; title?: string };
type Props<T> = { label: string; value: T | null; options: readonly Option<T>[]; onChange: (value: T) => void };

/** A segmented control: a row of options, one of them selected. */
export function Segments<T extends string | number>({ label, value, options, onChange }: Props<T>) {
  return (
    <fieldset className={styles.segments} aria-label={label}>
      {options.map((option) => (
        <button
          key={option.value}
          type="button"
          title={option.title}
          aria-pressed={option.value === value}
          onClick={() => onChange(option.value)}
        >
          {option.label}
        </button>
      ))}
    </fieldset>
  );
}
