"""Counts events of a thread and of the threads that it starts: ``perf_event_open(2)``, counting only."""

import ctypes
import errno
import os
import platform
import struct

from msgspec import Struct

_NUMBERS = {"x86_64": 298, "aarch64": 241, "riscv64": 241, "ppc64le": 319, "s390x": 331}
_ATTRIBUTE = struct.Struct("=IIQQQQQIIQ")
"""The first published version of struct perf_event_attr (include/uapi/linux/perf_event.h): 64 bytes."""
_COUNT = struct.Struct("=QQQ")
_TIMES = 1 | 2
"""PERF_FORMAT_TOTAL_TIME_ENABLED and PERF_FORMAT_TOTAL_TIME_RUNNING."""
_INHERIT, _INHERIT_THREAD = 1 << 1, 1 << 35
_CLOSE_ON_EXEC = 8
HARDWARE, SOFTWARE, CACHE, RAW = 0, 1, 3, 4


class Event(Struct, frozen=True):
    """What is counted: type and config of struct perf_event_attr."""

    type: int
    config: int


class Count(Struct, frozen=True):
    """Events so far. enabled_ns, running_ns: how long they were to be counted, and were: counters are shared by turns.

    Both times pass only while the thread runs.
    """

    events: int
    enabled_ns: int
    running_ns: int


def open_counter(event: Event, tid: int) -> int:
    """Return a descriptor that counts from now on; tid 0 is the calling thread. Raises OSError."""
    number = _NUMBERS.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, f"perf_event_open is not known for {platform.machine()}")
    attribute = ctypes.create_string_buffer(
        _ATTRIBUTE.pack(
            event.type, _ATTRIBUTE.size, event.config, 0, 0, _TIMES, _INHERIT | _INHERIT_THREAD, 0, 0, 0
        ),
        _ATTRIBUTE.size,
    )  # fmt: skip
    libc = ctypes.CDLL(None, use_errno=True)
    fd = int(
        libc.syscall(
            ctypes.c_long(number), attribute, ctypes.c_int(tid), ctypes.c_int(-1), ctypes.c_int(-1),
            ctypes.c_ulong(_CLOSE_ON_EXEC),
        )
    )  # fmt: skip
    if fd < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return fd


def read_counter(fd: int) -> Count:
    """Return what a descriptor has counted. Raises OSError."""
    return Count(*_COUNT.unpack(os.read(fd, _COUNT.size)))
