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
from coresteer.telemetry.sample_columns import COLUMNS, LONGEST_REACH_S, SampleColumns, columns_of
from coresteer_core.metrics import SCALAR_SOURCES
from coresteer_core.node.rates import CPU_COUNTS, CPU_SHARES, Rates
from coresteer_core.node.rates_block import TCP_FIELDS

MAX_CELLS = 1 << 24
"""Bound of cells × samples in one chunk, enforced by the ingest; decoding takes four bytes for each."""


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


def start_ms(rates: Rates) -> int:
    """Return the start of a sample's interval in Unix ms, at most a minute before its end."""
    return rates.time_ms - round(min(rates.duration_s, LONGEST_REACH_S) * 1000)


def encode(samples: Sequence[Rates]) -> Chunk:
    """Return checked Rates (at least one) of one stream and one number of CPUs as a chunk.

    Decoding returns equal Rates except for the order inside a sample (cells by (irq_id, CPU) without zeros, netdevs by
    name) and for columns and counters that this version does not know, which are omitted.
    """
    return encode_columns(columns_of(samples))


def encode_columns(samples: SampleColumns) -> Chunk:
    """Return checked samples of one stream as a chunk; see encode()."""
    columns: dict[str, bytes | None] = {}
    sums: dict[str, I64] = {}
    shares = samples.shares.transpose(0, 2, 1)
    for row, name in enumerate(CPU_SHARES):
        columns[name] = None if samples.lacks(name).all() else compress(shares[row].tobytes())
    # absent becomes 0, which costs no plane
    counts = np.ascontiguousarray((samples.counts + np.uint32(1)).transpose(0, 2, 1))
    for row, name in enumerate(CPU_COUNTS):
        columns[name] = None if samples.lacks(name).all() else compress(to_byte_planes(counts[row]))
        if name in _SUMMED:
            sums[_SUMMED[name]] = samples.count_sums[row]
    columns["irqs"], sums["interrupts"] = _encode_cells(samples), samples.interrupts
    columns["netdevs"] = _encode_netdevs(samples)
    missing = samples.absent.any(axis=1) & ~samples.absent.all(axis=1)
    absent = {COLUMNS[row]: np.flatnonzero(samples.absent[row]).tolist() for row in np.flatnonzero(missing).tolist()}
    return Chunk(
        first_seq=int(samples.seqs[0]),
        last_seq=int(samples.seqs[-1]),
        start_ms=int(samples.starts_ms.min()),
        end_ms=int(samples.times_ms.max()),
        samples=len(samples.seqs),
        cpus=samples.cpus,
        scalars=compress(msgspec.msgpack.encode(_scalars(samples, sums, absent))),
        columns=columns,
    )


def _scalars(samples: SampleColumns, sums: dict[str, I64], absent: dict[str, list[int]]) -> Scalars:
    """Return the samples' scalars. sums: by field, those that were made from the columns of CPUs and cells."""
    blank = b"\xff" * (8 * len(samples.seqs))

    def packed(field: str, values: I64 | None) -> bytes:
        return blank if values is None else values.astype("<i8", copy=False).tobytes()

    found = {}
    for field, source in SCALAR_SOURCES.items():
        if source.kind in ("cpu", "irq"):
            found[field] = packed(field, sums.get(field))
        elif source.kind == "counter":
            found[field] = packed(field, samples.scalar(field))
    more = {field: column for field, column in found.items() if field not in _POSITIONED and column != blank}
    return Scalars(
        seqs=np.diff(samples.seqs, prepend=0).astype("<i8", copy=False).tobytes(),
        times_ms=np.diff(samples.times_ms, prepend=0).astype("<i8", copy=False).tobytes(),
        durations_s=samples.durations_s.tobytes(),
        tcp=b"".join([packed(field, samples.scalar(field)) for field in TCP_FIELDS]),
        tcp_out_segments=found["tcp_out_segments"],
        tcp_retransmits=found["tcp_retransmits"],
        agent_cpu_s=samples.agent_cpu_s.tobytes(),
        agent_rss_bytes=packed("agent_rss_bytes", samples.scalar("agent_rss_bytes")),
        interrupts=found["interrupts"],
        dropped=found["dropped"],
        squeezed=found["squeezed"],
        absent=absent,
        more=more,
    )


def _encode_cells(samples: SampleColumns) -> bytes | None:
    if samples.lacks("irqs").all():
        return None
    order = np.argsort(samples.cells)
    cells, matrix = samples.cells[order], samples.cell_matrix[order]
    ids, cpus = (cells >> np.uint64(16)).astype("<u4"), (cells & np.uint64(0xFFFF)).astype("<u2")
    packed = _Cells(ids.tobytes(), cpus.tobytes(), to_byte_planes(matrix))
    return compress(msgspec.msgpack.encode(packed))


def _encode_netdevs(samples: SampleColumns) -> bytes | None:
    if samples.lacks("netdevs").all():
        return None
    packed = _Netdevs(samples.netdevs, samples.netdev_present.tobytes(), to_byte_planes(samples.netdev_counts))
    return compress(msgspec.msgpack.encode(packed))


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
    if field in TCP_FIELDS:
        raw = np.frombuffer(scalars.tcp, "<i8").reshape(len(TCP_FIELDS), -1)[TCP_FIELDS.index(field)]
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
