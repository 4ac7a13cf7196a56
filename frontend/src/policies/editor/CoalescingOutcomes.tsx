import { useDebouncedValue } from "@mantine/hooks";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { api, errorMessage, type Schemas, unwrap } from "../../api/client";
import { Scroll } from "../../components/Scroll";
import { formatFigure, micros, packetRate, perSecond, UNKNOWN } from "../../lib/format";
import styles from "../policies.module.css";
import type { PolicyBody } from "../types";

const TYPING_MS = 350;
const AGAIN_MS = 10_000;
const MOST_NODES = 8;

type Coalescing = Extract<PolicyBody["spec"], { type: "coalescing" }>;
type Traffic = Schemas["TrafficOutcomes"];
type Props = { nodeIds: number[]; spec: Coalescing; scope: PolicyBody["scope"] };

/** What the edited bounds and each preset result in, on the previewed nodes and on typical traffic. */
export function CoalescingOutcomes({ nodeIds, spec, scope }: Props) {
  const [request] = useDebouncedValue(
    JSON.stringify({ spec, scope, node_ids: nodeIds.slice(0, MOST_NODES) }),
    TYPING_MS,
  );
  const found = useQuery({
    queryKey: ["coalescing-outcomes", request],
    placeholderData: keepPreviousData,
    staleTime: 0,
    gcTime: 0,
    refetchInterval: AGAIN_MS,
    queryFn: ({ signal }) => unwrap(api.POST("/api/v1/coalescing/outcomes", { body: JSON.parse(request), signal })),
  });
  if (found.isError)
    return (
      <p className="bad" role="alert">
        {errorMessage(found.error)}
      </p>
    );
  return (
    <article className={styles.onNode} aria-label="What the bounds result in">
      <h3>What the bounds result in</h3>
      <p className={styles.note}>
        The policy, evaluated on a model of the NIC until it settles. On a node, measurements correct it.
      </p>
      {found.data === undefined ? (
        <div className={`${styles.waiting} hatched`} />
      ) : (
        found.data.map((one) => <OnTraffic key={`${one.node_id} ${one.label}`} of={one} />)
      )}
    </article>
  );
}

function OnTraffic({ of }: { of: Traffic }) {
  if (of.why_not !== null)
    return (
      <p className={styles.unknown}>
        <i className="hatched" aria-hidden="true" /> {of.why_not}
      </p>
    );
  const own = of.outcomes.find(({ preset }) => preset === null);
  return (
    <>
      <h4 className={styles.subject}>
        {of.label} <small className="muted">{trafficText(of)}</small>
      </h4>
      <Scroll label={`What the bounds result in, ${of.label}`}>
        <table className="table">
          <thead>
            <tr>
              <th>bounds</th>
              <th className="n">rx-usecs</th>
              <th className="n">rx-frames</th>
              <th className="n">interrupts</th>
              <th className="n">added, mean</th>
              <th className="n">at most</th>
            </tr>
          </thead>
          <tbody>
            {of.outcomes.map(({ preset, max_added_us, packets_per_interrupt, outcome }) => (
              <tr key={preset ?? ""} title={outcome.why}>
                <td>
                  {preset === null ? <b>these bounds</b> : preset}{" "}
                  <small className="muted">
                    {formatFigure(micros(max_added_us))}, {packets_per_interrupt}
                  </small>
                </td>
                <td className="n">{outcome.usecs ?? UNKNOWN}</td>
                <td className="n">{outcome.frames ?? UNKNOWN}</td>
                <Figures predicted={outcome.predicted} />
                <td className="n">{formatFigure(micros(outcome.max_wait_us))}</td>
              </tr>
            ))}
            <tr>
              <td title="The shortest rx-usecs at which coalescing takes effect, with the rx-frames that interrupt least before packets are dropped.">
                knee within these bounds
              </td>
              {of.knee === null ? (
                <td className="muted" colSpan={5}>
                  no delay within them takes effect on this traffic
                </td>
              ) : (
                <>
                  <td className="n">{of.knee.rx_usecs}</td>
                  <td className="n">{of.knee.rx_frames ?? UNKNOWN}</td>
                  <Figures predicted={of.knee.predicted} />
                  <td className="n">{formatFigure(micros(of.knee.max_wait_us))}</td>
                </>
              )}
            </tr>
          </tbody>
        </table>
      </Scroll>
      {own !== undefined && <p className={styles.note}>{own.outcome.why}</p>}
    </>
  );
}

function Figures({ predicted }: { predicted: Traffic["outcomes"][number]["outcome"]["predicted"] }) {
  if (predicted === null)
    return (
      <>
        <td className="n hatched">{UNKNOWN}</td>
        <td className="n hatched">{UNKNOWN}</td>
      </>
    );
  return (
    <>
      <td className="n">{formatFigure(perSecond(predicted.interrupts_per_s))}</td>
      <td className="n">{formatFigure(micros(predicted.added_mean_us))}</td>
    </>
  );
}

function trafficText({ node_id, packets_per_s, frame_bytes, interrupts_per_s, usecs, frames }: Traffic): string {
  const now = [usecs !== null && `rx-usecs ${usecs}`, frames !== null && `rx-frames ${frames}`]
    .filter(Boolean)
    .join(", ");
  const parts = [
    packets_per_s !== null && formatFigure(packetRate(packets_per_s)),
    node_id !== null && frame_bytes !== null && `${Math.round(frame_bytes)} B each`,
    interrupts_per_s !== null && `${formatFigure(perSecond(interrupts_per_s))} interrupts measured`,
    now && `before: ${now}`,
  ];
  return parts.filter(Boolean).join(" · ");
}
