"""Experiments with simulated runs, derived from a seed, for tests of reports."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from coresteer.experiments import schedule
from coresteer.experiments.analysis import analyse
from coresteer.experiments.schemas import Experiment, ExperimentState, SettingsBeforeAfter
from coresteer.experiments.spec import Factor, Level, RecordedRun, Spec
from coresteer_core.changes.guardrail import Guardrail
from coresteer_core.changes.plan import DesiredValue
from coresteer_core.experiments.model import TcpStream
from coresteer_core.metrics import EXPERIMENT_METRICS, MetricLabel

START = datetime(2026, 3, 1, 9, 0, 0, tzinfo=UTC)
_AMOUNTS = {
    "throughput_bit_per_s": 9.4e9,
    "packets_per_s": 780_000,
    "interrupts_per_s": 20_100,
    "packets_per_interrupt": 39,
    "cpu_busy_percent": 143,
    "cpu_softirq_percent": 61,
    "cpu_s_per_gbit": 0.152,
    "rtt_p50_us": 212,
    "rtt_p99_us": 844,
    "dropped_per_s": 0,
    "context_switches_per_s": 41_000,
    "migrations_per_s": 37,
}
Effect = Callable[[str, tuple[int, ...]], float]


def no_effect(_: str, __: tuple[int, ...]) -> float:
    return 1.0


def rx_usecs(values: Sequence[float]) -> Factor:
    levels = [
        Level(
            f"{value:g} µs",
            [DesiredValue("netdev/eth0/coalesce/rx-usecs", f"{value:g}")],
            value=value,
            role=f"usecs/{value:g}",
        )
        for value in values
    ]
    return Factor("rx-usecs", levels, "µs")


def ab_spec(**changes: Any) -> Spec:  # noqa: ANN401 - fields of Spec
    levels = [Level("18 µs"), Level("90 µs", [DesiredValue("netdev/eth0/coalesce/rx-usecs", "90")])]
    given: dict[str, Any] = {
        "name": "rx-usecs 18 against 90",
        "kind": "ab",
        "node_id": 3,
        "workload": TcpStream(server_cpus="1"),
        "primary": "interrupts_per_s",
        "factors": [Factor("rx-usecs", levels)],
        "guardrails": [Guardrail("rtt_p99_us", 20_000)],
    }
    return Spec(**given | changes)


def simulated(
    spec: Spec,
    *,
    effect: Effect = no_effect,
    noise: float = 0.01,
    cpus: int = 2,
    discard_every: int = 0,
    most_runs: int | None = None,
    seed: int = 7,
    **changes: Any,  # noqa: ANN401 - fields of Experiment
) -> Experiment:
    """Return an experiment with simulated runs. effect: factor of a metric in an arm."""
    random = Random(seed)  # noqa: S311 - reproducible, not secret
    runs: list[RecordedRun] = []
    planned = schedule.plan_runs(spec, seed)
    for place in planned[:most_runs]:
        for attempt in range(2 if discard_every and place.number % discard_every == discard_every - 1 else 1):
            is_last = attempt == 1 or not (discard_every and place.number % discard_every == discard_every - 1)
            started = START + timedelta(seconds=15 * len(runs))
            busy = [min(100.0, random.uniform(5, 30) + (60 if cpu % 17 == 1 else 0)) for cpu in range(cpus)]
            runs.append(
                RecordedRun(
                    planned=place,
                    attempt=attempt,
                    started_ms=int(started.timestamp() * 1000),
                    duration_s=spec.measure_s,
                    figures={
                        name: amount * effect(name, place.arm) * random.gauss(1, noise)
                        for name, amount in _AMOUNTS.items()
                    },
                    cpus={
                        "busy": [None if cpus > 2 and cpu == 5 else share for cpu, share in enumerate(busy)],
                        "softirq": [share * 0.6 for share in busy],
                        "irq": [0.0] * cpus,
                    },
                    load_before=0.4,
                    steal_percent=0.1,
                    discarded=None if is_last else "The host took 7.2 % of the CPU time away, more than 5 %.",
                )
            )
    discarded = sum(run.discarded is not None for run in runs)
    given: dict[str, Any] = {
        "id": 12,
        "name": spec.name,
        "kind": spec.kind,
        "template": spec.template,
        "node_id": spec.node_id,
        "node_name": "lab-3",
        "primary": spec.primary,
        "state": ExperimentState.DONE,
        "sentence": "Measured.",
        "created_at": START - timedelta(minutes=1),
        "created_by": "kim",
        "started_at": START,
        "ended_at": START + timedelta(seconds=15 * len(runs)),
        "queue_position": None,
        "runs_done": len(runs) - discarded,
        "runs_planned": len(planned),
        "runs_discarded": discarded,
        "remaining_s": None,
        "spec": spec,
        "seed": seed,
        "machine": {
            "name": "lab-3",
            "simulated": False,
            "hostname": "lab-3.example",
            "kernel": "6.12.9-amd64",
            "agent_version": "0.1.0",
            "cpus": cpus,
            "packages": 1,
            "numa_nodes": 1,
            "isolated": "",
            "nohz_full": "",
            "controllers": ["irqbalance"],
            "netdevs": [
                {"name": "eth0", "driver": "ice", "speed_bits_per_s": 25_000_000_000, "numa_node": 0, "queues": 8},
                {"name": "lo", "driver": None, "speed_bits_per_s": None, "numa_node": None, "queues": 1},
            ],
            "backend_version": "0.1.0",
        },
        "settings": SettingsBeforeAfter(
            before={"netdev/eth0/coalesce/rx-usecs": "18", "irq/41/affinity": "0-1", "irq/9/affinity": "0"},
            after={"netdev/eth0/coalesce/rx-usecs": "18", "irq/41/affinity": "0-1", "irq/9/affinity": "0"},
        ),
        "activity": "",
        "arms": [schedule.arm_name(spec, arm) for arm in schedule.all_arms(spec)],
        "runs": runs,
        "analysis": analyse(spec, seed, runs),
        "metrics": {name: MetricLabel(one.label, one.unit, one.better) for name, one in EXPERIMENT_METRICS.items()},
    }
    return Experiment(**given | changes)


def longer_coalescing(name: str, arm: tuple[int, ...]) -> float:
    """Return the effect of longer coalescing: fewer interrupts, less CPU time, longer response times."""
    at = arm[0] if arm else 0
    return {
        "interrupts_per_s": 0.62**at,
        "packets_per_interrupt": 0.62**-at,
        "cpu_busy_percent": 1 - 0.05 * at,
        "rtt_p50_us": 1 + 0.08 * at,
        "rtt_p99_us": 1 + 0.03 * at,
    }.get(name, 1.0)


def _grid(count: int) -> Spec:
    cpus = [Level(f"CPU {n}", workload={"server_cpus": str(n)}, value=float(n)) for n in range(count)]
    irqs = [Level(f"irq on {n}", [DesiredValue("irq/41/affinity", str(n))], value=float(n)) for n in range(count)]
    return ab_spec(
        name=f"⟨m-n⟩ on {count} CPUs",
        kind="sweep",
        blocks=3,
        primary="throughput_bit_per_s",
        factors=[Factor("interrupt CPU", irqs), Factor("process CPU", cpus)],
        template="m-n",
    )


def cases() -> dict[str, Experiment]:
    """Return one experiment of each kind that reports must handle."""
    sweep = ab_spec(name="rx-usecs sweep", kind="sweep", factors=[rx_usecs([18, 36, 54, 72, 90])], template="rx-usecs")
    same = ab_spec(name="Nothing changed", kind="aa", factors=[], blocks=8)
    hostile = "=cmd|' /C calc'!A0 </text><script>alert(1)</script> #set text(red) *b* $x$ \" {{7*7}} \\u{0}"
    return {
        "aa": simulated(same),
        "ab": simulated(ab_spec(), effect=longer_coalescing, discard_every=9),
        "ab-nothing": simulated(ab_spec(primary="throughput_bit_per_s"), noise=0.004),
        "ab-unsteady": simulated(ab_spec(), noise=0.6, seed=3),
        "sweep": simulated(sweep, effect=longer_coalescing, cpus=16),
        "grid": simulated(_grid(4), effect=lambda n, arm: 1 - 0.1 * (arm[0] == arm[1]) if "through" in n else 1.0),
        "grid-256": simulated(_grid(16), cpus=256),
        "ab-256": simulated(ab_spec(blocks=50), effect=longer_coalescing, cpus=256),
        "stopped": simulated(
            ab_spec(),
            most_runs=31,
            effect=longer_coalescing,
            state=ExperimentState.STOPPED,
            sentence="TCP round-trip time p99 was 23,400 µs, over 20,000 µs.",
            settings=SettingsBeforeAfter(before={"irq/41/affinity": "0-1"}, after={"irq/41/affinity": "0"}),
        ),
        "empty": simulated(
            ab_spec(), most_runs=0, state=ExperimentState.FAILED, sentence="lab-3 went away.", machine={}
        ),
        "hostile": simulated(
            ab_spec(name=hostile[:80], factors=[Factor(hostile[:80], [Level("@SUM(1)"), Level(hostile[:80])])]),
            node_name=hostile,
            created_by="<b>kim</b>",
            machine={"<i>kernel</i>": hostile},
            sentence=hostile,
            settings=SettingsBeforeAfter(before={"task/<u>/affinity": "=1+1"}, after=None),
        ),
    }
