"""Blocks: consecutive Rates of one node as columns, which cost less to send, validate and store than single samples.

The agent encodes blocks with the standard library; the backend reads them as arrays. Columns are little-endian. Where
numbers are wider than a byte and mostly small they are byte planes: all lowest bytes, then all second ones and so on,
without the highest planes if these are zero.
"""

import sys
import zlib
from array import array
from collections.abc import Iterable, Sequence
from math import nan
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from coresteer_core.bounds import Count, Name
from coresteer_core.cpuset import MAX_CPUS
from coresteer_core.node.rates import (
    ABSENT_SHARE,
    ABSENT_U32,
    CPU_COUNTS,
    CPU_SHARES,
    MAX_COLUMNS,
    MAX_COUNTERS,
    MAX_NETDEVS,
    NetdevCounts,
    Rates,
    TcpLatency,
    unpack_column,
)

MAX_BLOCK_SAMPLES = 600
MAX_BLOCK_SPAN_MS = 30_000
"""Between the times of the first and the last sample."""
MAX_BLOCK_BYTES = 8 * 1024 * 1024
"""Of a block before compression: twice one sample of the largest machine."""
MAX_BLOCK_ROWS = 131_072
"""Of samples × CPUs, and of samples × netdevs: byte planes of zeros take nothing, and arrays of them do."""
MAX_BLOCK_CELLS = 1 << 20
"""Of samples × distinct interrupt cells, if a block has more than one sample."""
NETDEV_FIELDS = NetdevCounts.__struct_fields__[1:]
"""The counters of a netdev, in the order of NetdevCounts."""
TCP_FIELDS = TcpLatency.__struct_fields__
_FASTEST = 1
_RSS = "agent_rss_bytes"


class RatesBlock(Struct, frozen=True):
    """Consecutive Rates with the same CPUs as columns, the oldest sample first.

    seqs, times_ms: i64. durations_s, agent_cpu_s: f64, NaN where unknown. shares (u8), counts (byte planes of u32):
    names × samples × CPUs, as in Rates. netdevs: names in order, None where no sample has them; netdev_present: u8,
    names × samples; netdev_counts: byte planes of u64, names × NETDEV_FIELDS × samples. scalars: i64, names × samples,
    −1 where unknown: the fields of TcpLatency, agent_rss_bytes, and Rates.counters. cell_ids (u32), cell_cpus (u16):
    the distinct interrupt cells, None where no sample has any. cell_lengths (u32): how many a sample has; cell_places,
    cell_counts (byte planes of u32): their positions among the distinct ones, and their counts, sample by sample.
    absent: by column name, ``irqs`` or ``netdevs``, the positions of samples that lack it.
    """

    cpus: Annotated[int, Meta(ge=1, le=MAX_CPUS)]
    seqs: bytes
    times_ms: bytes
    durations_s: bytes
    share_names: Annotated[list[Name], Meta(max_length=MAX_COLUMNS)]
    shares: bytes
    count_names: Annotated[list[Name], Meta(max_length=MAX_COLUMNS)]
    counts: bytes
    netdevs: Annotated[list[Name], Meta(max_length=MAX_NETDEVS)] | None
    netdev_present: bytes
    netdev_counts: bytes
    scalar_names: Annotated[list[Name], Meta(max_length=MAX_COUNTERS + 8)]
    scalars: bytes
    agent_cpu_s: bytes
    cell_ids: bytes | None
    cell_cpus: bytes = b""
    cell_lengths: bytes = b""
    cell_places: bytes = b""
    cell_counts: bytes = b""
    absent: Annotated[
        dict[Name, Annotated[list[Count], Meta(max_length=MAX_BLOCK_SAMPLES)]], Meta(max_length=2 * MAX_COLUMNS + 2)
    ] = {}

    @property
    def samples(self) -> int:
        """Return the number of samples."""
        return len(self.seqs) // 8


_decoder = msgspec.msgpack.Decoder(RatesBlock)


def pack_block(samples: Sequence[Rates]) -> RatesBlock:
    """Return Rates (at least one) with the same CPUs as a block, without columns that this version does not know."""
    cpus, absent = samples[0].cpus, dict[str, list[int]]()
    shares = {name: _joined(name, [each.shares.get(name) for each in samples], absent) for name in CPU_SHARES}
    counts = {name: _joined(name, [each.counts.get(name) for each in samples], absent) for name in CPU_COUNTS}
    no_share, no_count = bytes([ABSENT_SHARE]) * cpus, ABSENT_U32.to_bytes(4, "little") * cpus
    cell_ids, cell_cpus, cell_lengths, cell_places, cell_counts = _pack_cells(samples, absent)
    netdevs, present, netdev_counts = _pack_netdevs(samples, absent)
    scalars = _scalars(samples)
    return RatesBlock(
        cpus=cpus,
        seqs=_numbers("q", [each.seq for each in samples]),
        times_ms=_numbers("q", [each.time_ms for each in samples]),
        durations_s=_numbers("d", [each.duration_s for each in samples]),
        share_names=[name for name, parts in shares.items() if parts is not None],
        shares=b"".join([no_share if part is None else part for parts in shares.values() for part in parts or ()]),
        count_names=[name for name, parts in counts.items() if parts is not None],
        counts=_planes(
            b"".join([no_count if part is None else part for parts in counts.values() for part in parts or ()]), 4
        ),
        netdevs=netdevs,
        netdev_present=present,
        netdev_counts=netdev_counts,
        scalar_names=list(scalars),
        scalars=b"".join(scalars.values()),
        agent_cpu_s=_numbers("d", [nan if each.agent_cpu_s is None else each.agent_cpu_s for each in samples]),
        absent=absent,
        cell_ids=cell_ids,
        cell_cpus=cell_cpus,
        cell_lengths=cell_lengths,
        cell_places=cell_places,
        cell_counts=cell_counts,
    )


def unpack_block(block: RatesBlock) -> list[Rates]:
    """Return the Rates of a valid block: cells in order of (irq_id, CPU) without those that did not move."""
    count, cpus = block.samples, block.cpus
    missing = {name: frozenset(positions) for name, positions in block.absent.items()}

    def columns(names: list[str], raw: bytes, width: int) -> dict[str, list[bytes | None]]:
        row = width * cpus
        found = {}
        for number, name in enumerate(names):
            without, first = missing.get(name, frozenset()), number * count * row
            found[name] = [None if p in without else raw[first + p * row : first + (p + 1) * row] for p in range(count)]
        return found

    nothing: list[bytes | None] = [None] * count
    shares = dict.fromkeys(CPU_SHARES, nothing) | columns(block.share_names, block.shares, 1)
    wide = _from_planes(block.counts, len(block.count_names) * count * cpus, 4)
    counts = dict.fromkeys(CPU_COUNTS, nothing) | columns(block.count_names, wide, 4)
    cells = _unpack_cells(block, missing.get("irqs", frozenset()))
    netdevs = _unpack_netdevs(block, missing.get("netdevs", frozenset()))
    flat = _array("q", block.scalars)
    scalars = {name: flat[number * count : (number + 1) * count] for number, name in enumerate(block.scalar_names)}
    tcp = [scalars.pop(field, None) for field in TCP_FIELDS]
    latencies = [None] * count if None in tcp else zip(*tcp, strict=True)
    unknown = array("q", [-1]) * count
    return [
        Rates(
            seq=seq,
            time_ms=time_ms,
            duration_s=duration_s,
            cpus=cpus,
            shares={name: column[p] for name, column in shares.items()},
            counts={name: column[p] for name, column in counts.items()},
            irq_ids=cells[p][0],
            irq_cpus=cells[p][1],
            irq_counts=cells[p][2],
            netdevs=netdevs[p],
            tcp=None if latency is None or latency[0] < 0 else TcpLatency(*latency),
            agent_cpu_s=None if agent_cpu_s != agent_cpu_s else agent_cpu_s,  # noqa: PLR0124 - NaN
            agent_rss_bytes=None if rss < 0 else rss,
            counters={name: column[p] for name, column in scalars.items() if column[p] >= 0},
        )
        for p, (seq, time_ms, duration_s, latency, agent_cpu_s, rss) in enumerate(
            zip(
                _array("q", block.seqs),
                _array("q", block.times_ms),
                _array("d", block.durations_s),
                latencies,
                _array("d", block.agent_cpu_s),
                scalars.pop(_RSS, unknown),
                strict=True,
            )
        )
    ]


def compress_block(block: RatesBlock) -> bytes:
    """Return a block encoded in msgpack and compressed by zlib."""
    return zlib.compress(msgspec.msgpack.encode(block), _FASTEST)


def decompress_block(packed: bytes) -> tuple[RatesBlock, int]:
    """Return the block in what compress_block returned, and its size in bytes before compression.

    Raises ValueError for anything else, or more than MAX_BLOCK_BYTES. The lengths of columns are not checked.
    """
    inflater = zlib.decompressobj()
    try:
        raw = inflater.decompress(packed, MAX_BLOCK_BYTES)
    except zlib.error as error:
        raise ValueError(f"The block cannot be decompressed: {error}.") from None
    if not inflater.eof or inflater.unused_data:
        raise ValueError(f"The block is incomplete, or larger than {MAX_BLOCK_BYTES} bytes.")
    try:
        return _decoder.decode(raw), len(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"Invalid block: {error}") from None


def _joined(name: str, parts: list[bytes | None], absent: dict[str, list[int]]) -> list[bytes | None] | None:
    """Note which samples lack a column in absent, and return it; None where all lack it."""
    missing = [position for position, part in enumerate(parts) if part is None]
    if len(missing) == len(parts):
        return None
    if missing:
        absent[name] = missing
    return parts


class _Positions(dict[int, int]):
    """The position of each cell in the order in which they are first looked up."""

    def __missing__(self, key: int) -> int:
        self[key] = position = len(self)
        return position


def _pack_cells(
    samples: Sequence[Rates], absent: dict[str, list[int]]
) -> tuple[bytes | None, bytes, bytes, bytes, bytes]:
    if _joined("irqs", [each.irq_ids for each in samples], absent) is None:
        return None, b"", b"", b"", b""
    positions = _Positions()
    places = array("I")
    for each in samples:
        places.extend(map(positions.__getitem__, _cell_keys(each)))
    return (
        _numbers("I", [key >> 16 for key in positions]),
        _numbers("H", [key & 0xFFFF for key in positions]),
        _numbers("I", [len(each.irq_ids or b"") // 4 for each in samples]),
        _planes(_little(places), 4),
        _planes(b"".join([each.irq_counts or b"" for each in samples]), 4),
    )


def _cell_keys(rates: Rates) -> Iterable[int]:
    """Return irq_id << 16 | CPU of each cell of a sample, made of bytes because that takes a tenth of a loop's time."""
    ids, cpus = rates.irq_ids or b"", rates.irq_cpus or b""
    keys = bytearray(2 * len(ids))
    for at in range(2):
        keys[at::8] = cpus[at::2]
    for at in range(4):
        keys[at + 2 :: 8] = ids[at::4]
    return unpack_column(bytes(keys), "Q")


def _unpack_cells(block: RatesBlock, missing: frozenset[int]) -> list[tuple[bytes | None, bytes | None, bytes | None]]:
    if block.cell_ids is None:
        return [(None, None, None)] * block.samples
    ids, cpus = unpack_column(block.cell_ids, "I"), unpack_column(block.cell_cpus, "H")
    lengths = unpack_column(block.cell_lengths, "I")
    places = unpack_column(_from_planes(block.cell_places, sum(lengths), 4), "I")
    counts = _from_planes(block.cell_counts, sum(lengths), 4)
    found: list[tuple[bytes | None, bytes | None, bytes | None]] = []
    first = 0
    for position, length in enumerate(lengths):
        here, last = places[first : first + length], first + length
        moved = (_numbers("I", map(ids.__getitem__, here)), _numbers("H", map(cpus.__getitem__, here)))
        found.append((None, None, None) if position in missing else (*moved, counts[4 * first : 4 * last]))
        first = last
    return found


def _pack_netdevs(samples: Sequence[Rates], absent: dict[str, list[int]]) -> tuple[list[str] | None, bytes, bytes]:
    missing = [position for position, each in enumerate(samples) if each.netdevs is None]
    if len(missing) == len(samples):
        return None, b"", b""
    if missing:
        absent["netdevs"] = missing
    rows = [{netdev.name: netdev for netdev in each.netdevs or ()} for each in samples]
    names = sorted(set[str]().union(*rows))
    nothing = NetdevCounts("", *[0] * len(NETDEV_FIELDS))
    numbers = array("Q")
    for name in names:
        found = [row.get(name, nothing) for row in rows]
        for field in NETDEV_FIELDS:
            numbers.extend([getattr(netdev, field) for netdev in found])
    present = bytes(name in row for name in names for row in rows)
    return names, present, _planes(_little(numbers), 8)


def _unpack_netdevs(block: RatesBlock, missing: frozenset[int]) -> list[list[NetdevCounts] | None]:
    count, names = block.samples, block.netdevs
    if names is None:
        return [None] * count
    numbers = unpack_column(_from_planes(block.netdev_counts, len(names) * len(NETDEV_FIELDS) * count, 8), "Q")
    width = len(NETDEV_FIELDS) * count
    return [
        None
        if position in missing
        else [
            NetdevCounts(name, *numbers[row * width + position : (row + 1) * width : count])
            for row, name in enumerate(names)
            if block.netdev_present[row * count + position]
        ]
        for position in range(count)
    ]


def _scalars(samples: Sequence[Rates]) -> dict[str, bytes]:
    """Return by name the numbers that a sample has one of."""
    counters = sorted(set[str]().union(*[each.counters for each in samples]))
    found = {name: _numbers("q", [each.counters.get(name, -1) for each in samples]) for name in counters}
    for field in TCP_FIELDS:
        found[field] = _numbers("q", [-1 if each.tcp is None else getattr(each.tcp, field) for each in samples])
    rss = [-1 if each.agent_rss_bytes is None else each.agent_rss_bytes for each in samples]
    return found | {_RSS: _numbers("q", rss)}


def _numbers(kind: str, values: Iterable[float]) -> bytes:
    return _little(array(kind, values))


def _little(numbers: "array[int] | array[float]") -> bytes:
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


def _array(kind: str, raw: bytes) -> "array[int]":
    return unpack_column(raw, kind)


def _planes(wide: bytes, width: int) -> bytes:
    """Return numbers of some bytes each as byte planes."""
    planes = [wide[at::width] for at in range(width)]
    while planes and planes[-1].count(0) == len(planes[-1]):
        planes.pop()
    return b"".join(planes)


def _from_planes(planes: bytes, count: int, width: int) -> bytes:
    """Return the numbers, count of them, that _planes() returned as planes."""
    wide = bytearray(count * width)
    for at in range(len(planes) // count if count else 0):
        wide[at::width] = planes[at * count : (at + 1) * count]
    return bytes(wide)
