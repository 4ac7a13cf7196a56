"""A policy in force on a node, whose effect is measured by the test's clock."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np
from sqlalchemy import select
from tests.backend.conftest import Backend
from tests.backend.policy_node import PolicyNode, asked, created, policy_node

from coresteer.application_metrics.reading import DeclaredMetric, Missing, Reading
from coresteer.policies.tables import DecisionRow
from coresteer.proof import repository
from coresteer.proof.context import ProofContext
from coresteer.proof.monitor import ProofMonitor
from coresteer.proof.schedule import Design, Episode, Subject, planned
from coresteer.proof.tables import ProofEpisodeRow
from coresteer.telemetry import partitions
from coresteer.telemetry.repository import copy_minutes, to_unix_ms
from coresteer.telemetry.rollup import Rollup
from coresteer_core.node.rates import CPU_SHARES
from coresteer_core.policies.base import HoldoutReport, HoldoutState

CPUS = 4
BLOCK_S = 600


def minute(start_ms: int, *, busy: int, megabytes: int) -> Rollup:
    """A minute with the busy share of all CPUs in units of 0.5 %, and the megabytes received, also by a bridge."""
    means = np.zeros((len(CPU_SHARES), CPUS), np.uint8)
    means[CPU_SHARES.index("busy")] = busy
    means[CPU_SHARES.index("softirq")] = busy // 2
    means[CPU_SHARES.index("user")] = busy - busy // 2
    netdevs = {name: [megabytes * 10**6, 0, 1000, 0, 0, 0, 0, 0] for name in ("br0", "eno1")}
    amounts: dict[str, float] = {"rtt_p99_us": 200, "rtt_p99_us_integral": 200 * 60.0, "dropped": 0}
    return Rollup(start_ms, start_ms + 60_000, 1, 60, 60.0, CPUS, means, means, netdevs, amounts)


@dataclass
class Proven:
    """A node with a policy in force whose effect is measured, and the clock."""

    node: PolicyNode
    policy: dict[str, Any]  # Any: JSON
    context: ProofContext
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

    async def tick(self, seconds: float = 60) -> None:
        self.now += timedelta(seconds=seconds)
        await self.monitor.check(self.now)
        await self.monitor.analyse(self.now)

    async def episodes(self) -> list[ProofEpisodeRow]:
        async with self.node.backend.database.session() as session:
            query = select(ProofEpisodeRow).where(ProofEpisodeRow.policy_id == self.policy["id"])
            return list(await session.scalars(query.order_by(ProofEpisodeRow.id)))

    async def get(self, path: str) -> Any:  # noqa: ANN401 - JSON
        return (await self.node.operator.get(path)).json()

    async def version(self) -> Any:  # noqa: ANN401 - JSON
        """What the API says about the policy's only version."""
        (version,) = (await self.get(f"/api/v1/policies/{self.policy['id']}/proof"))["versions"]
        return version

    async def planned(self) -> Episode:
        """The next episode that is planned."""
        await self.monitor.check(self.now)
        async with self.node.backend.database.session() as session:
            seed = (await repository.fleet(session)).seed
        design, at = Design(BLOCK_S, 0.2, 0.25), self.now
        while (episode := planned(seed, Subject(*self.key, self.node_id), design, at.timestamp())) is None or (
            episode.start_s < (self.now + timedelta(seconds=BLOCK_S)).timestamp()
        ):
            at += timedelta(seconds=design.period_s)
        return episode

    async def episode(self) -> ProofEpisodeRow:
        """The next episode, which has just begun."""
        episode = await self.planned()
        self.now = datetime.fromtimestamp(episode.start_s, UTC) - timedelta(seconds=1)
        await self.tick(2)
        (row,) = await self.episodes()
        assert row.state == "running"
        return row

    async def until_waiting(self) -> None:
        """Let the blocks of the first episode go by."""
        while (await self.episodes())[0].state == "running":
            await self.tick()

    async def until_decided(self) -> ProofEpisodeRow:
        """The first episode, once it is included or excluded."""
        for _ in range(100):
            row, *_ = await self.episodes()
            if row.state in ("included", "excluded"):
                return row
            await self.tick()
        raise AssertionError("the episode still waits")

    async def add(self, *rows: object) -> None:
        async with self.node.backend.database.session() as session:
            session.add_all(rows)

    def starts(self, row: ProofEpisodeRow) -> dict[bool, datetime]:
        """When the holdout block (True) and the enforced one begin."""
        second = row.started_at + timedelta(seconds=BLOCK_S)
        return {row.holdout_first: row.started_at, not row.holdout_first: second}

    async def measure(
        self, row: ProofEpisodeRow, *, busy: dict[bool, int], enforced_megabytes: int = 100, megabytes_before: int = 100
    ) -> None:
        """Store the minutes of both blocks, and as many before them.

        busy: while the policy is held out (True), and enforced. Each of the other blocks' minutes has 100 MB.
        """
        rollups = []
        blocks = [
            (start, busy[holdout], 100 if holdout else enforced_megabytes)
            for holdout, start in self.starts(row).items()
        ]
        blocks.append((row.started_at - timedelta(seconds=BLOCK_S), 40, megabytes_before))
        for start, busy_there, megabytes in blocks:
            start_ms = int(to_unix_ms(start))
            rollups += [minute(start_ms + 60_000 * at, busy=busy_there, megabytes=megabytes) for at in range(10)]
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

    async def compared(self, **traffic: int) -> ProofEpisodeRow:
        """The next episode, decided, in which the policy saves a tenth of CPU time. traffic: as in measure()."""
        row = await self.episode()
        await self.measure(row, busy={True: 40, False: 36}, **traffic)
        await self.switch(row)
        return await self.until_decided()

    async def switch(self, row: ProofEpisodeRow) -> None:
        """The agent reports both switches."""
        begins = self.starts(row)[True]
        await self.report(row, HoldoutState.HELD_OUT, begins)
        await self.report(row, HoldoutState.IN_FORCE, begins + timedelta(seconds=BLOCK_S))


Read = Callable[[DeclaredMetric, str, datetime, datetime], Awaitable[Reading]]


async def nothing(*_: object) -> Reading:
    return Reading(missing=Missing.NO_DATA, reason="None is declared.")


@asynccontextmanager
async def proven_policy(
    backend: Backend,
    more: Mapping[str, Any] = MappingProxyType({}),  # Any: JSON
    read: Read = nothing,
) -> AsyncIterator[Proven]:
    """Yield a proven policy. more: fields of its proof; read: reads application metrics."""
    await backend.app.state.proof_monitor.stop()
    async with policy_node(backend) as node:
        primary = [more["metric"].removeprefix("app.")] if "metric" in more else []
        for name in (*primary, *more.get("application_metrics", ())):
            metric = {"name": name, "label": "Checkout, p99", "better": "less", "url": "http://p", "query": "{{node}}"}
            metric |= {"floor": 0.001}
            await asked(await backend.client("admin"), "/api/v1/application-metrics", metric, 201)
        body = node.body(proof={"holdout_percent": 20, "block_s": BLOCK_S, "guardrails": ["rtt_p99_us"], **more})
        policy = await created(node, body)
        await asked(node.operator, f"/api/v1/policies/{policy['id']}/enable")
        in_use, published = set[int](), list[int]()

        async def nodes_in_use(_: object, __: object) -> set[int]:
            return in_use

        parts = replace(backend.app.state.policies, read_application_metric=read)
        context = ProofContext(parts, published.append, nodes_in_use, 1, timedelta(days=400))
        monitor = ProofMonitor(context)
        yield Proven(node, policy, context, monitor, datetime.now(UTC), in_use, published)
        await asked(node.operator, f"/api/v1/policies/{policy['id']}/disable")
