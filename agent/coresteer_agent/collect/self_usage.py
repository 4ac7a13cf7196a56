"""CPU time and memory of the agent."""

import os
import resource
from pathlib import Path

from coresteer_core.node.derive import SelfUsage

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def read_self_usage() -> SelfUsage:
    """Return the CPU seconds of this process, all threads, since it started, and its resident memory now."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    resident = int(Path("/proc/self/statm").read_bytes().split()[1]) * _PAGE_BYTES
    return SelfUsage(used.ru_utime + used.ru_stime, resident)
