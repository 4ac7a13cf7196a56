"""Settings of a workload's own process: end with its parent, network namespace, CPUs."""

import ctypes
import os
import signal
from collections.abc import Sequence
from pathlib import Path

_PR_SET_PDEATHSIG = 1  # include/uapi/linux/prctl.h
_PR_SET_NAME = 15
_PR_SET_TIMERSLACK = 29
_PR_SET_CHILD_SUBREAPER = 36
_CLONE_NEWNET = 0x40000000
_ARG_START, _ARG_END = 45, 47
"""Of /proc/PID/stat, after the name in parentheses."""
_libc = ctypes.CDLL(None, use_errno=True)


def end_with_parent(parent: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Make the kernel send a signal to this process when its parent ends. parent: expected PID of the parent."""
    _call(_libc.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0))
    if os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """Make orphaned descendants children of this process (PR_SET_CHILD_SUBREAPER)."""
    _call(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))


def rename_process(name: str) -> None:
    """Overwrite the command line of this process with a name, cut to its length, and its thread's name. Raises OSError.

    The kernel reads /proc/PID/cmdline from the process's memory (proc_pid_stat(5), arg_start and arg_end).
    """
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    begin, end = (int(field) for field in fields[_ARG_START:_ARG_END])
    if begin:  # 0 where the kernel does not tell
        ctypes.memmove(begin, name.encode()[: end - begin - 1].ljust(end - begin, b"\0"), end - begin)
    _call(_libc.prctl(_PR_SET_NAME, name.encode(), 0, 0, 0))


def minimize_timer_slack() -> None:
    """Set the timer slack of this thread to 1 ns instead of the default 50 µs."""
    _call(_libc.prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0))


def enter_new_network_namespace() -> None:
    """Move this process to a new network namespace, which ends with its last process. Raises OSError."""
    _call(_libc.unshare(_CLONE_NEWNET))


def enter_network_namespace(path: str) -> None:
    """Move this process to a network namespace. path: /proc/PID/ns/net, empty: no move. Raises OSError."""
    if path:
        with Path(path).open() as namespace:
            _call(_libc.setns(namespace.fileno(), _CLONE_NEWNET))


def pin_to_cpu(cpus: Sequence[int], index: int) -> None:
    """Pin this process to one of the CPUs, chosen by its index in turn; without CPUs do nothing. Raises OSError."""
    if cpus:
        os.sched_setaffinity(0, {cpus[index % len(cpus)]})


def _call(result: int) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
