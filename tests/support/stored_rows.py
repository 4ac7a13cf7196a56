"""Reads every row of history back as what it says it is, for tests and benches that store what is untrusted."""

from collections import Counter
from collections.abc import Callable

import msgspec
from psycopg import sql
from psycopg.rows import dict_row

from coresteer.classes.chunks import Chunk as ClassChunk
from coresteer.db import Database
from coresteer.experiments.spec import RecordedRun, Spec
from coresteer.policies.snapshot_store import decode_flows
from coresteer.telemetry.byte_columns import decompress
from coresteer.telemetry.chunk_decoding import decode_columns
from coresteer.telemetry.rollup import unpack_netdevs, unpack_shares
from coresteer.telemetry.sample_columns import COLUMNS
from coresteer.text_validation import control_characters
from coresteer_core.changes.plan import Plan
from coresteer_core.changes.report import ChangeMessage, Result
from coresteer_core.node.inventory import Inventory
from coresteer_core.node.nic import NicKnowledge
from coresteer_core.node.rates import Rates
from coresteer_core.node.topology import Topology
from coresteer_core.policies.base import Evaluation, HoldoutReport
from coresteer_core.protocol import Hello

Row = dict[str, object]


def _chunk(row: Row) -> None:
    columns = {name: row[name] for name in COLUMNS}
    samples = decode_columns(row["samples"], row["cpus"], row["scalars"], columns)  # type: ignore[arg-type]  # a row
    for rates in samples:
        msgspec.convert(msgspec.to_builtins(rates, builtin_types=(bytes,)), Rates)
    assert len(samples) == row["samples"], "other samples than it says"
    assert samples[0].seq == row["first_seq"] and samples[-1].seq == row["last_seq"], "other numbers than it says"


def _rollup(row: Row) -> None:
    unpack_shares(row["shares"], row["cpus"])  # type: ignore[arg-type]  # a row
    unpack_netdevs(row["netdevs"])  # type: ignore[arg-type]  # a row
    assert row["samples"], "no samples"


def _flows(row: Row) -> None:
    decode_flows(row["data"])  # type: ignore[arg-type]  # a row


def _classes(row: Row) -> None:
    msgspec.msgpack.decode(decompress(row["data"]), type=ClassChunk)  # type: ignore[arg-type]  # a row


def _snapshot(row: Row) -> None:
    kind = Topology if row["kind"] == "topology" else Inventory
    msgspec.msgpack.decode(decompress(row["data"]), type=kind)  # type: ignore[arg-type]  # a row


def _structs(**columns: object) -> Callable[[Row], None]:
    def check(row: Row) -> None:
        for column, kind in columns.items():
            if row[column] is not None:
                msgspec.convert(row[column], kind)
                wrong = control_characters(row[column])
                assert wrong is None, f"{column}: {wrong}"

    return check


SCHEMAS: dict[str, Callable[[Row], None]] = {
    "telemetry_chunk": _chunk,
    "telemetry_minute": _rollup,
    "telemetry_hour": _rollup,
    "telemetry_flows": _flows,
    "telemetry_classes": _classes,
    "node_snapshot": _snapshot,
    "node": _structs(hello=Hello, topology=Topology, inventory=Inventory, learned=NicKnowledge),
    "decision": _structs(evaluation=Evaluation, holdout=HoldoutReport),
    "early_report": _structs(message=ChangeMessage),
    "change": _structs(plan=Plan, results=list[Result]),
    "experiment": _structs(spec=Spec),
    "experiment_run": _structs(run=RecordedRun),
}
"""How a row of each table that agents fill is read."""


async def scan(database: Database) -> tuple[Counter[str], list[str]]:
    """Return how many rows were read by table, and what is wrong with which."""
    rows: Counter[str] = Counter()
    wrong = []
    for table, check in SCHEMAS.items():
        async with database.pool.connection() as connection, connection.cursor(row_factory=dict_row) as cursor:
            async for row in cursor.stream(sql.SQL("SELECT * FROM {}").format(sql.Identifier(table))):
                rows[table] += 1
                try:
                    check(row)
                except Exception as error:  # whatever is stored and cannot be read
                    wrong.append(f"{table}: {error!r}")
    return rows, wrong
