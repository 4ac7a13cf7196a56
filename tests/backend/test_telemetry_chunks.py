import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.backend.telemetry_data import machine

from coresteer.telemetry import chunks, rollup
from coresteer.telemetry.byte_columns import compress, decompress
from coresteer.telemetry.chunk_decoding import decode
from coresteer.telemetry.chunks import Scalars
from coresteer.telemetry.heatmap import max_pool
from coresteer.telemetry.rollup import (
    CPU_SECONDS,
    LEVEL_INTEGRALS,
    merge_rollups,
    minute_rollups,
    pack_netdevs,
    pack_shares,
    unpack_netdevs,
    unpack_shares,
)
from coresteer_core.metrics import COUNTER_SOURCES, SCALAR_SOURCES, Source
from coresteer_core.node.rates import ABSENT_SHARE, CPU_COUNTS, CPU_SHARES, NetdevCounts, Rates, TcpLatency

_U64 = st.integers(0, 2**53 - 1)
_OPTIONAL = st.none() | _U64


@st.composite
def _cells(draw: st.DrawFn) -> tuple[bytes | None, bytes | None, bytes | None]:
    if draw(st.booleans()):
        return None, None, None
    cells = draw(
        st.dictionaries(
            st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 8191)), st.integers(1, 2**32 - 1), max_size=6
        )
    )
    keys = sorted(cells)
    return (
        np.array([irq for irq, _ in keys], "<u4").tobytes(),
        np.array([cpu for _, cpu in keys], "<u2").tobytes(),
        np.array([cells[key] for key in keys], "<u4").tobytes(),
    )


@st.composite
def _streams(draw: st.DrawFn) -> list[Rates]:
    cpus = draw(st.integers(1, 5))
    u8 = st.none() | st.binary(min_size=cpus, max_size=cpus)
    u32 = st.none() | st.binary(min_size=4 * cpus, max_size=4 * cpus)
    made, seq = [], draw(st.integers(1, 2**40))
    for _ in range(draw(st.integers(1, 6))):
        ids, where, counts = draw(_cells())
        names = draw(st.none() | st.lists(st.sampled_from(["eth0", "eth1", "lo", "veth9"]), unique=True))
        made.append(
            Rates(
                seq=seq,
                time_ms=draw(st.integers(0, 2**45)),
                duration_s=draw(st.floats(1e-3, 86_400)),
                cpus=cpus,
                shares={name: draw(u8) for name in CPU_SHARES},
                counts={name: draw(u32) for name in CPU_COUNTS},
                irq_ids=ids,
                irq_cpus=where,
                irq_counts=counts,
                netdevs=None
                if names is None
                else [NetdevCounts(name, *(draw(_U64) for _ in range(8))) for name in sorted(names)],
                tcp=draw(st.none() | st.builds(TcpLatency, _U64, _U64, _U64, _U64)),
                agent_cpu_s=draw(st.none() | st.floats(0, 1e6)),
                agent_rss_bytes=draw(_OPTIONAL),
                counters=draw(st.dictionaries(st.sampled_from([*COUNTER_SOURCES]), _U64)),
            )
        )
        seq += draw(st.integers(1, 3))
    return made


def test_compressed_data_takes_no_more_memory_than_it_has_bytes() -> None:
    data = bytes(100_000)
    compress(data)
    tracemalloc.start()
    packed = compress(data)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert decompress(packed) == data
    assert held < 1000


@given(_streams())
@settings(max_examples=150, deadline=None)
def test_a_chunk_gives_back_exactly_what_it_was_made_of(stream: list[Rates]) -> None:
    assert decode(chunks.encode(stream)) == stream


def test_scalars_that_an_older_version_stored_can_be_read() -> None:
    stream = machine(3, cpus=2, irqs=1)
    whole = chunks.read_scalars(chunks.encode(stream).scalars)
    older = msgspec.msgpack.encode([getattr(whole, field) for field in Scalars.__struct_fields__[:12]])
    found = chunks.read_scalars(compress(older))
    assert chunks.amounts(found, "tcp_retransmits").tolist() == [r.counters["tcp_retransmits"] for r in stream]
    assert found.more == {}


def test_a_counter_without_a_position_of_its_own_is_stored_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    counter = Source("counter", "made_up", column="MadeUp", table="Tcp", path="proc/net/snmp")
    for module in (chunks, rollup):
        monkeypatch.setattr(module, "SCALAR_SOURCES", {**SCALAR_SOURCES, "made_up": counter})
    stream = [replace(r, counters=r.counters | ({} if r.seq % 2 else {"made_up": r.seq})) for r in machine(4, cpus=2)]
    scalars = chunks.read_scalars(chunks.encode(stream).scalars)
    expected = [float(r.counters.get("made_up", np.nan)) for r in stream]
    np.testing.assert_array_equal(chunks.amounts(scalars, "made_up"), expected)
    assert sum(part.amounts.get("made_up", 0) for part in minute_rollups(stream)) == np.nansum(expected)
    assert np.isnan(chunks.amounts(scalars, "not_stored_yet")).all()


def test_cells_come_back_in_order_without_zeros() -> None:
    rates = replace(
        machine(1, cpus=4, irqs=2)[0],
        irq_ids=np.array([9, 7, 7], "<u4").tobytes(),
        irq_cpus=np.array([0, 3, 1], "<u2").tobytes(),
        irq_counts=np.array([5, 6, 0], "<u4").tobytes(),
    )
    (decoded,) = decode(chunks.encode([rates]))
    assert np.frombuffer(decoded.irq_ids or b"", "<u4").tolist() == [7, 9]
    assert np.frombuffer(decoded.irq_counts or b"", "<u4").tolist() == [6, 5]


def test_a_minute_of_a_quiet_64_cpu_machine_takes_at_most_255_bytes_a_sample() -> None:
    chunk = chunks.encode(machine(60, busy_cpus=12))
    size = len(chunk.scalars) + sum(len(column or b"") for column in chunk.columns.values())
    assert size / 60 <= 255


def test_minutes_split_at_the_minute_and_add_up() -> None:
    stream = machine(100, start_ms=1_800_000_030_000)
    found = minute_rollups(stream)
    assert [part.samples for part in found] == [31, 60, 9]
    assert sum(part.netdevs["eth0"][0] for part in found) == sum((r.netdevs or [])[0].rx_bytes for r in stream)
    busy = np.array([np.frombuffer(r.shares["busy"] or b"", np.uint8) for r in stream[:31]])
    assert (found[0].peaks[0] == busy.max(axis=0)).all()
    assert np.abs(found[0].means[0].astype(float) - busy.mean(axis=0)).max() <= 0.5


def test_a_minute_has_the_cpu_time_of_cpus_that_are_almost_idle() -> None:
    stream = machine(60, cpus=2, start_ms=1_800_000_000_000 + 1000)
    share = np.array([1, ABSENT_SHARE], np.uint8).tobytes()  # 0.5 % of the first CPU, for one second of a minute
    quiet = [replace(r, shares={"busy": share if r.seq == stream[0].seq else b"\0\0"}) for r in stream]
    (minute,) = minute_rollups(quiet)
    assert minute.means[0].tolist() == [0, 0]
    assert {field: value for field, value in minute.amounts.items() if field.startswith("cpu_")} == {
        "cpu_busy_s": pytest.approx(0.005 * stream[0].duration_s, abs=1e-6)
    }


def test_merged_minutes_are_the_minute_of_all_but_for_rounded_means() -> None:
    stream = machine(60, start_ms=1_800_000_000_000 + 1000)
    halves = [part for half in (stream[:20], stream[20:]) for part in minute_rollups(half)]
    whole, merged = merge_rollups(minute_rollups(stream)), merge_rollups(halves)
    assert (merged.peaks == whole.peaks).all()
    assert np.abs(merged.means.astype(int) - whole.means).max() <= 1
    assert (merged.netdevs, merged.samples) == (whole.netdevs, whole.samples)
    assert merged.amounts == pytest.approx(whole.amounts)
    assert (unpack_shares(pack_shares(whole), whole.cpus)[0] == whole.peaks).all()
    assert unpack_netdevs(pack_netdevs(whole)) == whole.netdevs


def test_a_rate_is_of_the_time_in_which_its_amount_is_known() -> None:
    whole = [replace(r, duration_s=1.0) for r in machine(60, cpus=2, start_ms=1_800_000_000_000 + 1000)]
    cells = dict.fromkeys(("irq_ids", "irq_cpus", "irq_counts"))
    nothing: dict[str, object] = {
        "shares": {},
        "counts": {},
        **cells,
        "netdevs": None,
        "counters": {},
        "agent_cpu_s": None,
    }
    gaps = [r if r.seq % 4 == 0 else replace(r, **nothing) for r in whole]
    (full,), (partly,) = minute_rollups(whole), minute_rollups(gaps)
    merged = merge_rollups([full, partly])
    known = [field for field, source in SCALAR_SOURCES.items() if field in full.amounts and not source.level]
    for field in (*known, "cpu_busy_s", "rx_bytes"):
        assert [part.known_s(field) for part in (full, partly, merged)] == [60, 15, 75], field
    assert full.amounts.keys() <= {*SCALAR_SOURCES, *CPU_SECONDS.values(), *LEVEL_INTEGRALS.values()}
    assert [part.known_s("rtt_p99_us") for part in (full, partly, merged)] == [60, 60, 120]
    unknown = minute_rollups([replace(r, **nothing) for r in whole])
    assert merge_rollups([*unknown, full]).known_s("interrupts") == 60
    shortest = replace(whole[0], duration_s=1e-7)
    assert minute_rollups([shortest, replace(whole[1], **nothing)])[0].known_s("interrupts") == 1e-7, "it is a divisor"


def test_a_minute_has_the_integral_of_levels_next_to_their_maximum() -> None:
    whole = [replace(r, duration_s=1.0) for r in machine(60, cpus=2, start_ms=1_800_000_000_000 + 1000)]
    calm, slow = TcpLatency(9, 100, 300, 500), TcpLatency(9, 5000, 5000, 5000)
    (minute,) = minute_rollups([replace(r, tcp=slow if r.seq == whole[7].seq else calm) for r in whole])
    (gaps,) = minute_rollups([replace(r, tcp=calm if r.seq % 4 == 0 else None) for r in whole])
    (older,) = minute_rollups([replace(r, tcp=slow) for r in whole])
    del older.amounts["rtt_p50_us_integral"]
    (unknown,) = minute_rollups([replace(r, tcp=None) for r in whole])
    assert "rtt_p50_us_integral" not in unknown.amounts
    for parts, most, integral, known_s in (
        ([minute], 5000, 59 * 100 + 5000, 60),
        ([gaps], 100, 15 * 100, 15),
        ([unknown, gaps, minute], 5000, 74 * 100 + 5000, 75),
        ([older, gaps], 5000, 15 * 100, 15),
    ):
        merged = merge_rollups(parts)
        assert (merged.amounts["rtt_p50_us"], merged.amounts["rtt_p50_us_integral"]) == (most, integral)
        assert merged.known_s("rtt_p50_us_integral") == known_s


def test_what_no_sample_knows_stays_unknown_in_a_minute() -> None:
    nothing = replace(
        machine(1, cpus=2, irqs=1)[0], shares={}, counts={}, irq_ids=None, irq_cpus=None, irq_counts=None, tcp=None,
        netdevs=None, counters={}, agent_cpu_s=None, agent_rss_bytes=None,
    )  # fmt: skip
    (minute,) = minute_rollups([nothing])
    assert (minute.peaks == ABSENT_SHARE).all() and (minute.means == ABSENT_SHARE).all()
    assert minute.amounts == {} and minute.netdevs == {}


@pytest.mark.parametrize(
    ("starts", "ends", "values", "expected"),
    [
        ([0.0, 1.0, 2.0], [1.0, 2.0, 3.0], [1, 2, 3], [1, 2, 3, 255]),
        ([0.1, 0.2, 0.3], [0.2, 0.3, 0.4], [1, 9, 255], [9, 255, 255, 255]),
        ([0.02, 1.03, 1.99], [1.03, 1.99, 3.01], [1, 2, 3], [1, 2, 3, 255]),
        ([0.0], [4.0], [7], [7, 7, 7, 7]),
        ([-9.0, 8.0], [-8.0, 9.0], [1, 2], [255, 255, 255, 255]),
        ([2.0, 0.0], [3.0, 1.0], [5, 6], [6, 255, 5, 255]),
    ],
    ids=[
        "one each",
        "maximum, unknown hides nothing",
        "jitter leaves no gap",
        "a long one fills",
        "outside",
        "unsorted",
    ],
)
def test_columns_take_the_maximum_and_leave_no_gap(
    starts: list[float], ends: list[float], values: list[int], expected: list[int]
) -> None:
    pooled = max_pool(np.array([values], np.uint8), np.array(starts), np.array(ends), 4)
    assert pooled[0].tolist() == expected


def test_columns_are_decompressed_in_several_threads_at_once() -> None:
    columns = [np.random.default_rng(seed).integers(0, 9, 50_000, np.uint8).tobytes() for seed in range(8)]
    packed = [compress(column) for column in columns] * 50
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(decompress, packed)) == columns * 50
