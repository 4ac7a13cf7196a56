"""Where a workload's process belongs: to its parent, to a network namespace, to its CPUs. For the process itself."""

import ctypes
import os
import signal
from collections.abc import Sequence
from pathlib import Path

_PR_SET_PDEATHSIG = 1  # include/uapi/linux/prctl.h
_PR_SET_TIMERSLACK = 29
_PR_SET_CHILD_SUBREAPER = 36
_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


def end_with_parent(parent: int, number: signal.Signals = signal.SIGKILL) -> None:
    """parent: its process id, which this process was started by; number: what the kernel sends when that ends."""
    _call(_libc.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0))
    if os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """Descendants whose parent has ended become this process's children."""
    _call(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))


def wake_exactly() -> None:
    """Sleeps of this thread end when they should, not up to 50 µs later."""
    _call(_libc.prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0))


def own_network() -> None:
    """Into a new network namespace, which ends with the last process in it. Raises OSError."""
    _call(_libc.unshare(_CLONE_NEWNET))


def enter_network(path: str) -> None:
    """Into the network namespace of a process, given as its /proc/PID/ns/net; empty for staying. Raises OSError."""
    if path:
        with Path(path).open() as namespace:
            _call(_libc.setns(namespace.fileno(), _CLONE_NEWNET))


def pin(cpus: Sequence[int], turn: int) -> None:
    """To one of the CPUs, of which each process has its turn; none leaves it to the kernel. Raises OSError."""
    if cpus:
        os.sched_setaffinity(0, {cpus[turn % len(cpus)]})


def _call(result: int) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
