import { type PointerEvent, useEffect, useMemo, useRef, useState } from "react";
import { coloursOf, hatchPattern, prepareCanvas, useColourScheme, useWidth } from "../../charts/canvas";
import { Scroll } from "../../components/Scroll";
import { Segments } from "../../components/Segments";
import { CIVIDIS_GRADIENT, cividis } from "../../lib/cividis";
import { formatCount } from "../../lib/format";
import type { Experiment } from "../types";
import { cpuMeans, SHARES, type Share } from "./cpuMeans";
import styles from "./results.module.css";

const ROW = 20;
const HEAD = 18;
const OPTIONS = SHARES.map((value) => ({ value, label: value }));

type Props = { experiment: Experiment; share: Share; onShare: (share: Share) => void };

/** Load of each CPU by arm, one cell per CPU, 0 to 100 %. */
export function CpuHeatmap({ experiment, share, onShare }: Props) {
  const [asTable, setAsTable] = useState(false);
  const means = useMemo(() => cpuMeans(experiment, share), [experiment, share]);
  const cpus = means[0]?.length ?? 0;
  return (
    <section className={`card ${styles.wrapping}`} aria-label="CPUs by arm">
      <h2>
        CPUs by arm <small>mean share of each CPU's time over the runs of the comparison that were not discarded</small>
        <span className="grow" />
        <Segments label="Share" value={share} options={OPTIONS} onChange={onShare} />
        <button type="button" className="link" aria-pressed={asTable} onClick={() => setAsTable(!asTable)}>
          as {asTable ? "chart" : "table"}
        </button>
      </h2>
      <div className="body">
        {cpus === 0 ? (
          <p className="muted">No run has reported the load of its CPUs yet.</p>
        ) : asTable ? (
          <Table arms={experiment.arms} means={means} />
        ) : (
          <Picture arms={experiment.arms} means={means} share={share} />
        )}
      </div>
    </section>
  );
}

type Of = { arms: string[]; means: (number | null)[][] };

function Picture({ arms, means, share }: Of & { share: Share }) {
  const box = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const width = useWidth(box);
  const scheme = useColourScheme();
  const [at, setAt] = useState<{ row: number; cpu: number } | null>(null);
  const cpus = means[0]?.length ?? 0;
  const height = HEAD + arms.length * ROW;
  // biome-ignore lint/correctness/useExhaustiveDependencies: scheme: the tokens change with it
  useEffect(() => {
    const context = canvas.current === null ? null : prepareCanvas(canvas.current, width, height);
    if (context === null || canvas.current === null || width === 0) return;
    const colours = coloursOf(canvas.current);
    const unknown = hatchPattern(context, colours.get("--line-strong"));
    const each = width / cpus;
    means.forEach((row, place) => {
      row.forEach((value, cpu) => {
        context.fillStyle = value === null ? unknown : `rgb(${cividis(value / 100).join(" ")})`;
        context.fillRect(cpu * each, HEAD + place * ROW, each > 3 ? each - 1 : each, ROW - 2);
      });
    });
    context.fillStyle = colours.get("--muted");
    context.font = `11px ${colours.get("--font")}`;
    context.textBaseline = "middle";
    const every = Math.max(1, 2 ** Math.ceil(Math.log2(28 / each)));
    for (let cpu = 0; cpu < cpus; cpu += every) context.fillText(String(cpu), cpu * each + 1, HEAD / 2);
  }, [means, cpus, width, height, scheme]);
  const point = (event: PointerEvent) => {
    const bounds = event.currentTarget.getBoundingClientRect();
    const row = Math.floor((event.clientY - bounds.top - HEAD) / ROW);
    const cpu = Math.floor(((event.clientX - bounds.left) / bounds.width) * cpus);
    setAt(row >= 0 && row < arms.length && cpu >= 0 && cpu < cpus ? { row, cpu } : null);
  };
  const value = at === null ? null : (means[at.row]?.[at.cpu] ?? null);
  return (
    <>
      <div className={styles.heat}>
        <ul style={{ paddingTop: HEAD }}>
          {arms.map((name) => (
            <li key={name} title={name}>
              {name}
            </li>
          ))}
        </ul>
        <div ref={box}>
          <canvas
            ref={canvas}
            role="img"
            aria-label={`${share} of ${formatCount(cpus, "CPU")} under ${formatCount(arms.length, "arm")}; the table has the same values`}
            style={{ height }}
            onPointerMove={point}
            onPointerLeave={() => setAt(null)}
          />
        </div>
      </div>
      <p className={styles.heatKey}>
        <span>
          0 % <i style={{ background: CIVIDIS_GRADIENT }} /> 100 %
        </span>
        <span>
          {at !== null && (
            <>
              {arms[at.row]}, CPU {at.cpu}: <b>{value === null ? "unknown" : `${value.toFixed(1)} % ${share}`}</b>
            </>
          )}
        </span>
      </p>
    </>
  );
}

function Table({ arms, means }: Of) {
  return (
    <Scroll label="CPUs by arm, table">
      <table className={`table ${styles.long}`}>
        <thead>
          <tr>
            <th className="n">CPU</th>
            {arms.map((name) => (
              <th key={name} className="n">
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {(means[0] ?? []).map((_, cpu) => (
            // biome-ignore lint/suspicious/noArrayIndexKey: the index is the CPU's number
            <tr key={cpu}>
              <td className="n">{cpu}</td>
              {means.map((row, place) => {
                const value = row[cpu] ?? null;
                return (
                  <td key={arms[place]} className={`n ${value === null ? "hatched" : ""}`}>
                    {value === null ? "–" : `${value.toFixed(1)} %`}
                  </td>
                );
              })}
            </tr>
          ))}
        </tbody>
      </table>
    </Scroll>
  );
}
