"""Reduces this process to the capabilities that the agent's work needs; it can gain none (capabilities(7))."""

import ctypes
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

NEEDED: Mapping[str, int] = MappingProxyType(
    {
        "CAP_DAC_OVERRIDE": 1,  # weights of cgroups that are delegated to a user; files of other users' processes
        "CAP_NET_ADMIN": 12,  # ethtool's settings; net.core, rps_flow_cnt; sockets' owners and cgroups; eBPF programs
        "CAP_SYS_PTRACE": 19,  # /proc/PID/fd and pagemap of other users' processes; moving their pages
        "CAP_SYS_ADMIN": 21,  # sockets in other network namespaces; kernel.numa_balancing; eBPF before Linux 5.8
        "CAP_SYS_NICE": 23,  # affinity, nice and pages of other users' processes
        "CAP_PERFMON": 38,  # performance counters of processes
        "CAP_BPF": 39,  # exact byte counts of processes
    }
)
"""Capabilities that the agent keeps, with their numbers (include/uapi/linux/capability.h)."""

_VERSION_3 = 0x20080522
_PR_CAPBSET_READ = 23  # include/uapi/linux/prctl.h
_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38


def keep_needed() -> None:
    """Drop every other capability, also for programs that are started later. Call it before the first thread starts."""
    libc = ctypes.CDLL(None, use_errno=True)
    needed = sum(1 << number for number in NEEDED.values())
    number = 0
    while (present := libc.prctl(_PR_CAPBSET_READ, number, 0, 0, 0)) >= 0:
        if present and not needed >> number & 1:
            libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0)  # refused without CAP_SETPCAP, as in most containers
        number += 1
    kept = _effective() & needed
    halves = (ctypes.c_uint32 * 6)(*(value for half in (kept & 0xFFFFFFFF, kept >> 32) for value in (half, half, 0)))
    header = (ctypes.c_uint32 * 2)(_VERSION_3, 0)
    if libc.capset(header, halves) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"capset: {os.strerror(error)}")
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def held() -> tuple[str, ...]:
    """Return the names of this process's effective capabilities; one that the agent does not need by its number."""
    names = {number: name for name, number in NEEDED.items()}
    effective = _effective()
    return tuple(names.get(n, f"CAP_{n}") for n in range(effective.bit_length()) if effective >> n & 1)


def _effective() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.partition("\nCapEff:")[2].split(maxsplit=1)[0], 16)
