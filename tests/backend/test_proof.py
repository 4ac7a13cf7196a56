"""The proof of a policy: its episodes from beginning to end, by the test's clock, and what people are told."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import numpy as np
import pytest
import pytest_asyncio
from sqlalchemy import select
from tests.backend.conftest import Backend
from tests.backend.policy_node import PolicyNode, asked, created, policy_node

from coresteer.policies.tables import DecisionRow
from coresteer.proof import repository
from coresteer.proof.context import ProofContext
from coresteer.proof.monitor import ProofMonitor
from coresteer.proof.tables import ProofBlockRow, ProofEpisodeRow
from coresteer.telemetry import partitions
from coresteer.telemetry.repository import copy_minutes, to_unix_ms
from coresteer.telemetry.rollup import Rollup
from coresteer_core.node.rates import CPU_SHARES
from coresteer_core.policies.base import HoldoutReport, HoldoutState

CPUS = 4
BLOCK_S = 600


def minute(start_ms: int, *, busy: int, megabytes: int) -> Rollup:
    """A minute in which all CPUs were busy by so many half percents, and so much was received."""
    means = np.zeros((len(CPU_SHARES), CPUS), np.uint8)
    means[CPU_SHARES.index("busy")] = busy
    means[CPU_SHARES.index("softirq")] = busy // 2
    netdevs = {"eno1": [megabytes * 10**6, 0, 1000, 0, 0, 0, 0, 0]}
    amounts: dict[str, float] = {"rtt_p99_us": 200, "dropped": 0}
    return Rollup(start_ms, start_ms + 60_000, 1, 60, 60.0, CPUS, means, means, netdevs, amounts)


@dataclass
class Proven:
    """A node with a policy in force whose effect is measured, and the clock."""

    node: PolicyNode
    policy: dict[str, Any]  # Any: JSON
    monitor: ProofMonitor
    now: datetime
    in_use: set[int] = field(default_factory=set)
    published: list[int] = field(default_factory=list)

    @property
    def node_id(self) -> int:
        return self.node.agent.node_id

    @property
    def key(self) -> tuple[int, int]:
        return self.policy["id"], 1

    async def tick(self, seconds: float = 30) -> None:
        self.now += timedelta(seconds=seconds)
        await self.monitor.check(self.now)

    async def episodes(self) -> list[ProofEpisodeRow]:
        async with self.node.backend.database.session() as session:
            query = select(ProofEpisodeRow).where(ProofEpisodeRow.policy_id == self.policy["id"])
            return list(await session.scalars(query.order_by(ProofEpisodeRow.id)))

    async def episode(self) -> ProofEpisodeRow:
        """The last episode, once there is one that runs."""
        for _ in range(400):
            found = await self.episodes()
            if found and found[-1].state == "running":
                return found[-1]
            await self.tick()
        raise AssertionError("no episode began")

    async def until_decided(self) -> ProofEpisodeRow:
        for _ in range(400):
            (*_, last) = await self.episodes()
            if last.state in ("included", "excluded"):
                return last
            await self.tick()
        raise AssertionError("the episode still waits")

    async def add(self, *rows: object) -> None:
        async with self.node.backend.database.session() as session:
            session.add_all(rows)

    def starts(self, row: ProofEpisodeRow) -> dict[bool, datetime]:
        """When the holdout block (True) and the enforced one begin."""
        second = row.started_at + timedelta(seconds=BLOCK_S)
        return {row.holdout_first: row.started_at, not row.holdout_first: second}

    async def measure(self, row: ProofEpisodeRow, *, busy: dict[bool, int], megabytes: int = 100) -> None:
        """Store the minutes of both blocks. busy: while the policy is held out (True), and enforced."""
        rollups = []
        for holdout, start in self.starts(row).items():
            start_ms = int(to_unix_ms(start))
            rollups += [minute(start_ms + 60_000 * at, busy=busy[holdout], megabytes=megabytes) for at in range(10)]
        async with self.node.backend.database.pool.connection() as connection:
            parts = {partitions.partition_of("telemetry_minute", rollup.start_ms) for rollup in rollups}
            await partitions.create_partitions(connection, parts)
            await copy_minutes(connection, [(self.node_id, rollup) for rollup in rollups])

    async def report(self, row: ProofEpisodeRow, state: HoldoutState, at: datetime) -> None:
        """The agent reports a state of the holdout, reached two seconds after this moment."""
        holdout = HoldoutReport(state, 1, int(to_unix_ms(at)) + 2000)
        await self.add(
            DecisionRow(
                node_id=self.node_id,
                at=at + timedelta(seconds=7),
                policy_id=self.policy["id"],
                policy_name=self.policy["name"],
                version=1,
                mode="enforce",
                evaluation={},
                change_id=None,
                holdout=msgspec.to_builtins(holdout),
            )
        )

    async def switch(self, row: ProofEpisodeRow) -> None:
        """The agent reports that it did as it was told."""
        begins = self.starts(row)[True]
        await self.report(row, HoldoutState.HELD_OUT, begins)
        await self.report(row, HoldoutState.IN_FORCE, begins + timedelta(seconds=BLOCK_S))


@pytest_asyncio.fixture
async def proven(backend: Backend) -> AsyncIterator[Proven]:
    await backend.app.state.proof_monitor.stop()
    async with policy_node(backend) as node:
        body = node.body(proof={"holdout_percent": 20, "block_s": BLOCK_S, "guardrails": ["rtt_p99_us"]})
        policy = await created(node, body)
        await asked(node.operator, f"/api/policies/{policy['id']}/enable")
        in_use, published = set[int](), list[int]()

        async def nodes_in_use(_: object, __: object) -> set[int]:
            return in_use

        context = ProofContext(backend.app.state.policies, published.append, nodes_in_use, 1)
        monitor = ProofMonitor(context)
        yield Proven(node, policy, monitor, datetime.now(UTC), in_use, published)
        await asked(node.operator, f"/api/policies/{policy['id']}/disable")


async def test_an_episode_is_held_out_measured_and_counted(proven: Proven) -> None:
    row = await proven.episode()
    await proven.measure(row, busy={True: 40, False: 36})
    await proven.switch(row)
    row = await proven.until_decided()
    assert (row.state, row.reason) == ("included", None)
    assert row.differences == pytest.approx({"cpu_s_per_gbit": np.log(0.9), "rtt_p99_us": 0.0})
    assert proven.published == [proven.node_id] * 2  # held out, and in force again
    async with proven.node.backend.database.session() as session:
        sums = await repository.totals(session, proven.policy["id"])
        blocks = (await session.scalars(select(ProofBlockRow).where(ProofBlockRow.episode_id == row.id))).all()
    assert sums[proven.key]["cpu_s_per_gbit"] == pytest.approx((1, np.log(0.9), np.log(0.9) ** 2))
    assert {block.holdout: round(block.figures["cpu_busy_percent"]) for block in blocks} == {True: 80, False: 72}
    assert all(block.factors["governor"] == "performance" for block in blocks)
    assert all(len(block.parts) == 10 for block in blocks)
