"""A chunk: some consecutive Rates of one node as columns of bytes, small on disk and quick to read by column.

Arrays are transposed so that a CPU's or a cell's values follow each other, numbers wider than a byte are split
into byte planes (most high bytes are zero), and zstd at level 1 does the rest. Pure: no I/O, no clock.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import zstandard

from coresteer_core.node.rates import ABSENT_SHARE, ABSENT_U32, CPU_COUNTS, CPU_SHARES, NetdevCounts, Rates, TcpLatency

U8: TypeAlias = npt.NDArray[np.uint8]
U32: TypeAlias = npt.NDArray[np.uint32]
I64: TypeAlias = npt.NDArray[np.int64]
U64: TypeAlias = npt.NDArray[np.uint64]
F64: TypeAlias = npt.NDArray[np.float64]

FIRST_LABEL_ID = 0x2100_0000
"""From here on an irq_id is an architecture row such as LOC, not a device's interrupt (coresteer_core.node.rates)."""
MAX_CELLS = 1 << 24
"""Bound of cells × samples in one chunk, which the ingest keeps; reading one back takes four bytes for each."""
LONGEST_REACH_S = 60.0
"""A sample that lasted longer (the machine slept) counts as the last minute of its interval."""
_MAX_COLUMN_BYTES = 1 << 30

_compressor = zstandard.ZstdCompressor(level=1, write_content_size=True, write_checksum=False)
_decompressor = zstandard.ZstdDecompressor()


class Scalars(msgspec.Struct, frozen=True, array_like=True):
    """One value a sample: raw little-endian arrays, seqs and times as first differences.

    Optional integers are i64 with −1 for absent, optional floats f64 with NaN. interrupts (numbered device interrupts
    only), dropped and squeezed are sums over the CPUs, kept so that a line over time needs no wider column.
    absent: column name → positions of the samples that lack it, where only some do. cells, netdevs: likewise.
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


class _Cells(msgspec.Struct, frozen=True, array_like=True):
    ids: bytes  # u32, one a cell
    cpus: bytes  # u16
    counts: bytes  # u32 planes, cell-major: cells × samples, 0 where a cell did not move


class _Netdevs(msgspec.Struct, frozen=True, array_like=True):
    names: list[str]
    present: bytes  # u8: names × samples
    counts: bytes  # u64 planes: names × 8 × samples


@dataclass(frozen=True)
class Chunk:
    """What is stored. columns: the shares and counts by name, irqs and netdevs; None where no sample has it."""

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
    """Where a sample's interval began, at most a minute before it was taken."""
    return rates.time_ms - round(min(rates.duration_s, LONGEST_REACH_S) * 1000)


def compress(data: bytes) -> bytes:
    """zstd, level 1."""
    return _compressor.compress(data)


def decompress(data: bytes) -> bytes:
    """What compress took."""
    return _decompressor.decompress(data, max_output_size=_MAX_COLUMN_BYTES)


def _planes(values: npt.NDArray[np.uint32] | npt.NDArray[np.uint64]) -> bytes:
    """All lowest bytes, then all second ones and so on; planes that are wholly zero at the high end are left out."""
    flat = np.ascontiguousarray(values).reshape(-1)
    if not flat.size:
        return b""
    used = (int(flat.max()).bit_length() + 7) // 8
    return flat.view(np.uint8).reshape(-1, flat.itemsize)[:, :used].T.tobytes()


def _u32_from_planes(planes: bytes, size: int) -> U32:
    wide = np.zeros((size, 4), np.uint8)
    if planes:
        wide[:, : len(planes) // size] = np.frombuffer(planes, np.uint8).reshape(-1, size).T
    return wide.view("<u4").reshape(-1)


def _u64_from_planes(planes: bytes, size: int) -> U64:
    wide = np.zeros((size, 8), np.uint8)
    if planes:
        wide[:, : len(planes) // size] = np.frombuffer(planes, np.uint8).reshape(-1, size).T
    return wide.view("<u8").reshape(-1)


def _joined(parts: Sequence[bytes | None], blank: bytes) -> bytes:
    return b"".join([blank if part is None else part for part in parts])


def _i64(values: list[int | None]) -> bytes:
    return np.array([-1 if value is None else value for value in values], "<i8").tobytes()


def _steps(values: list[int]) -> bytes:
    return np.diff(np.array(values, "<i8"), prepend=0).tobytes()


def encode(samples: Sequence[Rates]) -> Chunk:
    """Checked Rates of one stream and one number of CPUs as a chunk; at least one.

    What comes back is the same but for the order inside a sample: cells by (irq_id, CPU) with zeros left out, netdevs
    by name; and for columns that this version does not know, which are left out.
    """
    cpus = samples[0].cpus
    count = len(samples)
    absent: dict[str, list[int]] = {}
    columns: dict[str, bytes | None] = {}

    def column(name: str, parts: list[bytes | None], blank: bytes) -> bytes | None:
        missing = [position for position, part in enumerate(parts) if part is None]
        if len(missing) == count:
            return None
        if missing:
            absent[name] = missing
        return _joined(parts, blank)

    sums: dict[str, I64] = {name: np.full(count, -1, np.int64) for name in ("dropped", "time_squeeze")}
    for name in CPU_SHARES:
        raw = column(name, [rates.shares.get(name) for rates in samples], bytes([ABSENT_SHARE]) * cpus)
        columns[name] = None
        if raw is not None:
            columns[name] = compress(np.frombuffer(raw, np.uint8).reshape(count, cpus).T.tobytes())
    for name in CPU_COUNTS:
        raw = column(name, [rates.counts.get(name) for rates in samples], ABSENT_U32.to_bytes(4, "little") * cpus)
        columns[name] = None
        if raw is not None:
            values = np.frombuffer(raw, "<u4").reshape(count, cpus)
            columns[name] = compress(_planes((values + np.uint32(1)).T))  # absent becomes 0, which costs no plane
            if name in sums:
                sums[name] = sum_over_cpus(values)
    columns["irqs"], interrupts = _encode_cells(samples, absent)
    columns["netdevs"] = _encode_netdevs(samples, absent)
    tcp = np.full((4, count), -1, np.int64)
    for position, rates in enumerate(samples):
        if (latency := rates.tcp) is not None:
            tcp[:, position] = (latency.sockets, latency.rtt_p50_us, latency.rtt_p95_us, latency.rtt_p99_us)
    scalars = Scalars(
        seqs=_steps([rates.seq for rates in samples]),
        times_ms=_steps([rates.time_ms for rates in samples]),
        durations_s=np.array([rates.duration_s for rates in samples], "<f8").tobytes(),
        tcp=tcp.tobytes(),
        tcp_out_segments=_i64([rates.tcp_out_segments for rates in samples]),
        tcp_retransmits=_i64([rates.tcp_retransmits for rates in samples]),
        agent_cpu_s=np.array(
            [np.nan if rates.agent_cpu_s is None else rates.agent_cpu_s for rates in samples], "<f8"
        ).tobytes(),
        agent_rss_bytes=_i64([rates.agent_rss_bytes for rates in samples]),
        interrupts=interrupts.astype("<i8").tobytes(),
        dropped=sums["dropped"].astype("<i8").tobytes(),
        squeezed=sums["time_squeeze"].astype("<i8").tobytes(),
        absent=absent,
    )
    return Chunk(
        first_seq=samples[0].seq,
        last_seq=samples[-1].seq,
        start_ms=min(start_ms(rates) for rates in samples),
        end_ms=max(rates.time_ms for rates in samples),
        samples=count,
        cpus=cpus,
        scalars=compress(msgspec.msgpack.encode(scalars)),
        columns=columns,
    )


def sum_over_cpus(values: U32) -> I64:
    """Of samples × CPUs, per sample; −1 where no CPU is known."""
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
    ids = np.frombuffer(_joined([rates.irq_ids for rates in samples], b""), "<u4")
    cpus = np.frombuffer(_joined([rates.irq_cpus for rates in samples], b""), "<u2")
    counts = np.frombuffer(_joined([rates.irq_counts for rates in samples], b""), "<u4")
    of_sample = np.repeat(np.arange(count), lengths)
    cells, position = _unique_cells(ids, cpus)
    matrix = np.zeros((len(cells), count), "<u4")
    matrix[position, of_sample] = counts
    cell_ids = (cells >> np.uint64(16)).astype("<u4")
    interrupts = matrix[cell_ids < FIRST_LABEL_ID].sum(axis=0, dtype=np.int64)
    interrupts[missing] = -1
    packed = _Cells(cell_ids.tobytes(), (cells & np.uint64(0xFFFF)).astype("<u2").tobytes(), _planes(matrix))
    return compress(msgspec.msgpack.encode(packed)), interrupts


def _unique_cells(ids: U32, cpus: npt.NDArray[np.uint16]) -> tuple[U64, npt.NDArray[np.intp]]:
    """The distinct (id, CPU) pairs in order, as id << 16 | cpu, and each cell's position among them."""
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
    return compress(msgspec.msgpack.encode(_Netdevs(names, present.tobytes(), _planes(values))))


def netdev_values(netdev: NetdevCounts) -> tuple[int, int, int, int, int, int, int, int]:
    """The eight counts in the order of NetdevCounts."""
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
    """The scalars column; use the functions below for its arrays."""
    return msgspec.msgpack.decode(decompress(chunk_scalars), type=Scalars)


def cumulative(steps: bytes) -> I64:
    """seqs or times_ms of Scalars, undone from first differences."""
    return np.cumsum(np.frombuffer(steps, "<i8"))


def read_share(column: bytes, cpus: int) -> U8:
    """CPUs × samples, in units of 0.5 %, ABSENT_SHARE where unknown."""
    return np.frombuffer(decompress(column), np.uint8).reshape(cpus, -1)


def read_count(column: bytes, cpus: int, samples: int) -> U32:
    """CPUs × samples, ABSENT_U32 where unknown."""
    values: U32 = _u32_from_planes(decompress(column), cpus * samples).reshape(cpus, samples) - np.uint32(1)
    return values


def read_cells(column: bytes, samples: int) -> tuple[U32, npt.NDArray[np.uint16], U32]:
    """irq_ids, CPUs and counts (cells × samples)."""
    packed = msgspec.msgpack.decode(decompress(column), type=_Cells)
    ids = np.frombuffer(packed.ids, "<u4")
    counts = _u32_from_planes(packed.counts, len(ids) * samples).reshape(len(ids), samples)
    return ids, np.frombuffer(packed.cpus, "<u2"), counts


def read_netdevs(column: bytes, samples: int) -> tuple[list[str], U8, U64]:
    """Names, present (names × samples) and counts (names × 8 × samples, in the order of NetdevCounts)."""
    packed = msgspec.msgpack.decode(decompress(column), type=_Netdevs)
    present = np.frombuffer(packed.present, np.uint8).reshape(len(packed.names), samples)
    counts = _u64_from_planes(packed.counts, len(packed.names) * 8 * samples)
    return packed.names, present, counts.reshape(len(packed.names), 8, samples)


def decode(chunk: Chunk) -> list[Rates]:
    """The Rates of a chunk."""
    scalars = read_scalars(chunk.scalars)
    count = chunk.samples
    optional: dict[str, list[int | None]] = {
        name: [None if v < 0 else v for v in np.frombuffer(raw, "<i8").tolist()]
        for name, raw in (
            ("tcp_out_segments", scalars.tcp_out_segments),
            ("tcp_retransmits", scalars.tcp_retransmits),
            ("agent_rss_bytes", scalars.agent_rss_bytes),
        )
    }
    tcp = np.frombuffer(scalars.tcp, "<i8").reshape(4, count).T.tolist()
    agent_cpu_s = [None if v != v else v for v in np.frombuffer(scalars.agent_cpu_s, "<f8").tolist()]  # noqa: PLR0124 - NaN

    def per_sample(name: str, read: Callable[[bytes], npt.NDArray[np.uint8] | U32]) -> list[bytes | None]:
        column = chunk.columns[name]
        if column is None:
            return [None] * count
        missing = set(scalars.absent.get(name, ()))
        values = read(column)
        return [None if p in missing else values[:, p].tobytes() for p in range(count)]

    shares = {n: per_sample(n, lambda raw: read_share(raw, chunk.cpus)) for n in CPU_SHARES}
    counts = {n: per_sample(n, lambda raw: read_count(raw, chunk.cpus, count)) for n in CPU_COUNTS}
    cells = _decode_cells(chunk, set(scalars.absent.get("irqs", ())))
    netdevs = _decode_netdevs(chunk, set(scalars.absent.get("netdevs", ())))
    seqs, times = cumulative(scalars.seqs).tolist(), cumulative(scalars.times_ms).tolist()
    durations = np.frombuffer(scalars.durations_s, "<f8").tolist()
    return [
        Rates(
            seq=seqs[p],
            time_ms=times[p],
            duration_s=durations[p],
            cpus=chunk.cpus,
            shares={name: values[p] for name, values in shares.items()},
            counts={name: values[p] for name, values in counts.items()},
            irq_ids=cells[p][0],
            irq_cpus=cells[p][1],
            irq_counts=cells[p][2],
            netdevs=netdevs[p],
            tcp=None if tcp[p][0] < 0 else TcpLatency(*tcp[p]),
            tcp_out_segments=optional["tcp_out_segments"][p],
            tcp_retransmits=optional["tcp_retransmits"][p],
            agent_cpu_s=agent_cpu_s[p],
            agent_rss_bytes=optional["agent_rss_bytes"][p],
        )
        for p in range(count)
    ]


def _decode_cells(chunk: Chunk, missing: set[int]) -> list[tuple[bytes | None, bytes | None, bytes | None]]:
    column = chunk.columns["irqs"]
    if column is None:
        return [(None, None, None)] * chunk.samples
    ids, cpus, counts = read_cells(column, chunk.samples)
    decoded: list[tuple[bytes | None, bytes | None, bytes | None]] = []
    for position in range(chunk.samples):
        moved = counts[:, position] > 0
        decoded.append(
            (None, None, None)
            if position in missing
            else (ids[moved].tobytes(), cpus[moved].tobytes(), counts[moved, position].tobytes())
        )
    return decoded


def _decode_netdevs(chunk: Chunk, missing: set[int]) -> list[list[NetdevCounts] | None]:
    column = chunk.columns["netdevs"]
    if column is None:
        return [None] * chunk.samples
    names, present, counts = read_netdevs(column, chunk.samples)
    return [
        None
        if position in missing
        else [
            NetdevCounts(name, *counts[row, :, position].tolist())
            for row, name in enumerate(names)
            if present[row, position]
        ]
        for position in range(chunk.samples)
    ]
