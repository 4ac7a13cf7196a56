"""Reads the agent's own CPU time and memory."""

import os
import resource
from pathlib import Path

from coresteer_agent.collect.files import HotFile
from coresteer_core.node.derive import AgentUsage

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class SelfUsageReader:
    """Reads them through a descriptor that stays open."""

    def __init__(self) -> None:
        self._statm = HotFile(Path("/"), "proc/self/statm")

    def read(self) -> AgentUsage | None:
        """Return the agent's CPU seconds since its start, of all threads, and its present resident memory in bytes."""
        used, statm = resource.getrusage(resource.RUSAGE_SELF), self._statm.read()
        if statm is None:
            return None
        return AgentUsage(used.ru_utime + used.ru_stime, int(statm.split()[1]) * _PAGE_BYTES)

    def close(self) -> None:
        """Close the descriptor."""
        self._statm.close()
