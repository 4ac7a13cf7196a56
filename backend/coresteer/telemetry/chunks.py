"""Telemetry chunks: consecutive Rates of one node as columns of bytes, small on disk and quick to read by column.

Arrays are transposed so that a CPU's or a cell's values follow each other, numbers wider than a byte are split
into byte planes (most high bytes are zero), and zstd at level 1 does the rest. Pure: no I/O, no clock.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt

from coresteer.telemetry.byte_columns import (
    F64,
    I64,
    U8,
    U32,
    U64,
    compress,
    decompress,
    to_byte_planes,
    u32_from_planes,
    u64_from_planes,
)
from coresteer_core.metrics import SCALAR_SOURCES
from coresteer_core.node.rates import (
    ABSENT_SHARE,
    ABSENT_U32,
    CPU_COUNTS,
    CPU_SHARES,
    FIRST_LABEL_ID,
    NetdevCounts,
    Rates,
)

MAX_CELLS = 1 << 24
"""Bound of cells × samples in one chunk, enforced by the ingest; decoding takes four bytes for each."""
LONGEST_REACH_S = 60.0
"""A longer sample (the machine was suspended) is attributed to the last minute of its interval."""


class Scalars(msgspec.Struct, frozen=True, array_like=True):
    """Scalars of a chunk, one value per sample, as raw little-endian arrays.

    amounts() reads them; seqs and times are first differences.

    Integers are i64 with −1 for absent, agent_cpu_s is f64 with NaN; tcp holds the four fields of TcpLatency, one after
    the other. interrupts (numbered device interrupts only), dropped and squeezed are sums over the CPUs, stored so that
    a line over time needs no wider column. absent: column name → positions of the samples that lack it, where only
    some do; also of irqs and netdevs. more: by field, i64, the scalars (coresteer_core.metrics.SCALAR_SOURCES) that
    have no position of their own, without those that no sample has.
    """

    seqs: bytes
    times_ms: bytes
    durations_s: bytes
    tcp: bytes
    tcp_out_segments: bytes
    tcp_retransmits: bytes
    agent_cpu_s: bytes
    agent_rss_bytes: bytes
    interrupts: bytes
    dropped: bytes
    squeezed: bytes
    absent: dict[str, list[int]]
    more: dict[str, bytes] = {}


_POSITIONED = frozenset(Scalars.__struct_fields__)
_TCP_FIELDS = ("sockets", "rtt_p50_us", "rtt_p95_us", "rtt_p99_us")
_SUMMED = {source.column: field for field, source in SCALAR_SOURCES.items() if source.kind == "cpu"}
"""Columns of Rates.counts whose sum over the CPUs is a scalar, with its field."""


class _Cells(msgspec.Struct, frozen=True, array_like=True):
    ids: bytes  # u32, one a cell
    cpus: bytes  # u16
    counts: bytes  # u32 planes, cell-major: cells × samples, 0 where a counter did not change


class _Netdevs(msgspec.Struct, frozen=True, array_like=True):
    names: list[str]
    present: bytes  # u8: names × samples
    counts: bytes  # u64 planes: names × 8 × samples


@dataclass(frozen=True)
class Chunk:
    """A row of telemetry_chunk. columns: shares and counts by name, irqs and netdevs; None where no sample has it."""

    first_seq: int
    last_seq: int
    start_ms: int
    """Where the earliest interval began."""
    end_ms: int
    samples: int
    cpus: int
    scalars: bytes
    columns: dict[str, bytes | None]


COLUMNS = (*CPU_SHARES, *CPU_COUNTS, "irqs", "netdevs")


def start_ms(rates: Rates) -> int:
    """Return the start of a sample's interval in Unix ms, at most a minute before its end."""
    return rates.time_ms - round(min(rates.duration_s, LONGEST_REACH_S) * 1000)


def _i64(values: Sequence[float | None]) -> bytes:
    return np.array([-1 if value is None else value for value in values], "<i8").tobytes()


def _steps(values: list[int]) -> bytes:
    return np.diff(np.array(values, "<i8"), prepend=0).tobytes()


def encode(samples: Sequence[Rates]) -> Chunk:
    """Return checked Rates (at least one) of one stream and one number of CPUs as a chunk.

    Decoding returns equal Rates except for the order inside a sample (cells by (irq_id, CPU) without zeros, netdevs by
    name) and for columns and counters that this version does not know, which are omitted.
    """
    cpus = samples[0].cpus
    absent: dict[str, list[int]] = {}
    columns: dict[str, bytes | None] = {}
    sums: dict[str, I64] = {}
    blank = bytes([ABSENT_SHARE]) * cpus
    for name in CPU_SHARES:
        raw = _joined(name, [rates.shares.get(name) for rates in samples], blank, absent)
        columns[name] = None
        if raw is not None:
            columns[name] = compress(np.frombuffer(raw, np.uint8).reshape(-1, cpus).T.tobytes())
    blank = ABSENT_U32.to_bytes(4, "little") * cpus
    for name in CPU_COUNTS:
        raw = _joined(name, [rates.counts.get(name) for rates in samples], blank, absent)
        columns[name] = None
        if raw is not None:
            values = np.frombuffer(raw, "<u4").reshape(-1, cpus)
            columns[name] = compress(
                to_byte_planes((values + np.uint32(1)).T)
            )  # absent becomes 0, which costs no plane
            if name in _SUMMED:
                sums[_SUMMED[name]] = sum_over_cpus(values)
    columns["irqs"], sums["interrupts"] = _encode_cells(samples, absent)
    columns["netdevs"] = _encode_netdevs(samples, absent)
    return Chunk(
        first_seq=samples[0].seq,
        last_seq=samples[-1].seq,
        start_ms=min(start_ms(rates) for rates in samples),
        end_ms=max(rates.time_ms for rates in samples),
        samples=len(samples),
        cpus=cpus,
        scalars=compress(msgspec.msgpack.encode(_scalars(samples, sums, absent))),
        columns=columns,
    )


def _joined(name: str, parts: list[bytes | None], blank: bytes, absent: dict[str, list[int]]) -> bytes | None:
    """Return a column of all samples, blank where a sample lacks it (noted in absent); None where all lack it."""
    missing = [position for position, part in enumerate(parts) if part is None]
    if len(missing) == len(parts):
        return None
    if missing:
        absent[name] = missing
    return b"".join([blank if part is None else part for part in parts])


def _scalars(samples: Sequence[Rates], sums: dict[str, I64], absent: dict[str, list[int]]) -> Scalars:
    """Return the samples' scalars. sums: by field, those that were made from the columns of CPUs and cells."""
    count = len(samples)
    tcp = np.full((len(_TCP_FIELDS), count), -1, np.int64)
    for position, rates in enumerate(samples):
        if (latency := rates.tcp) is not None:
            tcp[:, position] = (latency.sockets, latency.rtt_p50_us, latency.rtt_p95_us, latency.rtt_p99_us)
    blank = b"\xff" * (8 * count)
    packed = {}
    for field, source in SCALAR_SOURCES.items():
        if source.kind == "counter":
            packed[field] = _i64([rates.counters.get(field) for rates in samples])
        elif source.kind in ("cpu", "irq"):
            packed[field] = sums[field].astype("<i8", copy=False).tobytes() if field in sums else blank
    seconds = [np.nan if rates.agent_cpu_s is None else rates.agent_cpu_s for rates in samples]
    more = {field: column for field, column in packed.items() if field not in _POSITIONED and column != blank}
    return Scalars(
        seqs=_steps([rates.seq for rates in samples]),
        times_ms=_steps([rates.time_ms for rates in samples]),
        durations_s=np.array([rates.duration_s for rates in samples], "<f8").tobytes(),
        tcp=tcp.tobytes(),
        tcp_out_segments=packed["tcp_out_segments"],
        tcp_retransmits=packed["tcp_retransmits"],
        agent_cpu_s=np.array(seconds, "<f8").tobytes(),
        agent_rss_bytes=_i64([rates.agent_rss_bytes for rates in samples]),
        interrupts=packed["interrupts"],
        dropped=packed["dropped"],
        squeezed=packed["squeezed"],
        absent=absent,
        more=more,
    )


def sum_over_cpus(values: U32) -> I64:
    """Return the sums of a samples × CPUs array by sample; −1 where no CPU is known."""
    known = values != ABSENT_U32
    sums: I64 = np.where(known, values, 0).sum(axis=1, dtype=np.int64)
    sums[~known.any(axis=1)] = -1
    return sums


def _encode_cells(samples: Sequence[Rates], absent: dict[str, list[int]]) -> tuple[bytes | None, I64]:
    count = len(samples)
    interrupts = np.full(count, -1, np.int64)
    missing = [p for p, rates in enumerate(samples) if rates.irq_ids is None]
    if len(missing) == count:
        return None, interrupts
    if missing:
        absent["irqs"] = missing
    lengths = np.array([len(rates.irq_ids or b"") // 4 for rates in samples])
    ids = np.frombuffer(_concatenated([rates.irq_ids for rates in samples]), "<u4")
    cpus = np.frombuffer(_concatenated([rates.irq_cpus for rates in samples]), "<u2")
    counts = np.frombuffer(_concatenated([rates.irq_counts for rates in samples]), "<u4")
    of_sample = np.repeat(np.arange(count), lengths)
    cells, position = _unique_cells(ids, cpus)
    matrix = np.zeros((len(cells), count), "<u4")
    matrix[position, of_sample] = counts
    cell_ids = (cells >> np.uint64(16)).astype("<u4")
    interrupts = matrix[cell_ids < FIRST_LABEL_ID].sum(axis=0, dtype=np.int64)
    interrupts[missing] = -1
    packed = _Cells(cell_ids.tobytes(), (cells & np.uint64(0xFFFF)).astype("<u2").tobytes(), to_byte_planes(matrix))
    return compress(msgspec.msgpack.encode(packed)), interrupts


def _concatenated(parts: list[bytes | None]) -> bytes:
    return b"".join([part for part in parts if part is not None])


def _unique_cells(ids: U32, cpus: npt.NDArray[np.uint16]) -> tuple[U64, npt.NDArray[np.intp]]:
    """Return the distinct (id, CPU) pairs in order, as id << 16 | cpu, and each cell's position among them."""
    key = ids.astype(np.uint64) << np.uint64(16) | cpus
    cells = np.sort(key)
    if cells.size:
        cells = cells[np.concatenate(([True], cells[1:] != cells[:-1]))]
    return cells, np.searchsorted(cells, key)


def _encode_netdevs(samples: Sequence[Rates], absent: dict[str, list[int]]) -> bytes | None:
    count = len(samples)
    missing = [p for p, rates in enumerate(samples) if rates.netdevs is None]
    if len(missing) == count:
        return None
    if missing:
        absent["netdevs"] = missing
    names = sorted({netdev.name for rates in samples for netdev in rates.netdevs or ()})
    row = {name: position for position, name in enumerate(names)}
    present = np.zeros((len(names), count), np.uint8)
    values = np.zeros((len(names), 8, count), "<u8")
    for position, rates in enumerate(samples):
        for netdev in rates.netdevs or ():
            present[row[netdev.name], position] = 1
            values[row[netdev.name], :, position] = netdev_values(netdev)
    return compress(msgspec.msgpack.encode(_Netdevs(names, present.tobytes(), to_byte_planes(values))))


def netdev_values(netdev: NetdevCounts) -> tuple[int, int, int, int, int, int, int, int]:
    """Return a netdev's eight counters in the order of NetdevCounts."""
    return (
        netdev.rx_bytes,
        netdev.tx_bytes,
        netdev.rx_packets,
        netdev.tx_packets,
        netdev.rx_dropped,
        netdev.tx_dropped,
        netdev.rx_errors,
        netdev.tx_errors,
    )


def read_scalars(chunk_scalars: bytes) -> Scalars:
    """Return the decoded scalars of a chunk; amounts() and cumulative() read its arrays."""
    return msgspec.msgpack.decode(decompress(chunk_scalars), type=Scalars)


def cumulative(steps: bytes) -> I64:
    """Return the numbers of seqs or times_ms from their first differences."""
    return np.cumsum(np.frombuffer(steps, "<i8"))


def amounts(scalars: Scalars, field: str) -> F64:
    """Return each sample's amount of a scalar, a field of coresteer_core.metrics.SCALAR_SOURCES; NaN where unknown."""
    if field == "agent_cpu_s":
        return np.frombuffer(scalars.agent_cpu_s, "<f8")
    if field in _TCP_FIELDS:
        raw = np.frombuffer(scalars.tcp, "<i8").reshape(len(_TCP_FIELDS), -1)[_TCP_FIELDS.index(field)]
    else:
        column = getattr(scalars, field) if field in _POSITIONED else scalars.more.get(field)
        raw = np.full(len(scalars.durations_s) // 8, -1) if column is None else np.frombuffer(column, "<i8")
    return np.where(raw < 0, np.nan, raw.astype(np.float64))


def read_share(column: bytes, cpus: int) -> U8:
    """Return a column of CPU shares as CPUs × samples, in units of 0.5 %, ABSENT_SHARE where unknown."""
    return np.frombuffer(decompress(column), np.uint8).reshape(cpus, -1)


def read_count(column: bytes, cpus: int, samples: int) -> U32:
    """Return a column of CPU counts as CPUs × samples, ABSENT_U32 where unknown."""
    values: U32 = u32_from_planes(decompress(column), cpus * samples).reshape(cpus, samples) - np.uint32(1)
    return values


def read_cells(column: bytes, samples: int) -> tuple[U32, npt.NDArray[np.uint16], U32]:
    """Return a column of interrupt cells as irq_ids, CPUs and counts (cells × samples)."""
    packed = msgspec.msgpack.decode(decompress(column), type=_Cells)
    ids = np.frombuffer(packed.ids, "<u4")
    counts = u32_from_planes(packed.counts, len(ids) * samples).reshape(len(ids), samples)
    return ids, np.frombuffer(packed.cpus, "<u2"), counts


def read_netdevs(column: bytes, samples: int) -> tuple[list[str], U8, U64]:
    """Return a column of netdevs as names, presence and counters.

    presence: names × samples; counters: names × 8 × samples, in the order of NetdevCounts.
    """
    packed = msgspec.msgpack.decode(decompress(column), type=_Netdevs)
    present = np.frombuffer(packed.present, np.uint8).reshape(len(packed.names), samples)
    counts = u64_from_planes(packed.counts, len(packed.names) * 8 * samples)
    return packed.names, present, counts.reshape(len(packed.names), 8, samples)
