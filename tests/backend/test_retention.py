import pytest
from sqlalchemy import select

from coresteer.audit.tables import AuditRow
from coresteer.db import Database
from coresteer.telemetry import partitions
from coresteer.telemetry.partitions import HOUR_MS, PARTITION_WIDTH_MS, Partition, surplus_partitions

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
