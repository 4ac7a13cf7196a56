import { Button, Checkbox } from "@mantine/core";
import { Scroll } from "../components/Scroll";
import { ARRIVALS, PUBLISHED, reordered, SCHEMES, toggled, WAITS } from "./schemes";
import styles from "./simulation.module.css";

type Props = { chosen: readonly string[]; error: string | undefined; onChange: (schemes: string[]) => void };

/** The schemes by what a waiting process does and what an arriving message does, each without and with reordering. */
export function SchemePicker({ chosen, error, onChange }: Props) {
  const box = (name: string, label: string) => (
    <Checkbox
      size="xs"
      label={label}
      aria-label={name}
      checked={chosen.includes(name)}
      onChange={() => onChange(toggled(chosen, name))}
    />
  );
  return (
    <>
      <Scroll label="Schemes, table">
        <table className={`table ${styles.schemes}`}>
          <thead>
            <tr>
              <th>waiting process ╲ arriving message</th>
              {ARRIVALS.map((arrival) => (
                <th key={arrival}>{arrival}</th>
              ))}
            </tr>
          </thead>
          <tbody>
            {WAITS.map(({ wait, schemes }) => (
              <tr key={wait}>
                <th scope="row">{wait}</th>
                {schemes.map((name) => (
                  <td key={name}>
                    <div className={styles.pair}>
                      {box(name, name)}
                      {box(reordered(name), "+RO")}
                    </div>
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
      <div className={styles.presets}>
        <Button onClick={() => onChange(PUBLISHED)}>The authors' four</Button>
        <Button onClick={() => onChange([...SCHEMES])}>All {SCHEMES.length}</Button>
        <Button onClick={() => onChange([])}>None</Button>
        <span className={error === undefined ? "muted" : "bad"} role="status">
          {error ?? `${chosen.length} chosen`}
        </span>
      </div>
    </>
  );
}
