import { Button, Checkbox, NativeSelect, TextInput } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { useQuery } from "@tanstack/react-query";
import { useEffect, useMemo, useRef, useState } from "react";
import { sentenceOf } from "../../api/client";
import { useMay } from "../../auth/me";
import { duration } from "../../lib/format";
import { tunableName } from "../../lib/settings";
import type { Netdev } from "../irqs";
import nodeClasses from "../node.module.css";
import { NotApplied, ReturnsWithin, USUAL_CONFIRM_S, useApply, usePreview, whyNot } from "../panel/applying";
import { ChangeSteps } from "../panel/ChangeSteps";
import { PreviewOf } from "../panel/PreviewOf";
import { coalescingQuery } from "../queries";
import type { NodeView } from "../view";
import classes from "./coalescing.module.css";
import { keyOf, madeOf, pointDraft, present, type Tried, wishesOf } from "./params";

const TYPING_MS = 250;
const SOFTWARE = "gro_flush_timeout";
const NOTHING_TRIED: Tried[] = [];

/** When a network device or one of its queues interrupts: each value, what its driver made of others, and changing them. */
export function ParamsEditor({ view, netdev }: { view: NodeView; netdev: Netdev }) {
  const { point, pps, frame } = view.search;
  const [queue, setQueue] = useState<string | null>(null);
  const [draft, setDraft] = useState(() => pointDraft(point, netdev.params));
  const [taken, setTaken] = useState(point);
  if (point !== taken) {
    setTaken(point);
    setQueue(null);
    setDraft((before) => ({ ...before, ...pointDraft(point, netdev.params) }));
  }
  const [confirmS, setConfirmS] = useState(USUAL_CONFIRM_S);
  const may = useMay("operator");
  const known = useQuery(coalescingQuery(view.node.id, netdev.name, { pps, frame }));
  const own = netdev.queues.filter(({ params }) => Object.keys(params).length > 0);
  const params = own.find(({ name }) => name === queue)?.params ?? netdev.params;
  const groups = present(params);
  const { desired, wrong } = useMemo(
    () => wishesOf(params, draft, (name) => keyOf(netdev.name, queue, name)),
    [params, draft, netdev.name, queue],
  );
  const [asked] = useDebouncedValue(desired, TYPING_MS);
  const isWrong = Object.keys(wrong).length > 0;
  const ready = desired.length > 0 && !isWrong && JSON.stringify(asked) === JSON.stringify(desired);
  const preview = usePreview(view.node.id, { desired: asked, allow_isolated: false }, ready);
  const apply = useApply(view.node.id, preview, { confirm_timeout_s: confirmS, guardrails: [], reason: "" });
  const settled = ready && preview.data !== undefined && !preview.isFetching;
  const why =
    whyNot(view.node, may) ??
    (settled && !preview.data.can_apply
      ? (preview.data.blocked_because ?? preview.data.refused[0]?.sentence ?? "This plan is refused.")
      : null);
  const end = useRef<HTMLDivElement>(null);
  const shown = useRef<string>(undefined);
  // what was picked in the picture comes into sight with its preview, in a panel that scrolls or on a page that does
  useEffect(() => {
    if (point === shown.current || (point !== undefined && !settled)) return;
    shown.current = point;
    if (point !== undefined) end.current?.scrollIntoView({ block: "nearest" });
  }, [point, settled]);
  const edit = (name: string, value: string) => {
    setDraft((before) => ({ ...before, [name]: value }));
    apply.reset();
  };
  const reset = () => {
    setDraft({});
    view.navigate({ point: undefined });
  };
  const all = present(netdev.params).flatMap(({ params: there }) => there.map(([name]) => name));
  const latest = view.changes.find(({ plan }) =>
    plan.actions.some(({ key }) => key.startsWith(`netdev/${netdev.name}/`) && all.some((n) => key.endsWith(`/${n}`))),
  );
  const software = known.data?.can_wait === false;
  const tried = known.data?.tried ?? NOTHING_TRIED;
  if (groups.length === 0)
    return (
      <p className="muted">
        Neither its driver nor its kernel tells of anything that decides when it interrupts, so nothing can be changed.
      </p>
    );
  return (
    <div className={classes.editor}>
      {known.isError && (
        <p className="bad" role="alert">
          {sentenceOf(known.error)}
        </p>
      )}
      {known.data?.why_not && known.data.traffic !== null && (
        <p className={nodeClasses.warnbox}>{known.data.why_not}</p>
      )}
      {own.length > 0 && (
        <NativeSelect
          label="Values of"
          value={queue ?? ""}
          data={[
            { value: "", label: `${netdev.name} as a whole` },
            ...own.map(({ name }) => ({ value: name, label: `queue ${name} alone` })),
          ]}
          onChange={(event) => {
            setQueue(event.currentTarget.value || null);
            setDraft({});
            apply.reset();
          }}
        />
      )}
      {groups.map(({ label, params: there }, place) => (
        <details
          key={label}
          className={classes.group}
          open={place === 0 || there.some(([name]) => name in draft || (software && name === SOFTWARE))}
        >
          <summary>
            {label}{" "}
            <small className="muted">{there.map(([name]) => `${tunableName(name)} ${params[name]}`).join(", ")}</small>
          </summary>
          {there.map(([name, { unit, help }]) => {
            const stands = params[name] ?? "";
            const value = draft[name] ?? stands;
            const changed = value.trim() !== stands;
            const most = netdev.params_max[name];
            return (
              <div key={name} className={classes.param} data-changed={changed || undefined}>
                <label htmlFor={`param-${name}`} title={help}>
                  {tunableName(name)}{" "}
                  <small className="muted">
                    {[unit, changed ? `now ${stands}` : null, most === undefined ? null : `at most ${most}`]
                      .filter((part) => part !== null)
                      .join(", ")}
                  </small>
                </label>
                {unit === null ? (
                  <Checkbox
                    id={`param-${name}`}
                    size="xs"
                    label={value}
                    checked={value === "on"}
                    onChange={(event) => edit(name, event.currentTarget.checked ? "on" : "off")}
                  />
                ) : (
                  <TextInput
                    id={`param-${name}`}
                    inputMode="numeric"
                    autoComplete="off"
                    value={value}
                    error={wrong[name]}
                    classNames={{ input: "mono" }}
                    onChange={(event) => edit(name, event.currentTarget.value)}
                  />
                )}
                <Made tried={tried} name={name} asked={changed ? value.trim() : null} />
              </div>
            );
          })}
        </details>
      ))}
      {desired.length > 0 && !isWrong && (
        <PreviewOf
          answer={settled ? preview.data : undefined}
          error={preview.error}
          confirmS={confirmS}
          limitUs={null}
        />
      )}
      <div className={nodeClasses.terms}>
        <ReturnsWithin seconds={confirmS} onChange={setConfirmS} />
      </div>
      <div className={nodeClasses.quick} ref={end}>
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
      <NotApplied error={apply.error} />
      {latest !== undefined && <ChangeSteps change={latest} />}
    </div>
  );
}

/** What the driver made of values that it was asked for. asked: what is typed now, told first. */
function Made({ tried, name, asked }: { tried: Tried[]; name: string; asked: string | null }) {
  const lines = madeOf(
    tried.map((one) => (one.asked === asked ? { ...one, time_ms: Number.MAX_SAFE_INTEGER } : one)),
    name,
  );
  if (lines.length === 0) return null;
  return (
    <ul aria-label={`What the driver made of ${tunableName(name)}`}>
      {lines.map(({ bad, words }) => (
        <li key={words} className={bad ? "warn" : "muted"}>
          {words}
        </li>
      ))}
    </ul>
  );
}
