"""Observations of changes: what is compared, when it is stored, and what a request before that answers."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import numpy as np
import pytest
import pytest_asyncio
from msgspec.structs import replace
from sqlalchemy import text
from tests.backend.conftest import Backend, Client
from tests.backend.fake_agent import FakeAgent, enrolled, tell
from tests.backend.telemetry_data import machine
from tests.support.polling import PATIENCE_S

from coresteer.changes import observations, repository
from coresteer.changes.records import new_change_row
from coresteer.changes.tables import ChangeRow
from coresteer_agent.simulate.topology import make_topology
from coresteer_core.changes.plan import Action, Plan
from coresteer_core.changes.report import ChangeState
from coresteer_core.node.inventory import Inventory, Irq, Netdev
from coresteer_core.node.rates import Rates
from coresteer_core.protocol import InventoryMessage, RatesMessage, TopologyMessage

IRQ = 24
TARGET = 5
SAMPLES = 374
STEP_S = 10
CHUNK = 60 // STEP_S


@dataclass
class Observed:
    """A node with an hour and 2 minutes of samples; an interrupt moved to CPU 5 two minutes before the last of them."""

    backend: Backend
    viewer: Client
    node_id: int
    home: int
    applied_at: datetime

    async def change(self, state: ChangeState = ChangeState.CONFIRMED, **columns: object) -> UUID:
        """A change as the backend would have stored it."""
        change_id = uuid4()
        async with self.backend.database.session() as session:
            node = await repository.find_node(session, self.node_id)
            assert node is not None
            plan = Plan([Action(f"irq/{IRQ}/affinity", "0-7", str(TARGET), "")])
            row = new_change_row(
                node, change_id, plan, "IRQ 24.", created_by="olga", reason="", confirm_timeout_s=60, guardrails=[]
            )
            row.created_at = row.applied_at = self.applied_at
            row.state = state
            for name, value in columns.items():
                setattr(row, name, value)
            session.add(row)
        return change_id

    async def get(self, change_id: UUID) -> dict[str, object]:
        answer = await self.viewer.get(f"/api/v1/changes/{change_id}/observation")
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    async def stored(self, change_id: UUID) -> dict[str, object] | None:
        async with self.backend.database.session() as session:
            row = await session.get(ChangeRow, change_id)
            assert row is not None
            return row.observation


def moved(rates: Rates, applied_ms: float) -> Rates:
    """The interrupt's counts arrive on the target once it has moved, and their work with them."""
    if rates.time_ms <= applied_ms:
        return rates
    ids = np.frombuffer(rates.irq_ids or b"", "<u4")
    cpus = np.frombuffer(rates.irq_cpus or b"", "<u2").copy()
    cpus[ids == IRQ] = TARGET
    busy = bytearray(rates.shares["busy"] or b"")
    busy[TARGET] = 180
    return replace(rates, irq_cpus=cpus.tobytes(), shares=rates.shares | {"busy": bytes(busy)})


@pytest_asyncio.fixture
async def observed(backend: Backend) -> AsyncIterator[Observed]:
    agent: FakeAgent = await enrolled(backend.database, backend.url, f"observed-{uuid4().hex[:8]}")
    applied_at = datetime.now(UTC).replace(microsecond=0) - timedelta(seconds=125)
    applied_ms = applied_at.timestamp() * 1000
    samples = []
    for place, rates in enumerate(machine(SAMPLES, cpus=8, irqs=10)):
        time_ms = round(applied_ms + (place + 1 + 12 - SAMPLES) * STEP_S * 1000)
        samples.append(moved(replace(rates, time_ms=time_ms, duration_s=float(STEP_S)), applied_ms))
    ids = np.frombuffer(samples[0].irq_ids or b"", "<u4")
    home = int(np.frombuffer(samples[0].irq_cpus or b"", "<u2")[ids == IRQ][0])
    eth0 = Netdev("eth0", None, None, None, None, True, False, False, [])
    irq = Irq(IRQ, "eth0-0", "PCI-MSI", "0-7", str(home), 0, True, None, "eth0", [])
    async with asyncio.timeout(PATIENCE_S), agent:
        described = TopologyMessage(make_topology(8)), InventoryMessage(Inventory([eth0], [irq]))
        await tell(backend.app.state.bus, agent, *described, *map(RatesMessage, samples))
        await agent.until_acked(SAMPLES // CHUNK * CHUNK)  # nothing is known of samples that are being stored
        yield Observed(backend, await backend.client("viewer"), agent.node_id, home, applied_at)


async def test_the_figures_of_an_interrupt_its_cpus_and_the_node_are_compared(observed: Observed) -> None:
    found = await observed.get(await observed.change())
    figures = {(one["metric"], one["subject"]): one for one in found["figures"]}  # type: ignore[attr-defined]  # parsed JSON
    subjects = {subject for _, subject in figures}
    assert {f"cpu:{observed.home}", f"cpu:{TARGET}", f"irq:{IRQ}", "nic:eth0", ""} <= subjects
    target = figures["cpu_busy_percent", f"cpu:{TARGET}"]
    assert target["after"] == 90 and target["before"] < 60 and target["has_moved"]
    assert not figures["interrupts_per_s", f"irq:{IRQ}"]["has_moved"]
    assert {metric for metric, subject in figures if subject == ""} == {
        "rx_bytes_per_s", "tx_bytes_per_s", "interrupts_per_s", "cpu_busy_percent", "cpu_softirq_percent",
        "rtt_p50_us", "rtt_p99_us", "dropped_per_s",
    }  # fmt: skip
    assert (found["is_complete"], found["missing"], found["other_changes"]) == (True, "", 0)


async def test_an_observation_is_stored_once_and_does_not_change_any_more(observed: Observed) -> None:
    kept, undone = await observed.change(), await observed.change(
        ChangeState.ROLLED_BACK, ended_at=observed.applied_at + timedelta(seconds=60)
    )  # fmt: skip
    async with asyncio.timeout(PATIENCE_S):
        while not (await observed.get(undone))["figures"]:  # until the last samples are committed
            pass
    late = datetime.now(UTC) + timedelta(minutes=11)
    await observed.backend.app.state.observer.store_due(late)
    for change_id, after_s in ((kept, 120), (undone, 60)):
        change = (await observed.viewer.get(f"/api/v1/changes/{change_id}")).json()
        assert change["observation"]["missing"] == "", change
        assert abs(change["observation"]["after_s"] - after_s) <= STEP_S
        assert change["observation"]["other_changes"] == 1
        assert await observed.get(change_id) == change["observation"]


async def test_a_change_waits_for_the_samples_of_its_two_minutes(observed: Observed) -> None:
    change_id = await observed.change(applied_at=datetime.now(UTC) - timedelta(seconds=121))
    await observed.backend.app.state.observer.store_due(datetime.now(UTC) + timedelta(minutes=1))
    async with observed.backend.database.session() as session:
        row = await session.get(ChangeRow, change_id)
        assert row is not None and row.observation is None


async def test_changes_that_cannot_be_compared_do_not_hold_up_others(
    observed: Observed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observations, "_AT_ONCE", 2)
    at, before_samples = observed.applied_at - timedelta(seconds=60), observed.applied_at - timedelta(hours=2)
    for second in (3, 2, 1):
        await observed.change(created_at=before_samples, applied_at=at - timedelta(seconds=second))
    change_id, now = await observed.change(created_at=at, applied_at=at), datetime.now(UTC)
    async with asyncio.timeout(PATIENCE_S):
        while await observed.stored(change_id) is None:
            await observed.backend.app.state.observer.store_due(now)


async def test_the_observation_of_a_change_that_was_in_force_for_a_moment_is_stored_at_once(observed: Observed) -> None:
    at = observed.applied_at - timedelta(seconds=60)
    ended_at = at + timedelta(seconds=10)
    change_id = await observed.change(ChangeState.ROLLED_BACK, created_at=at, applied_at=at, ended_at=ended_at)
    await observed.backend.app.state.observer.store_due(datetime.now(UTC))
    stored = await observed.stored(change_id)
    assert stored is not None
    assert stored["missing"] == "The change was in force for 10 s only; a comparison takes 20 s."


async def test_an_observation_is_complete_once_the_samples_of_its_two_minutes_are_stored(
    observed: Observed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observed.backend.app.state.ingest, "unstored", lambda _: [])
    stored_until, waits_until = (observed.applied_at - timedelta(seconds=before) for before in (60, 0))
    stored, waits = [await observed.change(created_at=at, applied_at=at) for at in (stored_until, waits_until)]
    await observed.backend.app.state.observer.store_due(datetime.now(UTC))
    changes = [(await observed.viewer.get(f"/api/v1/changes/{one}")).json()["observation"] for one in (stored, waits)]
    assert [one is not None and one["is_complete"] for one in changes] == [True, False]
    so_far = await observed.get(waits)
    assert (so_far["is_complete"], so_far["missing"]) == (False, "")


async def test_the_clock_of_a_node_that_is_connected_to_another_backend_is_known_from_the_database(
    observed: Observed, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = timedelta(seconds=40)
    at = observed.applied_at - ahead
    change_id = await observed.change(created_at=at, applied_at=at)
    monkeypatch.setattr(observed.backend.app.state.registry.get(observed.node_id), "clock_skew_ms", None)
    async with observed.backend.database.session() as session:
        skew = {"skew": ahead.total_seconds() * 1000, "node": observed.node_id}
        await session.execute(text("UPDATE node SET clock_skew_ms = :skew WHERE id = :node"), skew)
    figures = {(one["metric"], one["subject"]): one for one in (await observed.get(change_id))["figures"]}  # type: ignore[attr-defined]  # parsed JSON
    target = figures["cpu_busy_percent", f"cpu:{TARGET}"]
    assert target["after"] == 90 and target["before"] < 60


async def test_changes_without_a_comparison_say_why(observed: Observed) -> None:
    never = await observed.change(ChangeState.FAILED, applied_at=None)
    waiting = await observed.change(ChangeState.APPLYING, applied_at=None)
    assert [(await observed.get(each))["missing"] for each in (never, waiting)] == [
        "The change was not applied.",
        "The change is not applied yet.",
    ]
