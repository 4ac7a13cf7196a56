import { Button, NativeSelect } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { useQuery } from "@tanstack/react-query";
import { type RefObject, useEffect, useMemo, useRef, useState } from "react";
import { errorMessage } from "../../api/client";
import { useMe } from "../../auth/me";
import { duration } from "../../lib/format";
import { tunableName } from "../../lib/settingKeys";
import {
  ApplyError,
  ConfirmTimeout,
  DEFAULT_CONFIRM_S,
  reasonNotToApply,
  refusalOf,
  useApply,
  usePreview,
} from "../changes/applyChange";
import { ChangePreview } from "../changes/ChangePreview";
import { ChangeSteps } from "../changes/ChangeSteps";
import nodeStyles from "../node.module.css";
import type { NodeView } from "../nodeView";
import { coalescingQuery } from "../queries";
import type { Change, Netdev } from "../types";
import styles from "./coalescing.module.css";
import { type DriverResponse, desiredValuesOf, keyOf, pointDraft, presentParams } from "./nicParams";
import { ParamField } from "./ParamField";

const TYPING_MS = 250;
const SOFTWARE = "gro_flush_timeout";
const NO_RESPONSES: DriverResponse[] = [];

/** Edits the coalescing parameters of a network device or of one queue: values, driver responses, preview, apply. */
export function ParamsEditor({ view, netdev }: { view: NodeView; netdev: Netdev }) {
  const { point, pps, frame } = view.search;
  const [queue, setQueue] = useState<string | null>(null);
  const [draft, setDraft] = useState(() => pointDraft(point, netdev.params));
  const [appliedPoint, setAppliedPoint] = useState(point);
  if (point !== appliedPoint) {
    setAppliedPoint(point);
    setQueue(null);
    setDraft((before) => ({ ...before, ...pointDraft(point, netdev.params) }));
  }
  const [confirmS, setConfirmS] = useState(DEFAULT_CONFIRM_S);
  const me = useMe();
  const known = useQuery(coalescingQuery(view.node.id, netdev.name, { pps, frame }));
  const queues = netdev.queues.filter(({ params }) => Object.keys(params).length > 0);
  const params = queues.find(({ name }) => name === queue)?.params ?? netdev.params;
  const groups = presentParams(params);
  const { desired, wrong } = useMemo(
    () => desiredValuesOf(params, draft, (name) => keyOf(netdev.name, queue, name)),
    [params, draft, netdev.name, queue],
  );
  const [debounced] = useDebouncedValue(desired, TYPING_MS);
  const isWrong = Object.keys(wrong).length > 0;
  const ready = desired.length > 0 && !isWrong && JSON.stringify(debounced) === JSON.stringify(desired);
  const preview = usePreview(view.node.id, { desired: debounced, allow_isolated: false }, ready);
  const apply = useApply(view.node.id, preview, { confirm_timeout_s: confirmS, guardrails: [], reason: "" });
  const settled = ready && preview.data !== undefined && !preview.isFetching;
  const why = reasonNotToApply(view.node, me) ?? (settled ? refusalOf(preview.data) : null);
  const end = useScrollToPreview(point, settled);
  const edit = (name: string, value: string) => {
    setDraft((before) => ({ ...before, [name]: value }));
    apply.reset();
  };
  const reset = () => {
    setDraft({});
    view.navigate({ point: undefined });
  };
  const latest = latestChange(view.changes, netdev);
  const software = known.data?.can_wait === false;
  const responses = known.data?.responses ?? NO_RESPONSES;
  if (groups.length === 0)
    return <p className="muted">Neither the driver nor the kernel exposes coalescing parameters of this device.</p>;
  return (
    <div className={styles.editor}>
      {known.isError && (
        <p className="bad" role="alert">
          {errorMessage(known.error)}
        </p>
      )}
      {known.data?.why_not && known.data.traffic !== null && <p className={nodeStyles.warnbox}>{known.data.why_not}</p>}
      {queues.length > 0 && (
        <QueueSelect
          netdev={netdev.name}
          queues={queues.map(({ name }) => name)}
          chosen={queue}
          onChoose={(name) => {
            setQueue(name);
            setDraft({});
            apply.reset();
          }}
        />
      )}
      {groups.map(({ label, params: present }, index) => (
        <details
          key={label}
          className={styles.group}
          open={index === 0 || present.some(([name]) => name in draft || (software && name === SOFTWARE))}
        >
          <summary>
            {label}{" "}
            <small className="muted">
              {present.map(([name]) => `${tunableName(name)} ${params[name]}`).join(", ")}
            </small>
          </summary>
          {present.map(([name, param]) => (
            <ParamField
              key={name}
              name={name}
              param={param}
              current={params[name] ?? ""}
              value={draft[name] ?? params[name] ?? ""}
              max={netdev.params_max[name]}
              error={wrong[name]}
              responses={responses}
              onChange={(value) => edit(name, value)}
            />
          ))}
        </details>
      ))}
      {desired.length > 0 && !isWrong && (
        <ChangePreview
          preview={settled ? preview.data : undefined}
          error={preview.error}
          confirmS={confirmS}
          limitUs={null}
        />
      )}
      <div className={nodeStyles.terms}>
        <ConfirmTimeout seconds={confirmS} onChange={setConfirmS} />
      </div>
      <div className={nodeStyles.quick} ref={end}>
        <Button
          variant="filled"
          disabled={!settled || !preview.data.can_apply || why !== null}
          loading={apply.isPending}
          onClick={() => apply.mutate(undefined, { onSuccess: reset })}
        >
          Apply for {duration(confirmS)}
        </Button>
        {desired.length + Object.keys(wrong).length > 0 && <Button onClick={reset}>reset</Button>}
      </div>
      {why !== null && <p className="muted">{why}</p>}
      <ApplyError error={apply.error} />
      {latest !== undefined && <ChangeSteps change={latest} />}
    </div>
  );
}

type QueueProps = { netdev: string; queues: string[]; chosen: string | null; onChoose: (queue: string | null) => void };

/** Selects the device (null) or one of its queues. */
function QueueSelect({ netdev, queues, chosen, onChoose }: QueueProps) {
  return (
    <NativeSelect
      label="Parameters of"
      value={chosen ?? ""}
      data={[
        { value: "", label: `${netdev} (all queues)` },
        ...queues.map((name) => ({ value: name, label: `queue ${name}` })),
      ]}
      onChange={(event) => onChoose(event.currentTarget.value || null)}
    />
  );
}

/** The newest change that wrote one of a device's or its queues' parameters. */
function latestChange(changes: Change[], { name, params }: Netdev): Change | undefined {
  const names = presentParams(params).flatMap(({ params: present }) => present.map(([param]) => param));
  const isOurs = (key: string) => key.startsWith(`netdev/${name}/`) && names.some((param) => key.endsWith(`/${param}`));
  return changes.find(({ plan }) => plan.actions.some(({ key }) => isOurs(key)));
}

/** Scrolls the preview of a selected point into view. */
function useScrollToPreview(point: string | undefined, settled: boolean): RefObject<HTMLDivElement | null> {
  const end = useRef<HTMLDivElement>(null);
  const shown = useRef<string>(undefined);
  useEffect(() => {
    if (point === shown.current || (point !== undefined && !settled)) return;
    shown.current = point;
    if (point !== undefined) end.current?.scrollIntoView({ block: "nearest" });
  }, [point, settled]);
  return end;
}
