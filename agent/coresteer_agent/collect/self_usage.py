"""Reads the agent's own CPU time and memory."""

import os
import resource
from pathlib import Path

from coresteer_core.node.derive import AgentUsage

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def read_self_usage() -> AgentUsage:
    """Return the agent's CPU seconds since its start, of all threads, and its present resident memory in bytes."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    resident = int(Path("/proc/self/statm").read_bytes().split()[1]) * _PAGE_BYTES
    return AgentUsage(used.ru_utime + used.ru_stime, resident)
