import { Button, Checkbox, TextInput } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { useMemo, useState } from "react";
import { ApiProblem } from "../../api/client";
import { useMe } from "../../auth/me";
import { CpuListError, formatCpuList, parseCpuList } from "../../lib/cpulist";
import { duration } from "../../lib/format";
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
import { targetCpus } from "../interrupts/irqAffinity";
import styles from "../node.module.css";
import type { NodeView } from "../nodeView";
import { isolatedCpus } from "../topology";
import type { Change, Irq } from "../types";
import { CpuPicker } from "./CpuPicker";

const TYPING_MS = 250;

/** Parses a typed CPU list; wrong: the message for an invalid or empty one. */
export function readCpus(text: string): { cpus: number[]; wrong: string | null } {
  try {
    const cpus = parseCpuList(text);
    return {
      cpus,
      wrong: cpus.length === 0 ? "An interrupt needs at least one CPU, for example 2 or 0-3." : null,
    };
  } catch (error) {
    if (error instanceof CpuListError) return { cpus: [], wrong: error.message };
    throw error;
  }
}

type Props = { view: NodeView; irq: Irq; home: string | null; latest: Change | undefined };

/** Edits an interrupt's affinity: select CPUs, preview, apply. */
export function AffinityEditor({ view, irq, home, latest }: Props) {
  const { node, topology } = view;
  const [edited, setEdited] = useState<string | null>(null); // kept when others move the interrupt
  const text = edited ?? irq.requested ?? "";
  const [allowIsolated, setAllowIsolated] = useState(false);
  const [confirmS, setConfirmS] = useState(DEFAULT_CONFIRM_S);
  const [limit, setLimit] = useState("");
  const me = useMe();
  const { cpus, wrong } = useMemo(() => readCpus(text), [text]);
  const chosen = useMemo(() => new Set(cpus), [cpus]);
  const was = useMemo(() => new Set(parseCpuList(irq.requested ?? "")), [irq.requested]);
  const isolated = useMemo(() => isolatedCpus(topology), [topology]);
  const key = `irq/${irq.irq}/affinity`;
  const value = wrong === null ? formatCpuList(cpus) : null;
  const [debounced] = useDebouncedValue(value, TYPING_MS);
  const changed = value !== null && value !== formatCpuList(was);

  const preview = usePreview(
    node.id,
    { desired: [{ key, value: debounced ?? "" }], allow_isolated: allowIsolated },
    debounced !== null && debounced === value && changed,
  );
  const guardrails = limit === "" ? [] : [{ metric: "rtt_p99_us" as const, max: Number(limit) }];
  const limitWrong =
    limit !== "" && !(Number(limit) >= 0 && Number(limit) <= 1e9) ? "Enter 0 to 1,000,000,000 µs." : null;
  const apply = useApply(node.id, preview, { confirm_timeout_s: confirmS, guardrails, reason: "" });
  const [shown, setShown] = useState(irq.requested);
  if (shown !== irq.requested) {
    setShown(irq.requested);
    if (apply.isSuccess) setEdited(null); // it is applied
  }

  const settled = changed && preview.data !== undefined && debounced === value && !preview.isFetching;
  const why =
    reasonNotToApply(node, me) ??
    (wrong !== null || limitWrong !== null
      ? null
      : !changed
        ? "Select CPUs other than the current ones."
        : settled
          ? refusalOf(preview.data)
          : null);
  const pick = (next: Iterable<number>) => {
    setEdited(formatCpuList(next));
    apply.reset();
  };
  const before = previousOf(latest, key, irq);
  const targets = targetCpus(irq);
  return (
    <div className={styles.editor}>
      <TextInput
        label="Move to CPUs"
        description="CPU list, for example 2 or 0-3,8"
        value={text}
        error={wrong ?? fieldError(preview.error)}
        onChange={(event) => {
          setEdited(event.currentTarget.value);
          apply.reset();
        }}
        classNames={{ input: "mono" }}
        spellCheck={false}
        autoComplete="off"
      />
      <div className={styles.quick}>
        {home !== null && topology.numa_nodes.length > 1 && (
          <Button onClick={() => pick(parseCpuList(home))}>
            {irq.netdev === null ? "its NUMA node" : "NIC's NUMA node"}
          </Button>
        )}
        {was.size > 1 && targets.length === 1 && <Button onClick={() => pick(targets)}>only CPU {targets[0]}</Button>}
        {before !== null && <Button onClick={() => pick(parseCpuList(before))}>previous ({before})</Button>}
        {changed && <Button onClick={() => pick(was)}>reset</Button>}
      </div>
      <CpuPicker topology={topology} isolated={isolated} chosen={chosen} was={was} onChange={pick} />
      {cpus.some((cpu) => isolated.has(cpu)) && (
        <Checkbox
          label="Allow isolated CPUs"
          checked={allowIsolated}
          onChange={(event) => setAllowIsolated(event.currentTarget.checked)}
        />
      )}
      {changed && (
        <ChangePreview
          preview={settled ? preview.data : undefined}
          error={preview.error}
          confirmS={confirmS}
          limitUs={limit === "" || limitWrong !== null ? null : Number(limit)}
        />
      )}
      <div className={styles.terms}>
        <ConfirmTimeout seconds={confirmS} onChange={setConfirmS} />
        <TextInput
          label="Guardrail: RTT p99, µs"
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
      <ApplyError error={apply.error} />
    </div>
  );
}

/** The backend's message about the value; null without one. */
function fieldError(error: unknown): string | null {
  return error instanceof ApiProblem ? (error.field("value") ?? null) : null;
}

/** The affinity before Coresteer's last change, null when it equals the current one. */
function previousOf(latest: Change | undefined, key: string, irq: Irq): string | null {
  const was = latest?.plan.actions.find((action) => action.key === key)?.was ?? null;
  return was === irq.requested ? null : was;
}
