import { Button, Checkbox, TextInput } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { useMemo, useState } from "react";
import { ApiProblem } from "../../api/client";
import { useMay } from "../../auth/me";
import { CpuListError, formatCpuList, parseCpuList } from "../../lib/cpulist";
import { duration } from "../../lib/format";
import { type Change, type Irq, isolatedCpus, landsOn } from "../irqs";
import classes from "../node.module.css";
import type { NodeView } from "../view";
import { NotApplied, ReturnsWithin, USUAL_CONFIRM_S, useApply, usePreview, whyNot } from "./applying";
import { CpuPicker } from "./CpuPicker";
import { PreviewOf } from "./PreviewOf";

const TYPING_MS = 250;

/** The CPUs of a text, or the sentence why it is none. */
export function readCpus(text: string): { cpus: number[]; wrong: string | null } {
  try {
    const cpus = parseCpuList(text);
    return {
      cpus,
      wrong: cpus.length === 0 ? "An interrupt needs at least one CPU; name one, for example 2 or 0-3." : null,
    };
  } catch (error) {
    if (error instanceof CpuListError) return { cpus: [], wrong: error.message };
    throw error;
  }
}

type Props = { view: NodeView; irq: Irq; home: string | null; latest: Change | undefined };

/** Choose CPUs, see what it would do, apply it for a while. */
export function AffinityEditor({ view, irq, home, latest }: Props) {
  const { node, topology } = view;
  const [text, setText] = useState(irq.requested ?? "");
  const [allowIsolated, setAllowIsolated] = useState(false);
  const [confirmS, setConfirmS] = useState(USUAL_CONFIRM_S);
  const [limit, setLimit] = useState("");
  const may = useMay("operator");
  const { cpus, wrong } = useMemo(() => readCpus(text), [text]);
  const chosen = useMemo(() => new Set(cpus), [cpus]);
  const was = useMemo(() => new Set(parseCpuList(irq.requested ?? "")), [irq.requested]);
  const isolated = useMemo(() => isolatedCpus(topology), [topology]);
  const key = `irq/${irq.irq}/affinity`;
  const value = wrong === null ? formatCpuList(cpus) : null;
  const [asked] = useDebouncedValue(value, TYPING_MS);
  const changed = value !== null && value !== formatCpuList(was);

  const preview = usePreview(
    node.id,
    { desired: [{ key, value: asked ?? "" }], allow_isolated: allowIsolated },
    asked !== null && asked === value && changed,
  );
  const guardrails = limit === "" ? [] : [{ metric: "rtt_p99_us" as const, max: Number(limit) }];
  const limitWrong = limit !== "" && !(Number(limit) >= 0 && Number(limit) <= 1e9) ? "A number of microseconds." : null;
  const apply = useApply(node.id, preview, { confirm_timeout_s: confirmS, guardrails, reason: "" });

  const settled = changed && preview.data !== undefined && asked === value && !preview.isFetching;
  const why =
    whyNot(node, may) ??
    (wrong !== null || limitWrong !== null
      ? null
      : !changed
        ? "Choose other CPUs than the present ones."
        : settled && preview.data !== undefined && !preview.data.can_apply
          ? (preview.data.blocked_because ?? preview.data.refused[0]?.sentence ?? "This plan is refused.")
          : null);
  const pick = (next: Iterable<number>) => {
    setText(formatCpuList(next));
    apply.reset();
  };
  const before = previousOf(latest, key, irq);
  const lands = landsOn(irq);
  return (
    <div className={classes.editor}>
      <TextInput
        label="Move to CPUs"
        description="As the kernel writes them, for example 2 or 0-3,8"
        value={text}
        error={wrong ?? fieldError(preview.error)}
        onChange={(event) => {
          setText(event.currentTarget.value);
          apply.reset();
        }}
        classNames={{ input: "mono" }}
        spellCheck={false}
        autoComplete="off"
      />
      <div className={classes.quick}>
        {home !== null && topology.numa_nodes.length > 1 && (
          <Button onClick={() => pick(parseCpuList(home))}>
            {irq.netdev === null ? "its own node" : "NIC's node"}
          </Button>
        )}
        {was.size > 1 && lands.length === 1 && <Button onClick={() => pick(lands)}>only CPU {lands[0]}</Button>}
        {before !== null && <Button onClick={() => pick(parseCpuList(before))}>as before ({before})</Button>}
        {changed && <Button onClick={() => pick(was)}>reset</Button>}
      </div>
      <CpuPicker topology={topology} isolated={isolated} chosen={chosen} was={was} onChange={pick} />
      {cpus.some((cpu) => isolated.has(cpu)) && (
        <Checkbox
          label="Isolated CPUs are meant"
          checked={allowIsolated}
          onChange={(event) => setAllowIsolated(event.currentTarget.checked)}
        />
      )}
      {changed && (
        <PreviewOf
          answer={settled ? preview.data : undefined}
          error={preview.error}
          confirmS={confirmS}
          limitUs={limit === "" || limitWrong !== null ? null : Number(limit)}
        />
      )}
      <div className={classes.terms}>
        <ReturnsWithin seconds={confirmS} onChange={setConfirmS} />
        <TextInput
          label="or if RTT p99 exceeds, µs"
          placeholder="no limit"
          inputMode="numeric"
          value={limit}
          error={limitWrong}
          onChange={(event) => setLimit(event.currentTarget.value.trim())}
        />
      </div>
      <Button
        variant="filled"
        disabled={!settled || preview.data?.can_apply !== true || why !== null || limitWrong !== null}
        loading={apply.isPending}
        onClick={() => apply.mutate()}
      >
        Apply for {duration(confirmS)}
      </Button>
      {why !== null && <p className="muted">{why}</p>}
      <NotApplied error={apply.error} />
    </div>
  );
}

/** What the backend says against the value itself. */
function fieldError(error: unknown): string | null {
  return error instanceof ApiProblem ? (error.field("value") ?? null) : null;
}

/** What our last change found there, where that is something else than now. */
function previousOf(latest: Change | undefined, key: string, irq: Irq): string | null {
  const was = latest?.plan.actions.find((action) => action.key === key)?.was ?? null;
  return was === irq.requested ? null : was;
}
