"""History that is distributed by node over two workers is stored, read and deleted as on one server.

Needs a PostgreSQL with Citus, whose programs are in the folder CITUS_PG_BIN; docs/SCALE.md says which versions.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest
import pytest_asyncio
from msgspec.structs import replace
from psycopg import sql
from sqlalchemy import select
from tests.backend.conftest import MIGRATIONS, Backend, running_backend
from tests.backend.fake_agent import FakeAgent, block_message, enrolled, now_ms, stored_seqs
from tests.backend.telemetry_data import machine
from tests.support.citus import CitusDatabase, Cluster, citus_cluster
from tests.support.polling import PATIENCE_S

from coresteer.audit.tables import AuditRow
from coresteer.classes.repository import ClassChunkRow, insert_chunks, read_chunks
from coresteer.cli.main import main
from coresteer.config import Config
from coresteer.db import FENCE, Database
from coresteer.errors import DeposedError
from coresteer.policies.snapshot_store import SnapshotStore, decode_flows, read_flows
from coresteer.presence.connections import Connections
from coresteer.quotas import Quotas, quotas_of
from coresteer.replicas.repository import fence
from coresteer.telemetry import citus, partitions, repository
from coresteer.telemetry.byte_columns import compress
from coresteer.telemetry.chunks import encode
from coresteer.telemetry.hours import HourlyRollups
from coresteer.telemetry.maintenance import Maintenance
from coresteer.telemetry.partitions import HOUR_MS, PARTITION_WIDTH_MS, partition_of
from coresteer.telemetry.repository import EncodedChunk, StreamPosition, from_unix_ms
from coresteer.telemetry.rollup import minute_rollups
from coresteer.telemetry.sample_buffer import read_block
from coresteer.telemetry.service import Ingest
from coresteer_core.node.rates import Rates
from coresteer_core.protocol import COLUMNS, FlowsMessage
from coresteer_core.protocol import encode as encode_message

if not (PG_BIN := os.environ.get("CITUS_PG_BIN", "")):
    pytest.skip(  # Citus is built from source, so most machines have none
        "CITUS_PG_BIN names no PostgreSQL with Citus, so history distributed by node is not tested",
        allow_module_level=True,
    )

NODES = 4
SAMPLES = 60
BEGIN_MS = now_ms() // HOUR_MS * HOUR_MS - 4 * HOUR_MS
"""Of the samples: the beginning of an hour that is over."""
QUERIES = {
    "heatmap of samples": ("heatmap?share=busy&columns=300&", 1),
    "heatmap of minutes": ("heatmap?share=softirq&columns=300&", 10),
    "heatmap of hours": ("heatmap?share=busy&columns=300&", 240),
    "series of samples": ("series?metric=interrupts_per_s&metric=rx_bytes_per_s&points=60&", 1),
    "series of minutes": ("series?metric=interrupts_per_s&metric=rx_bytes_per_s&points=60&", 10),
    "series of hours": ("series?metric=interrupts_per_s&metric=rx_bytes_per_s&points=60&", 240),
    "matrix": ("matrix?", 1),
    "span": ("samples-span?", 1),
}
"""What is asked of a node's history, with the hours that the range spans."""


def _samples(node: int, part: int) -> list[Rates]:
    """Samples of a minute; those of part 1 follow those of part 0."""
    made = machine(SAMPLES, cpus=4, irqs=6, seed=10 * node + part, first_seq=1 + part * SAMPLES)
    return [replace(r, time_ms=BEGIN_MS + 1000 * r.seq, duration_s=1.0) for r in made]


@dataclass
class Fleet:
    """A backend with nodes, the odd of which send blocks and the others single samples."""

    backend: Backend
    agents: list[FakeAgent]

    @classmethod
    async def enrol(cls, backend: Backend) -> "Fleet":
        return cls(backend, [await enrolled(backend.database, backend.url, f"node-{n}") for n in range(NODES)])

    async def send(self, part: int) -> None:
        """Store a part of each node's samples."""
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*(self._send(number, part) for number in range(NODES)))

    async def _send(self, number: int, part: int) -> None:
        agent, samples = self.agents[number], _samples(number, part)
        await agent.connect()
        await agent.greet(features=[COLUMNS] if number % 2 else [])
        for first in range(0, SAMPLES, 20):
            some = samples[first : first + 20]
            await (agent.send_block(some) if number % 2 else agent.send_rates(some))
        await agent.until_acked(samples[-1].seq)
        await agent.websocket.close()

    async def make_hours(self) -> None:
        await HourlyRollups(self.backend.database).roll_up(now_ms() + 2 * HOUR_MS)

    async def answers(self) -> dict[tuple[str, str], object]:
        """What each of QUERIES returns of each node, and the fleet's past figures."""
        viewer = await self.backend.client("viewer")
        until = BEGIN_MS + HOUR_MS
        found: dict[tuple[str, str], object] = {}
        for number, agent in enumerate(self.agents):
            for name, (query, hours) in QUERIES.items():
                path = f"/api/v1/nodes/{agent.node_id}/{query}from_time={_time(until - hours * HOUR_MS)}"
                answer = await viewer.get(f"{path}&to_time={_time(until)}")
                assert answer.status_code == 200, answer.text
                found[name, f"node-{number}"] = answer.content
        fleet = await viewer.get(f"/api/v1/fleet/series?from_time={_time(BEGIN_MS)}&to_time={_time(until)}&points=60")
        assert fleet.status_code == 200, fleet.text
        return found | {("series", "fleet"): fleet.json()}


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat().replace("+00:00", "Z")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def cluster() -> AsyncIterator[Cluster]:
    async with citus_cluster(Path(PG_BIN)) as found:
        yield found


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def plain(database_url: str) -> AsyncIterator[Fleet]:
    async with running_backend(database_url, chunk_seconds=5) as backend:
        fleet = await Fleet.enrol(backend)
        for part in (0, 1):
            await fleet.send(part)
        await fleet.make_hours()
        yield fleet


@dataclass
class Distributed(Fleet):
    """A fleet whose history was stored on one server at first."""

    address: CitusDatabase
    said: list[str]

    async def rows(self, table: str) -> list[int]:
        """How many rows of a table each worker has."""
        query = """
            SELECT sum(result::int)::int FROM run_command_on_shards(%s, 'SELECT count(*) FROM %%s')
            JOIN pg_dist_placement USING (shardid) GROUP BY groupid
        """
        async with await psycopg.AsyncConnection.connect(self.address.owner_url) as owner:
            return [rows for (rows,) in await (await owner.execute(query, (table,))).fetchall()]

    async def tables(self, prefix: str) -> list[int]:
        """How many tables each worker has whose names begin so."""
        found = []
        for url in self.address.worker_urls:
            async with await psycopg.AsyncConnection.connect(url) as worker:
                await worker.execute("SET citus.override_table_visibility = off")  # else shards are hidden
                query = "SELECT FROM pg_class WHERE relkind = 'r' AND starts_with(relname, %s)"
                found.append(len(await (await worker.execute(query, (prefix,))).fetchall()))
        return found


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def distributed(cluster: Cluster) -> AsyncIterator[Distributed]:
    """A fleet that has sent as much as plain's: part 1 of it while its history was distributed."""
    address = await cluster.new_database()
    owner = Database(address.owner_url, MIGRATIONS)
    await owner.migrate(address.backend_url)
    async with running_backend(address.backend_url, chunk_seconds=5) as backend:
        fleet = await Fleet.enrol(backend)
        await fleet.send(0)
        await fleet.make_hours()
        await address.join()
        said: list[str] = []
        await asyncio.gather(citus.distribute(owner, said.append), fleet.send(1))
        await fleet.make_hours()
        yield Distributed(backend, fleet.agents, address, said)


async def test_the_same_is_read_as_from_one_server(plain: Fleet, distributed: Distributed) -> None:
    expected, found = await plain.answers(), await distributed.answers()
    assert [which for which in expected if found[which] != expected[which]] == []


async def _migrate(monkeypatch: pytest.MonkeyPatch, address: CitusDatabase) -> int:
    monkeypatch.setenv("CORESTEER_OWNER_URL", address.owner_url)
    monkeypatch.setenv("DATABASE_URL", address.backend_url)
    return await asyncio.to_thread(main, ["migrate", "--citus"])


async def test_all_of_history_is_on_both_workers_and_none_on_the_coordinator(distributed: Distributed) -> None:
    assert distributed.said == [
        f"{table} is now distributed by node_id: 8 shards on 2 workers." for table in PARTITION_WIDTH_MS
    ]
    for table in ("telemetry_chunk", "telemetry_minute", "telemetry_hour"):
        assert min(await distributed.rows(table)) > 0, table
    assert sum(await distributed.rows("telemetry_hour")) == NODES
    async with distributed.backend.database.pool.connection() as connection:
        here = "SELECT sum(pg_relation_size(oid)) FROM pg_class WHERE relispartition AND relkind = 'r'"
        assert await (await connection.execute(here)).fetchone() == (0,)


async def test_migrating_again_changes_nothing_and_a_later_migration_reaches_the_workers(
    distributed: Distributed, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = await distributed.answers()
    assert await _migrate(monkeypatch, distributed.address) == 0
    assert capsys.readouterr().out.count("is already distributed by node_id: 8 shards on 2 workers.") == 5
    async with await psycopg.AsyncConnection.connect(distributed.address.owner_url) as owner:
        for table in PARTITION_WIDTH_MS:
            await owner.execute(
                sql.SQL("ALTER TABLE {} ADD COLUMN later integer NOT NULL DEFAULT 7").format(sql.Identifier(table))
            )
    assert await distributed.answers() == before
    async with distributed.backend.database.pool.connection() as connection:
        assert await (await connection.execute("SELECT sum(later) FROM telemetry_hour")).fetchone() == (7 * NODES,)


async def test_samples_that_two_backends_store_at_once_are_stored_once(distributed: Distributed) -> None:
    database = distributed.backend.database
    agent = await enrolled(database, "", "sends-twice")
    config = Config.model_validate({"chunk_seconds": 1})
    samples = _samples(9, 0)
    message = block_message(samples[:20])
    block = read_block(message.first_seq, message.last_seq, message.packed, 0)[0]
    for parts in (samples, [block]):
        both = [
            Ingest(database, Connections(), config, lambda _: None, Quotas(database, quotas_of(config))) for _ in "12"
        ]
        for ingest in both:  # each knows nothing of what another one has stored
            buffer = ingest.open_buffer(agent.node_id, "s1", StreamPosition(None, 0))
            for part in parts:
                ingest.add(buffer, part, 100)
        await asyncio.gather(*(ingest.stop() for ingest in both))
    assert await stored_seqs(database.url, agent.node_id) == [sample.seq for sample in samples]


async def test_chunks_with_the_same_key_are_both_stored(distributed: Distributed) -> None:
    database = distributed.backend.database
    agent = await enrolled(database, "", "same-millisecond")
    config = Config.model_validate({})
    ingest = Ingest(database, Connections(), config, lambda _: None, Quotas(database, quotas_of(config)))
    for stream in ("s1", "s2"):  # restarted: the same time and number again
        buffer = ingest.open_buffer(agent.node_id, stream, StreamPosition(None, 0))
        ingest.add(buffer, _samples(9, 0)[0], 100)
    await ingest.stop()
    assert await stored_seqs(database.url, agent.node_id) == [1, 1]


async def test_a_deposed_leaders_hour_is_not_stored(distributed: Distributed) -> None:
    database = distributed.backend.database
    broken: list[int] = []

    async def replace_hours() -> None:
        FENCE.set(fence(-1, -1, lambda: broken.append(1)))
        async with database.connection() as connection:
            await repository.replace_hours(connection, from_unix_ms(BEGIN_MS), [(agent.node_id, minute)])

    agent = distributed.agents[0]
    minute = minute_rollups(_samples(0, 0))[0]
    before = await distributed.answers()
    with pytest.raises(DeposedError):
        await asyncio.create_task(replace_hours())
    assert broken and await distributed.answers() == before


async def test_retention_counts_the_bytes_of_the_workers_and_drops_their_partitions(distributed: Distributed) -> None:
    database = distributed.backend.database
    old = partition_of("telemetry_chunk", BEGIN_MS - 30 * 24 * HOUR_MS)
    chunks = [
        EncodedChunk(agent.node_id, "old", encode(machine(60, start_ms=old.start_ms + 1000)), [])
        for agent in distributed.agents
    ]
    async with database.pool.connection() as connection:
        await partitions.create_missing(connection, set(), {old})
        await repository.copy_chunks(connection, chunks)
    async with database.pool.connection() as connection:
        sizes = await partitions.partition_sizes(connection)
    assert sizes[old] > sum(each.size() for each in chunks)
    assert set(sizes) >= partitions.present_and_next(now_ms())
    assert min(await distributed.tables(old.name)) > 0
    await Maintenance(database, Config.model_validate({}), HourlyRollups(database)).maintain(now_ms())
    async with database.session() as session:
        entries = (await session.scalars(select(AuditRow).where(AuditRow.target == old.name))).all()
    assert [(entry.action, entry.detail) for entry in entries] == [
        ("retention.drop", {"why": "age", "bytes": sizes[old]})
    ]
    assert await distributed.tables(old.name) == [0, 0]


async def test_flows_and_figures_of_classes_are_stored_once_and_read_back(distributed: Distributed) -> None:
    time_ms = now_ms() - 60_000
    snapshots: SnapshotStore = distributed.backend.app.state.agents.snapshots
    rows = [ClassChunkRow(agent.node_id, 1, time_ms, b"figures") for agent in distributed.agents]
    async with distributed.backend.database.pool.connection() as connection:
        await partitions.create_missing(connection, set(), {partition_of("telemetry_classes", time_ms)})
        for _ in "12":
            await insert_chunks(connection, rows)
    for agent in distributed.agents:
        snapshots.add_flows(agent.node_id, time_ms, compress(encode_message(FlowsMessage(time_ms, []))))
        await snapshots.flush()
    assert min(await distributed.rows("telemetry_flows")) > 0
    assert sum(await distributed.rows("telemetry_classes")) == NODES
    async with distributed.backend.database.pool.connection() as connection:
        for agent in distributed.agents:
            classes = await read_chunks(connection, agent.node_id, time_ms - 1000, time_ms + 1000)
            assert classes == [(1, b"figures")]
            (flows,) = await read_flows(connection, agent.node_id, *map(from_unix_ms, (time_ms, time_ms)))
            assert decode_flows(flows) == FlowsMessage(time_ms, [])


async def test_a_node_is_deleted_with_its_flows_on_the_workers(distributed: Distributed) -> None:
    snapshots: SnapshotStore = distributed.backend.app.state.agents.snapshots
    agent = await enrolled(distributed.backend.database, distributed.backend.url, "deleted")
    before = sum(await distributed.rows("telemetry_flows"))
    snapshots.add_flows(agent.node_id, now_ms() - 60_000, compress(encode_message(FlowsMessage(now_ms(), []))))
    await snapshots.flush()
    assert sum(await distributed.rows("telemetry_flows")) == before + 1
    admin = await distributed.backend.client("admin")
    assert (await admin.delete(f"/api/v1/nodes/{agent.node_id}")).status_code == 204
    assert sum(await distributed.rows("telemetry_flows")) == before


async def test_a_new_database_is_distributed_as_soon_as_it_has_workers(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    address = await cluster.new_database()
    async with await psycopg.AsyncConnection.connect(address.owner_url, autocommit=True) as owner:
        await owner.execute("CREATE EXTENSION citus")
        assert await _migrate(monkeypatch, address) == 1
        assert "has no workers. Add each with SELECT citus_add_node('HOST', PORT)" in capsys.readouterr().err
        await owner.execute("DROP EXTENSION citus")
    await address.join()
    assert await _migrate(monkeypatch, address) == 0
    assert capsys.readouterr().out.count("is now distributed by node_id: 8 shards on 2 workers.") == 5
