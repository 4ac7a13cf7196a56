"""What a workload's processes count in memory that they share with the agent, so that a window costs them nothing.

Each process has a row of 64-bit numbers: what it counted (bytes, requests or packets), then a histogram of times. Only
that process writes it and the numbers never fall, so what happened in a window is the difference of two readings.

The histogram's buckets are 1/32 of a power of two wide, 3 % of a time at the most, up to a minute.
"""

import mmap
import os
from array import array
from collections.abc import Sequence

ROW = 1024
"""Numbers of a process."""
COUNTED = 0
FIRST_BUCKET = 8
_STEPS = 32
_BYTES = 8


class Counts:
    """The rows, all 0. fd: to hand to the processes."""

    def __init__(self, rows: int) -> None:
        self.fd = os.memfd_create("coresteer-workload")
        self._size = rows * ROW * _BYTES
        os.ftruncate(self.fd, self._size)

    def read(self) -> "array[int]":
        """All rows, one after the other."""
        return array("Q", os.pread(self.fd, self._size, 0))

    def close(self) -> None:
        """The processes keep theirs."""
        os.close(self.fd)


def open_row(fd: int, row: int) -> memoryview:
    """A process's own row, to write."""
    return memoryview(mmap.mmap(fd, 0)).cast("Q")[row * ROW : (row + 1) * ROW]


def bucket_of(ns: int) -> int:
    """The place in a row of what took so many nanoseconds."""
    shift = ns.bit_length() - 6
    if shift <= 0:
        return FIRST_BUCKET + ns
    return min(FIRST_BUCKET + shift * _STEPS + (ns >> shift), ROW - 1)


def counted(before: "array[int]", after: "array[int]") -> int:
    """By all processes between two readings."""
    return sum(after[COUNTED::ROW]) - sum(before[COUNTED::ROW])


def histogram(before: "array[int]", after: "array[int]") -> list[int]:
    """How many fell into each bucket between two readings, of all processes together."""
    places = range(FIRST_BUCKET, ROW)
    return [sum(after[place::ROW]) - sum(before[place::ROW]) for place in places]


def quantiles_us(buckets: Sequence[int], shares: Sequence[float]) -> list[float] | None:
    """For each share (0.5: the median) of ascending ones the time below which it is; None where nothing was counted.

    Within a bucket times are taken to be spread evenly.
    """
    total = sum(buckets)
    if not total:
        return None
    found: list[float] = []
    wanted = iter(shares)
    share = next(wanted, None)
    below = 0
    for place, count in enumerate(buckets):
        while share is not None and count and below + count >= share * total:
            low_ns, width_ns = _bounds_ns(place)
            found.append((low_ns + width_ns * (share * total - below) / count) / 1000)
            share = next(wanted, None)
        below += count
    return found


def _bounds_ns(place: int) -> tuple[int, int]:
    """The smallest time of a bucket, and its width."""
    if place < 2 * _STEPS:
        return place, 1
    shift = place // _STEPS - 1
    return (place - shift * _STEPS) << shift, 1 << shift
