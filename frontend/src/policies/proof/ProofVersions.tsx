import { Moment } from "../../components/Moment";
import { Scroll } from "../../components/Scroll";
import { Unknown } from "../../components/Unknown";
import type { PolicySearch } from "../search";
import type { Policy } from "../types";
import { Effect } from "./Effects";
import { reasonOf, type Standing, standingOf } from "./findings";
import styles from "./proof.module.css";
import type { VersionProof } from "./types";

type Props = {
  policy: Policy;
  versions: VersionProof[];
  chosen: number;
  navigate: (change: Partial<PolicySearch>) => void;
};

const TONES: Record<Standing, string> = {
  "in force": "ok",
  "rolling out": "change",
  "rolled back": "warn",
  retired: "",
};

/** Each version with its effect on the primary metric; the choice decides which one the other tables show. */
export function ProofVersions({ policy, versions, chosen, navigate }: Props) {
  return (
    <section className="card" aria-label="By version">
      <h2 className={styles.wrapping}>
        By version <small>newest first; the selected one is shown on this page</small>
      </h2>
      <Scroll label="By version, table">
        <table className="table">
          <thead>
            <tr>
              <th>version</th>
              <th>state</th>
              <th>compared since</th>
              <th className="n">nodes</th>
              <th className="n">episodes</th>
              <th>primary metric</th>
              <th>effect, 95 % interval</th>
              <th>what is known</th>
            </tr>
          </thead>
          <tbody>
            {versions.map((version) => {
              const primary = version.metrics.find((one) => one.primary);
              const standing = standingOf(version, policy);
              return (
                <tr key={version.version}>
                  <td>
                    <label>
                      <input
                        type="radio"
                        name="proof-version"
                        checked={version.version === chosen}
                        onChange={() => navigate({ version: version.version })}
                      />{" "}
                      v{version.version}
                    </label>
                  </td>
                  <td>
                    <span className={`tag ${TONES[standing]}`}>{standing}</span>
                  </td>
                  <td>
                    <Moment at={version.started_at} />
                  </td>
                  <td className="n">{version.nodes.toLocaleString("en")}</td>
                  <td className="n">{version.episodes.toLocaleString("en")}</td>
                  <td>{primary?.label}</td>
                  <td>
                    {primary?.effect == null ? (
                      <Unknown why={version.sentence} />
                    ) : (
                      <Effect effect={primary.effect} finding={primary.finding} />
                    )}
                  </td>
                  <td className={`wrap ${styles.known}`}>
                    {version.rolled_back_at === null ? (
                      version.sentence
                    ) : (
                      <>
                        <span className="warn">
                          Rolled back automatically at <Moment at={version.rolled_back_at} />.
                        </span>{" "}
                        {reasonOf(version) ?? version.sentence}
                      </>
                    )}
                  </td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </Scroll>
    </section>
  );
}
