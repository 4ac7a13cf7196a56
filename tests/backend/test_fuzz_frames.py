"""A small, seeded part of tests.bench.bench_fuzz_frames."""

from tests.backend.conftest import Backend
from tests.bench.bench_fuzz_frames import fuzz_decoder, fuzz_socket, logged_errors
from tests.support.polling import poll_async
from tests.support.stored_rows import SCHEMAS, scan

from coresteer.telemetry.evidence import EVIDENCE


def test_mutated_frames_raise_nothing_but_what_closes_or_rejects() -> None:
    fates, unexpected = fuzz_decoder(2500, 7)
    assert unexpected == []
    assert min(fates.values()) > 0 and len(fates) == 4


async def test_mutated_frames_over_a_socket_leave_rows_that_can_be_read(backend: Backend) -> None:
    with logged_errors() as errors:
        fates = await fuzz_socket(backend, 120, 7, agents=6)
    assert len(fates) == 2 and sum(fates.values()) == 120
    buffers = backend.app.state.ingest._buffers
    await poll_async(lambda: not any(buffer.unstored() for buffer in buffers.values()))
    rows, wrong = await scan(backend.database)
    assert (errors, wrong) == ([], [])
    assert rows["telemetry_chunk"] > 0 and rows["node"] == 6


def test_every_table_that_agents_fill_is_scanned() -> None:
    filled = {each.table for each in EVIDENCE} - {"alert", "alert_delivery", "drift", "proof_episode", "simulation"}
    assert filled <= SCHEMAS.keys()
