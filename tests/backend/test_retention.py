import asyncio
import os
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg import sql
from psycopg.types.json import Jsonb
from sqlalchemy import select
from tests.backend.fake_agent import enrolled
from tests.backend.telemetry_data import machine

from coresteer.audit.tables import AuditRow
from coresteer.config import Config
from coresteer.db import Database
from coresteer.telemetry import evidence, partitions, repository
from coresteer.telemetry.hours import HourlyRollups
from coresteer.telemetry.maintenance import Maintenance
from coresteer.telemetry.partitions import HOUR_MS, PARTITION_WIDTH_MS, Partition, surplus_partitions
from coresteer.telemetry.repository import from_unix_ms
from coresteer.telemetry.rollup import Rollup, minute_rollups

NOW = 1_800_000_000_000
DAY_MS = 24 * HOUR_MS
KEEP = {
    "telemetry_chunk": 7 * DAY_MS,
    "telemetry_flows": 7 * DAY_MS,
    "telemetry_classes": 7 * DAY_MS,
    "telemetry_minute": 400 * DAY_MS,
    "telemetry_hour": 400 * DAY_MS,
}


def _chunks(*hours_ago: int) -> list[Partition]:
    return [partitions.partition_of("telemetry_chunk", NOW - ago * HOUR_MS) for ago in hours_ago]


@pytest.mark.parametrize(
    ("hours_ago", "most_bytes", "dropped"),
    [
        ((0, 1, 2), 1000, {}),
        ((0, 1, 24 * 8), 1000, {24 * 8: "age"}),
        ((0, 1, 2, 3), 250, {3: "bytes", 2: "bytes"}),
        ((0,), 1, {}),
        ((-1, 0, 24 * 8, 5), 200, {24 * 8: "age", 5: "bytes"}),
    ],
    ids=["all fits", "too old", "too many bytes, oldest first", "never the present one", "age counts towards bytes"],
)
def test_what_is_dropped(hours_ago: tuple[int, ...], most_bytes: int, dropped: dict[int, str]) -> None:
    present = dict.fromkeys(_chunks(*hours_ago), 100)
    found = surplus_partitions(present, NOW, retain_ms=KEEP, most_bytes=most_bytes)
    assert found == {_chunks(ago)[0]: why for ago, why in dropped.items()}


def test_no_rollup_is_dropped_for_the_bytes_of_samples_that_are_too_old() -> None:
    expired, rollup = _chunks(24 * 8)[0], partitions.partition_of("telemetry_minute", NOW - 300 * DAY_MS)
    found = surplus_partitions({rollup: 100, expired: 100}, NOW, retain_ms=KEEP, most_bytes=100)
    assert found == {expired: "age"}


async def test_partitions_are_made_ahead_found_with_their_size_and_dropped_with_an_audit_entry(
    database: Database,
) -> None:
    old = partitions.partition_of("telemetry_chunk", NOW - 30 * DAY_MS)
    made = {old, *partitions.present_and_next(NOW)}
    async with database.pool.connection() as connection:
        await partitions.create_partitions(connection, made)
        await partitions.create_partitions(connection, made)  # again: no harm
        assert (await partitions.partition_sizes(connection)).keys() == made
    dropped = await partitions.drop_surplus(database, NOW, retain_ms=KEEP, most_bytes=1 << 40)
    assert dropped == {old}
    async with database.session() as session:
        entries = (await session.scalars(select(AuditRow).where(AuditRow.action == "retention.drop"))).all()
    assert [(entry.actor, entry.target, entry.detail["why"]) for entry in entries] == [("coresteer", old.name, "age")]


def test_the_next_partition_of_each_table_is_made_before_its_time() -> None:
    for table, width in PARTITION_WIDTH_MS.items():
        assert partitions.partition_of(table, NOW + width) in partitions.present_and_next(NOW)


CONTROL = {
    *(
        "audit_export",
        "audit_head",
        "app_user",
        "session",
        "logout_token",
        "api_token",
        "one_time_token",
        "enrolment_token",
        "node",
        "policy",
        "proof_fleet",
    ),
    *("application_metric", "report_share", "audit_export", "audit_head", "fleet_view", "managed_resource"),
    *("alert_rule", "alert_receiver", "alert_silence", "change_window", "approval_threshold"),
    *("replica", "lease", "node_presence", "telemetry_hour_due"),
}
"""Tables of what is in force and who may act: no history."""


async def test_backends_may_make_the_same_partition_at_the_same_time(database: Database) -> None:
    new = partitions.partition_of("telemetry_chunk", NOW + 30 * DAY_MS)

    async def make() -> None:
        async with database.pool.connection() as connection:
            await partitions.create_partitions(connection, {new})

    await asyncio.gather(*(make() for _ in range(4)))
    async with database.pool.connection() as connection:
        assert new in await partitions.partition_sizes(connection)


async def test_every_table_is_history_that_counts_toward_the_budget_or_control_data(database: Database) -> None:
    async with database.pool.connection() as connection:
        cursor = await connection.execute(
            "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND NOT relispartition"
            " AND relnamespace = 'public'::regnamespace"
        )
        tables = {name for (name,) in await cursor.fetchall()}
        counted = await evidence.sizes(connection)
    assert tables - CONTROL - {"alembic_version"} == {*counted, *PARTITION_WIDTH_MS}
    assert all(size > 0 for size in counted.values())


@given(st.dictionaries(st.text(max_size=3), st.integers(0, 10**9)), st.integers(0, 10**10))
def test_the_largest_tables_are_cut_to_one_level_that_makes_all_fit(used: dict[str, int], most: int) -> None:
    level = evidence.level(used, most)
    left = sum(min(size, level) for size in used.values())
    assert left <= most + 1e-3
    assert left == pytest.approx(min(most, sum(used.values())))


async def _decisions(database: Database, node_id: int, at: list[datetime]) -> None:
    async with database.pool.connection() as connection:
        for time in at:
            await connection.execute(
                "INSERT INTO decision (node_id, at, policy_id, policy_name, version, mode, evaluation)"
                " VALUES (%s, %s, 1, 'p', 1, 'observe', %s)",
                (node_id, time, Jsonb({"sentence": os.urandom(5000).hex()})),
            )


async def _change(database: Database, node_id: int, at: datetime, ended_at: datetime | None) -> None:
    async with database.pool.connection() as connection:
        await connection.execute(
            "INSERT INTO change (id, node_id, plan, sentence, state, created_by, reason, created_at, ended_at,"
            " confirm_timeout_s, guardrails, results)"
            " VALUES (gen_random_uuid(), %s, '{}', '', %s, '', '', %s, %s, 30, '[]', '[]')",
            (node_id, "unconfirmed" if ended_at is None else "confirmed", at, ended_at),
        )


async def _times(database: Database, table: str, column: str) -> list[datetime]:
    async with database.pool.connection() as connection:
        query = sql.SQL("SELECT {at} FROM {table} ORDER BY {at}")
        cursor = await connection.execute(query.format(at=sql.Identifier(column), table=sql.Identifier(table)))
        return [at for (at,) in await cursor.fetchall()]


async def test_above_the_budget_the_oldest_rows_of_the_largest_table_are_deleted(database: Database) -> None:
    node_id = (await enrolled(database, "", "full-of-history")).node_id
    began = datetime(2026, 1, 1, tzinfo=UTC)
    times = [began + timedelta(hours=hour) for hour in range(20)]
    await _decisions(database, node_id, times)
    await _change(database, node_id, began, began)
    await _change(database, node_id, began, None)
    assert await evidence.delete_surplus(database, 1e9) == {}
    assert await evidence.delete_surplus(database, 100_000) == {"decision": 11}
    assert await _times(database, "decision", "at") == times[11:]
    assert len(await _times(database, "change", "created_at")) == 2
    async with database.session() as session:
        entries = (await session.scalars(select(AuditRow).where(AuditRow.target == "decision"))).all()
    assert [(entry.action, entry.detail["rows"]) for entry in entries] == [("retention.drop", 11)]
    await evidence.delete_surplus(database, 100)
    assert await _times(database, "decision", "at") == []
    assert len(await _times(database, "change", "created_at")) == 1  # the one that is still open


async def test_history_beside_telemetry_takes_the_place_of_the_oldest_telemetry(database: Database) -> None:
    node_id = (await enrolled(database, "", "counts-too")).node_id
    recent = datetime.fromtimestamp(NOW / 1000, UTC)
    old = partitions.partition_of("telemetry_chunk", NOW - 30 * HOUR_MS)
    async with database.pool.connection() as connection:
        await partitions.create_partitions(connection, {old})
        others = sum((await evidence.sizes(connection)).values())
        present = sum((await partitions.partition_sizes(connection)).values())
    config = Config.model_validate({"retention_bytes": others + present + 1_500_000})
    maintenance = Maintenance(database, config, HourlyRollups(database))
    await maintenance.maintain(NOW)
    async with database.pool.connection() as connection:
        assert old in await partitions.partition_sizes(connection)
    await _decisions(database, node_id, [recent + timedelta(seconds=second) for second in range(400)])
    await maintenance.maintain(NOW + 1)
    async with database.pool.connection() as connection:
        assert old not in await partitions.partition_sizes(connection)


async def test_an_hour_that_cannot_be_made_does_not_stop_retention(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = partitions.partition_of("telemetry_chunk", NOW - 30 * DAY_MS)
    async with database.pool.connection() as connection:
        await partitions.create_partitions(connection, {old})
    hourly = HourlyRollups(database)

    async def fails(_: int) -> None:
        raise OverflowError

    monkeypatch.setattr(hourly, "roll_up", fails)
    with pytest.raises(OverflowError):
        await Maintenance(database, Config.model_validate({}), hourly).maintain(NOW)
    async with database.pool.connection() as connection:
        assert old not in await partitions.partition_sizes(connection)


async def test_a_full_disk_does_not_stop_retention(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    old = partitions.partition_of("telemetry_chunk", NOW - 30 * DAY_MS)
    async with database.pool.connection() as connection:
        await partitions.create_partitions(connection, {old})

    async def fails(_: repository.Connection, __: Iterable[Partition]) -> None:
        raise psycopg.errors.DiskFull

    monkeypatch.setattr(partitions, "create_partitions", fails)
    with pytest.raises(psycopg.errors.DiskFull):
        await Maintenance(database, Config.model_validate({}), HourlyRollups(database)).maintain(NOW)
    async with database.pool.connection() as connection:
        assert old not in await partitions.partition_sizes(connection)


async def test_a_table_that_is_read_for_long_does_not_stop_the_retention_of_the_others(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "_LOCK_TIMEOUT", "10ms")
    read = {partitions.partition_of("telemetry_chunk", NOW - days * DAY_MS) for days in (30, 31)}
    other = partitions.partition_of("telemetry_flows", NOW - 30 * DAY_MS)
    async with database.pool.connection() as connection:
        await partitions.create_partitions(connection, {*read, other})

    async def drop() -> set[Partition]:
        return await partitions.drop_surplus(database, NOW, retain_ms=KEEP, most_bytes=1 << 40)

    async with database.pool.connection() as reader:
        await reader.execute("LOCK TABLE telemetry_chunk IN ACCESS SHARE MODE")
        assert await drop() == {other}
    assert await drop() == read


async def test_a_partition_of_a_table_that_is_read_for_long_is_made_later_and_blocks_nobody(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "_LOCK_TIMEOUT", "10ms")
    wanted = {partitions.partition_of("telemetry_chunk", NOW + 2 * DAY_MS)}
    async with database.pool.connection() as reader:
        await reader.execute("LOCK TABLE telemetry_chunk IN ACCESS SHARE MODE")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            async with database.pool.connection() as connection:
                await partitions.create_partitions(connection, wanted)
    async with database.pool.connection() as connection:
        await partitions.create_partitions(connection, wanted)
        assert wanted <= (await partitions.partition_sizes(connection)).keys()


async def test_an_hour_is_made_again_only_of_the_nodes_that_have_stored_more_minutes(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    hour = NOW // HOUR_MS * HOUR_MS - 3 * HOUR_MS
    punctual, late = [(await enrolled(database, "", name)).node_id for name in ("punctual", "late")]
    minutes = minute_rollups(machine(150, cpus=2, irqs=2, start_ms=hour + 2000))
    hourly, made = HourlyRollups(database), []

    async def store(stored: Sequence[tuple[int, int]]) -> None:
        async with database.pool.connection() as connection:
            await partitions.create_partitions(connection, {partitions.partition_of("telemetry_minute", hour)})
            await repository.copy_minutes(connection, [(node_id, minutes[at]) for node_id, at in stored])
            await hourly.mark_due(connection, [hour], NOW)

    read_rollups = repository.read_rollups

    async def noted(*arguments: Any) -> list[Rollup]:  # noqa: ANN401 - those of read_rollups
        made.append(arguments[2])
        return await read_rollups(*arguments)

    monkeypatch.setattr(repository, "read_rollups", noted)
    await store([(punctual, 0), (punctual, 1), (late, 0)])
    await hourly.roll_up(NOW)
    await store([(late, 1)])
    await hourly.roll_up(NOW)
    assert made == [punctual, late, late]
    async with database.pool.connection() as connection:
        cursor = await connection.execute(
            "SELECT node_id, samples FROM telemetry_hour WHERE t0 >= %s AND t0 < %s ORDER BY node_id",
            (from_unix_ms(hour), from_unix_ms(hour + HOUR_MS)),
        )
        samples = minutes[0].samples + minutes[1].samples
        assert await cursor.fetchall() == [(punctual, samples), (late, samples)]
