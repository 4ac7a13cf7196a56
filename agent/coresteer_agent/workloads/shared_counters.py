"""Counters of a workload's processes in memory shared with the agent, so that reading does not disturb the load.

Each process has a row of 64-bit numbers: a count (bytes, requests or packets), then a histogram of times. Only that
process writes its row and the numbers never decrease, so a window is the difference of two readings.

The histogram's buckets are 1/32 of a power of two wide, at most 3 % of a time, up to one minute.
"""

import mmap
import os
from array import array
from collections.abc import Sequence

ROW_LENGTH = 1024
"""Numbers per process."""
COUNT_INDEX = 0
FIRST_BUCKET_INDEX = 8
_STEPS = 32
_BYTES = 8


class SharedCounters:
    """Counters of several processes, one row per process, initially 0. fd: descriptor for the processes."""

    def __init__(self, rows: int) -> None:
        self.fd = os.memfd_create("coresteer-workload")
        self._size = rows * ROW_LENGTH * _BYTES
        os.ftruncate(self.fd, self._size)

    def read(self) -> "array[int]":
        """Return the counters of all worker processes as one list of rows."""
        return array("Q", os.pread(self.fd, self._size, 0))

    def close(self) -> None:
        """Close this process's descriptor of the shared memory."""
        os.close(self.fd)


def open_row(fd: int, row: int) -> memoryview:
    """Return a process's own row of the shared memory for writing."""
    return memoryview(mmap.mmap(fd, 0)).cast("Q")[row * ROW_LENGTH : (row + 1) * ROW_LENGTH]


def bucket_of(ns: int) -> int:
    """Return the index in a row of the histogram bucket for a time in ns."""
    shift = ns.bit_length() - 6
    if shift <= 0:
        return FIRST_BUCKET_INDEX + ns
    return min(FIRST_BUCKET_INDEX + shift * _STEPS + (ns >> shift), ROW_LENGTH - 1)


def count_between(before: "array[int]", after: "array[int]") -> int:
    """Return the increase of all processes' counts between two readings."""
    return sum(after[COUNT_INDEX::ROW_LENGTH]) - sum(before[COUNT_INDEX::ROW_LENGTH])


def histogram(before: "array[int]", after: "array[int]") -> list[int]:
    """Return the increase of each histogram bucket between two readings, over all processes."""
    buckets = range(FIRST_BUCKET_INDEX, ROW_LENGTH)
    return [sum(after[bucket::ROW_LENGTH]) - sum(before[bucket::ROW_LENGTH]) for bucket in buckets]


def quantiles_us(buckets: Sequence[int], shares: Sequence[float]) -> list[float] | None:
    """Return quantiles in µs of a histogram, for ascending shares (0.5: the median); None if it is empty.

    Times are assumed to be distributed evenly within a bucket.
    """
    total = sum(buckets)
    if not total:
        return None
    found: list[float] = []
    remaining = iter(shares)
    share = next(remaining, None)
    below = 0
    for bucket, count in enumerate(buckets):
        while share is not None and count and below + count >= share * total:
            low_ns, width_ns = _bounds_ns(bucket)
            found.append((low_ns + width_ns * (share * total - below) / count) / 1000)
            share = next(remaining, None)
        below += count
    return found


def _bounds_ns(bucket: int) -> tuple[int, int]:
    """Return the smallest time of a bucket and its width, both in ns."""
    if bucket < 2 * _STEPS:
        return bucket, 1
    shift = bucket // _STEPS - 1
    return (bucket - shift * _STEPS) << shift, 1 << shift
