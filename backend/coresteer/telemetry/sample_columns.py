"""Samples as arrays: blocks are decoded to them, validated, joined and encoded as chunks and roll-ups. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from coresteer.telemetry.byte_columns import F64, I64, U8, U32, U64, u32_from_planes, u64_from_planes
from coresteer.text_validation import control_characters
from coresteer_core.bounds import MAX_INTEGER
from coresteer_core.node.rates import (
    ABSENT_SHARE,
    ABSENT_U32,
    CPU_COUNTS,
    CPU_SHARES,
    FIRST_LABEL_ID,
    MAX_AGENT_CPU_S,
    MAX_DURATION_S,
    SHARES_PER_UNIT,
    Rates,
)
from coresteer_core.node.rates_block import MAX_BLOCK_CELLS, MAX_BLOCK_ROWS, NETDEV_FIELDS, RatesBlock, pack_block

Flags: TypeAlias = npt.NDArray[np.bool_]

A = TypeVar("A", U8, U32)
COLUMNS = (*CPU_SHARES, *CPU_COUNTS, "irqs", "netdevs")
LONGEST_REACH_S = 60.0
"""A longer sample (the machine was suspended) is attributed to the last minute of its interval."""
_VALID_SHARES = bytes([*range(SHARES_PER_UNIT + 1), ABSENT_SHARE])


class BlockError(ValueError):
    """A block with columns of wrong lengths, or values out of bounds; the sentence says which."""


@dataclass(frozen=True)
class SampleColumns:
    """Consecutive samples of one number of CPUs, at least one.

    shares: CPU_SHARES × samples × CPUs, ABSENT_SHARE where unknown. counts: CPU_COUNTS × samples × CPUs, ABSENT_U32
    where unknown. cells: distinct interrupt cells as irq_id << 16 | CPU; cell_lengths: how many a sample has;
    cell_places, cell_counts: their positions among the distinct ones, and their counts, sample by sample.
    netdev_present: netdevs × samples; netdev_counts: netdevs × NETDEV_FIELDS × samples. scalars: names × samples, −1
    where unknown. absent: COLUMNS × samples, whether a sample lacks a column.
    """

    cpus: int
    seqs: I64
    times_ms: I64
    durations_s: F64
    shares: U8
    counts: U32
    cells: U64
    cell_lengths: U32
    cell_places: U32
    cell_counts: U32
    netdevs: list[str]
    netdev_present: U8
    netdev_counts: U64
    scalar_names: list[str]
    scalars: I64
    agent_cpu_s: F64
    absent: Flags

    @property
    def nbytes(self) -> int:
        """Return the bytes that the arrays take: planes of zeros and absent columns take none in a block."""
        small = (self.cells, self.cell_lengths, self.cell_places, self.cell_counts, self.scalars)
        return sum(each.nbytes for each in (self.shares, self.counts, self.netdev_present, self.netdev_counts, *small))

    @cached_property
    def starts_ms(self) -> I64:
        """Return the starts of the intervals in Unix ms, at most a minute before their ends."""
        reach = np.rint(np.minimum(self.durations_s, LONGEST_REACH_S) * 1000)
        starts: I64 = self.times_ms - reach.astype(np.int64)
        return starts

    @cached_property
    def cell_matrix(self) -> U32:
        """Return the counts of interrupt cells as cells × samples, 0 where a counter did not change."""
        count = len(self.seqs)
        matrix = np.zeros(len(self.cells) * count, "<u4")
        matrix[self.cell_places * np.int64(count) + np.repeat(np.arange(count), self.cell_lengths)] = self.cell_counts
        return matrix.reshape(len(self.cells), count)

    @cached_property
    def interrupts(self) -> I64:
        """Return the numbered device interrupts of each sample, −1 where unknown."""
        numbered = self.cells < np.uint64(FIRST_LABEL_ID << 16)
        sums: I64 = self.cell_matrix[numbered].sum(axis=0, dtype=np.int64)
        sums[self.lacks("irqs")] = -1
        return sums

    @cached_property
    def count_sums(self) -> I64:
        """Return the sums of counts over the CPUs: CPU_COUNTS × samples, −1 where no CPU is known."""
        known = self.counts != ABSENT_U32
        sums: I64 = (self.counts * known).sum(axis=2, dtype=np.int64)
        sums[~known.any(axis=2)] = -1
        return sums

    def moved(self, by_ms: int) -> "SampleColumns":
        """Return the samples with their times moved by a number of ms."""
        return replace(self, times_ms=self.times_ms + by_ms)

    def lacks(self, column: str) -> Flags:
        """Return which samples lack one of COLUMNS."""
        lacking: Flags = self.absent[COLUMNS.index(column)]
        return lacking

    def scalar(self, name: str) -> I64 | None:
        """Return the numbers of a scalar, −1 where unknown; None where no sample has it."""
        return self.scalars[self.scalar_names.index(name)] if name in self.scalar_names else None


def columns_of(samples: Sequence[Rates]) -> SampleColumns:
    """Return checked Rates (at least one) of one number of CPUs as arrays."""
    return read_block(pack_block(samples))


def read_block(block: RatesBlock, *, is_valid: bool = False) -> SampleColumns:
    """Return a block's columns as arrays. Raises BlockError unless their lengths agree; values are not checked.

    is_valid: the block was read before, so the checks whose time grows with its cells are skipped.
    """
    count, cpus = len(block.seqs) // 8, block.cpus
    if count == 0 or count * max(cpus, len(block.netdevs or ())) > MAX_BLOCK_ROWS:
        raise BlockError(f"{count} samples of {cpus} CPUs and {len(block.netdevs or ())} netdevs are too many or none.")
    absent = np.zeros((len(COLUMNS), count), np.bool_)
    for name, positions in block.absent.items():
        if name in COLUMNS and positions:
            if max(positions) >= count:
                raise BlockError(f"{name} is absent from sample {max(positions)} of {count}.")
            absent[COLUMNS.index(name), positions] = True
    cells, cell_lengths, cell_places, cell_counts = _read_cells(block, count, is_valid=is_valid)
    if block.cell_ids is None:
        absent[COLUMNS.index("irqs")] = True
    if block.netdevs is None:
        absent[COLUMNS.index("netdevs")] = True
    netdevs = block.netdevs or []
    if not is_valid and len(set(netdevs)) != len(netdevs):
        raise BlockError("a netdev is listed twice.")
    if not is_valid and (wrong := control_characters(netdevs)):
        raise BlockError(wrong)
    return SampleColumns(
        cpus=cpus,
        seqs=np.frombuffer(_sized("seqs", block.seqs, 8, count), "<i8"),
        times_ms=np.frombuffer(_sized("times_ms", block.times_ms, 8, count), "<i8"),
        durations_s=np.frombuffer(_sized("durations_s", block.durations_s, 8, count), "<f8"),
        shares=_read_shares(block, count, absent),
        counts=_read_counts(block, count, absent),
        cells=cells,
        cell_lengths=cell_lengths,
        cell_places=cell_places,
        cell_counts=cell_counts,
        netdevs=netdevs,
        netdev_present=np.frombuffer(
            _sized("netdev_present", block.netdev_present, 1, len(netdevs) * count), np.uint8
        ).reshape(len(netdevs), count),
        netdev_counts=u64_from_planes(
            *_planes("netdev_counts", block.netdev_counts, 8, len(netdevs) * len(NETDEV_FIELDS) * count)
        ).reshape(len(netdevs), len(NETDEV_FIELDS), count),
        scalar_names=_distinct(block.scalar_names),
        scalars=np.frombuffer(_sized("scalars", block.scalars, 8, len(block.scalar_names) * count), "<i8").reshape(
            -1, count
        ),
        agent_cpu_s=np.frombuffer(_sized("agent_cpu_s", block.agent_cpu_s, 8, count), "<f8"),
        absent=absent,
    )


def invalid_values(columns: SampleColumns) -> str | None:
    """Return which column has a value out of the bounds of Rates, None if all are within."""
    # a list of a block's few numbers costs less than a call of numpy
    durations_s, agent_cpu_s = columns.durations_s.tolist(), columns.agent_cpu_s.tolist()
    if not all(0 < duration_s <= MAX_DURATION_S for duration_s in durations_s):  # neither is true of NaN
        return f"duration_s has a value outside 0 to {MAX_DURATION_S:g}."
    if any(used_s < 0 or used_s > MAX_AGENT_CPU_S for used_s in agent_cpu_s):
        return f"agent_cpu_s has a value outside 0 to {MAX_AGENT_CPU_S:g}."
    ranges: tuple[tuple[str, I64 | U64 | U8, int, int], ...] = (
        ("netdev_counts", columns.netdev_counts, 0, MAX_INTEGER - 1),
        ("scalars", columns.scalars, -1, MAX_INTEGER - 1),
        ("seqs", columns.seqs, 1, MAX_INTEGER - 1),
        ("netdev_present", columns.netdev_present, 0, 1),
    )
    for name, values, least, most in ranges:
        if values.size and (values.max() > most or (least and values.min() < least)):  # those from 0 are unsigned
            return f"{name} has a value outside {least} to {most}."
    if columns.shares.tobytes().translate(None, _VALID_SHARES):
        return f"a share is not 0 to {SHARES_PER_UNIT}, or {ABSENT_SHARE} for unknown."
    if (np.diff(columns.seqs) <= 0).any():
        return "sequence numbers do not grow."
    return None


def join(parts: Sequence[SampleColumns]) -> SampleColumns:
    """Return the samples of several parts of one number of CPUs, in order."""
    if len(parts) == 1:
        return parts[0]
    cells, cell_places = _joined_cells(parts)
    netdevs, present, netdev_counts = _joined_netdevs(parts)
    names, scalars = _joined_scalars(parts)
    return SampleColumns(
        cpus=parts[0].cpus,
        seqs=np.concatenate([part.seqs for part in parts]),
        times_ms=np.concatenate([part.times_ms for part in parts]),
        durations_s=np.concatenate([part.durations_s for part in parts]),
        shares=np.concatenate([part.shares for part in parts], axis=1),
        counts=np.concatenate([part.counts for part in parts], axis=1),
        cells=cells,
        cell_lengths=np.concatenate([part.cell_lengths for part in parts]),
        cell_places=cell_places,
        cell_counts=np.concatenate([part.cell_counts for part in parts]),
        netdevs=netdevs,
        netdev_present=present,
        netdev_counts=netdev_counts,
        scalar_names=names,
        scalars=scalars,
        agent_cpu_s=np.concatenate([part.agent_cpu_s for part in parts]),
        absent=np.concatenate([part.absent for part in parts], axis=1),
    )


def _sized(name: str, raw: bytes, width: int, count: int) -> bytes:
    if len(raw) != width * count:
        raise BlockError(f"{name} has {len(raw)} bytes, not {width} for each of {count} values.")
    return raw


def _planes(name: str, planes: bytes, width: int, count: int) -> tuple[bytes, int]:
    if len(planes) > width * count or (count and len(planes) % count):
        raise BlockError(f"{name} has {len(planes)} bytes, not up to {width} planes of {count}.")
    return planes, count


def _distinct(names: list[str]) -> list[str]:
    if len(set(names)) != len(names):
        raise BlockError("a column is listed twice.")
    return names


def _read_shares(block: RatesBlock, count: int, absent: Flags) -> U8:
    names = _distinct(block.share_names)
    raw = np.frombuffer(_sized("shares", block.shares, 1, len(names) * count * block.cpus), np.uint8)
    shares: U8 = raw.reshape(len(names), count, block.cpus)
    return _in_order(shares, names, CPU_SHARES, ABSENT_SHARE, absent)


def _read_counts(block: RatesBlock, count: int, absent: Flags) -> U32:
    names = _distinct(block.count_names)
    values = u32_from_planes(*_planes("counts", block.counts, 4, len(names) * count * block.cpus))
    counts: U32 = values.reshape(len(names), count, block.cpus)
    return _in_order(counts, names, CPU_COUNTS, ABSENT_U32, absent)


def _in_order(values: A, names: list[str], order: Sequence[str], unknown: int, absent: Flags) -> A:
    """Return names × samples × CPUs in the order of the storage, unknown where a name is missing."""
    if tuple(names) == tuple(order):
        return values
    ordered: A = np.full((len(order), *values.shape[1:]), unknown, values.dtype)
    for row, name in enumerate(order):
        if name in names:
            ordered[row] = values[names.index(name)]
        else:
            absent[COLUMNS.index(name)] = True
    return ordered


def _read_cells(block: RatesBlock, count: int, *, is_valid: bool) -> tuple[U64, U32, U32, U32]:
    ids = np.frombuffer(_sized("cell_ids", block.cell_ids or b"", 4, len(block.cell_ids or b"") // 4), "<u4")
    where = np.frombuffer(_sized("cell_cpus", block.cell_cpus, 2, len(ids)), "<u2")
    if count > 1 and count * len(ids) > MAX_BLOCK_CELLS:
        raise BlockError(f"{count} samples of {len(ids)} interrupt cells exceed {MAX_BLOCK_CELLS}.")
    cells: U64 = ids.astype(np.uint64) << np.uint64(16) | where
    if not is_valid:
        ordered = np.sort(cells)
        if (ordered[1:] == ordered[:-1]).any():
            raise BlockError("an interrupt cell is listed twice.")
    lengths = np.frombuffer(
        _sized("cell_lengths", block.cell_lengths, 4, 0 if block.cell_ids is None else count), "<u4"
    )
    total = int(lengths.sum(dtype=np.int64))
    if total > count * len(ids):
        raise BlockError(f"{total} cells are more than {len(ids)} for each of {count} samples.")
    places = u32_from_planes(*_planes("cell_places", block.cell_places, 4, total))
    if total and not is_valid:
        if int(places.max()) >= len(ids):
            raise BlockError(f"cell_places names cell {int(places.max())} of {len(ids)}.")
        # there are at most MAX_BLOCK_CELLS, or those of one sample
        seen = np.zeros(count * len(ids), np.bool_)
        seen[np.repeat(np.arange(count) * len(ids), lengths) + places] = True
        if np.count_nonzero(seen) != total:
            raise BlockError("a sample has an interrupt cell twice.")
    counts = u32_from_planes(*_planes("cell_counts", block.cell_counts, 4, total))
    return cells, np.zeros(count, "<u4") if block.cell_ids is None else lengths, places, counts


def _joined_cells(parts: Sequence[SampleColumns]) -> tuple[U64, U32]:
    """Return the distinct cells of all parts in order, and the place of each cell of a sample among them."""
    cells = np.sort(np.concatenate([part.cells for part in parts]))
    if cells.size:
        cells = cells[np.concatenate(([True], cells[1:] != cells[:-1]))]
    places = [np.searchsorted(cells, part.cells).astype(np.uint32)[part.cell_places] for part in parts]
    return cells, np.concatenate(places)


def _joined_netdevs(parts: Sequence[SampleColumns]) -> tuple[list[str], U8, U64]:
    if all(part.netdevs == parts[0].netdevs for part in parts):
        return (
            parts[0].netdevs,
            np.concatenate([part.netdev_present for part in parts], axis=1),
            np.concatenate([part.netdev_counts for part in parts], axis=2),
        )
    names = sorted({name for part in parts for name in part.netdevs})
    count = sum(len(part.seqs) for part in parts)
    present = np.zeros((len(names), count), np.uint8)
    counts = np.zeros((len(names), len(NETDEV_FIELDS), count), "<u8")
    first = 0
    for part in parts:
        rows, last = [names.index(name) for name in part.netdevs], first + len(part.seqs)
        present[rows, first:last] = part.netdev_present
        counts[rows, :, first:last] = part.netdev_counts
        first = last
    return names, present, counts


def _joined_scalars(parts: Sequence[SampleColumns]) -> tuple[list[str], I64]:
    if all(part.scalar_names == parts[0].scalar_names for part in parts):
        return parts[0].scalar_names, np.concatenate([part.scalars for part in parts], axis=1)
    names = sorted({name for part in parts for name in part.scalar_names})
    joined = np.full((len(names), sum(len(part.seqs) for part in parts)), -1, np.int64)
    first = 0
    for part in parts:
        last = first + len(part.seqs)
        joined[[names.index(name) for name in part.scalar_names], first:last] = part.scalars
        first = last
    return names, joined
