"""A change that never was, and the minutes around it, drawn from a seed, for tests of reports."""

from datetime import UTC, datetime, timedelta
from random import Random

from coresteer.changes.schemas import Change, ChangeStatus, ChangeStep
from coresteer.reports.minutes import Minute
from coresteer_core.changes.plan import Action, Plan
from coresteer_core.changes.report import ChangeState

AT = datetime(2026, 3, 1, 12, 0, 30, tzinfo=UTC)
CHANGE = Change(
    id="3f0d4f5e-0000-4000-8000-000000000001",
    node_id=3,
    node_name="lab-3",
    plan=Plan([Action("netdev/eth0/coalesce/rx-usecs", "18", "90", "Interrupts come far apart.")]),
    sentence="rx-usecs of eth0 from 18 to 90.",
    state=ChangeState.CONFIRMED,
    status=ChangeStatus.CONFIRMED,
    undone=None,
    ended_by=None,
    created_by="kim",
    policy_id=None,
    experiment_id=None,
    undoes=None,
    restores=False,
    reason="Fewer interrupts.",
    created_at=AT - timedelta(seconds=2),
    applied_at=AT,
    ended_at=AT + timedelta(minutes=2),
    deadline_at=None,
    remaining_s=17.0,
    confirm_timeout_s=120,
    guardrails=[],
    results=[],
    steps=[ChangeStep(at=AT, state=ChangeState.UNCONFIRMED, sentence="Applied.")],
    observation=None,
)


def minutes(count: int, *, after: bool, factor: float = 1.0, cpus: int = 4, seed: int = 1) -> list[Minute]:
    """factor: by what interrupts and CPU are multiplied."""
    random = Random(f"{seed} {after}")  # noqa: S311 - reproducible, not secret
    found = []
    for at in range(count):
        offset = timedelta(minutes=at + 0.5) if after else -timedelta(minutes=count - at + 0.5)
        busy = [10 * factor * random.gauss(1, 0.05) + 20 * (cpu == 1) for cpu in range(cpus)]
        figures = {
            "rx_bit_per_s": 8.1e8 * random.gauss(1, 0.05),
            "packets_per_s": 68_000 * random.gauss(1, 0.05),
            "interrupts_per_s": 20_000 * factor * random.gauss(1, 0.05),
            "cpu_busy_percent": sum(busy),
            "cpu_s_per_gbit": 0.3 * factor * random.gauss(1, 0.05),
            "rtt_p99_us": 900 * random.gauss(1, 0.05),
            "dropped_per_s": 0.0,
        }
        cpus_of = {"busy": list(busy), "softirq": [share / 2 for share in busy]}
        found.append(Minute(int((AT + offset).timestamp() * 1000), figures, {k: [*v] for k, v in cpus_of.items()}))
    return found
