import { Scroll } from "../../components/Scroll";
import { formatFigure, micros, perSecond, ratio } from "../../lib/format";
import nodeStyles from "../node.module.css";
import type { Coalescing, Surface } from "./nicParams";
import { type Cell, cellOf, cellValues, describePoint, exceedsBound } from "./surface";

type Props = {
  coalescing: Coalescing;
  surface: Surface;
  allowedUs: number | null;
  onSelect: (cell: Cell) => void;
};

/** The trade-off as a table: predictions and measurements for each pair of rx-usecs and rx-frames. */
export function SurfaceTable({ coalescing, surface, allowedUs, onSelect }: Props) {
  const { current, points } = coalescing;
  const same = (cell: Cell, rxUsecs: number | null, rxFrames: number | null) =>
    surface.rx_usecs[cell.column] === rxUsecs && (surface.rx_frames[cell.row] ?? null) === rxFrames;
  const cells = surface.predicted.flatMap((line, row) => line.map((predicted, column) => ({ predicted, row, column })));
  const placed = points.filter(({ rx_usecs, rx_frames }) => cellOf(surface, rx_usecs, rx_frames) !== null);
  return (
    <div className={nodeStyles.tableBox}>
      <Scroll label={`Trade-off of ${coalescing.netdev} as a table`}>
        <table className="table">
          <thead>
            <tr>
              <th className="n">rx-usecs</th>
              {surface.rx_frames.length > 0 && <th className="n">rx-frames</th>}
              <th className="n">interrupts</th>
              <th className="n">packets/interrupt</th>
              <th className="n">added, mean</th>
              <th className="n">p99</th>
              <th className="n">max</th>
              <th>measured</th>
              <th>
                <span className="visually-hidden">select</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {cells.map(({ predicted, ...cell }) => {
              const bound = surface.bound_us[cell.row]?.[cell.column] ?? null;
              const exceeds = exceedsBound(surface, cell, allowedUs);
              return (
                <tr key={cellValues(surface, cell)} className={exceeds ? "muted" : undefined}>
                  <td className="n">{surface.rx_usecs[cell.column]}</td>
                  {surface.rx_frames.length > 0 && <td className="n">{surface.rx_frames[cell.row]}</td>}
                  <td className="n">{formatFigure(perSecond(predicted?.interrupts_per_s))}</td>
                  <td className="n">{formatFigure(ratio(predicted?.packets_per_interrupt))}</td>
                  <td className="n">{formatFigure(micros(predicted?.added_mean_us))}</td>
                  <td className="n">{formatFigure(micros(predicted?.added_p99_us))}</td>
                  <td className="n">
                    {bound === null ? "unbounded" : formatFigure(micros(bound))}
                    {exceeds && <span className="warn"> over bound</span>}
                  </td>
                  <td className="wrap">
                    {placed
                      .filter(({ rx_usecs, rx_frames }) => same(cell, rx_usecs, rx_frames))
                      .map(describePoint)
                      .join(" ")}
                  </td>
                  <td>
                    {!current.adaptive && same(cell, current.rx_usecs, current.rx_frames) ? (
                      "now"
                    ) : (
                      <button
                        type="button"
                        className="link"
                        aria-label={`Select ${cellValues(surface, cell)}`}
                        onClick={() => onSelect(cell)}
                      >
                        select
                      </button>
                    )}
                  </td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </Scroll>
    </div>
  );
}
