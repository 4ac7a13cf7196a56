"""Detects other programs that set interrupt affinities, such as irqbalance."""

from pathlib import Path

from coresteer_agent.collect.files import names, read_bytes

KNOWN_CONTROLLERS = {b"irqbalance\n": "irqbalance", b"tuned\n": "tuned"}
"""By /proc/PID/comm."""


def find_controllers(root: Path) -> list[str]:
    """Return the names of running programs that set interrupt affinities. Reads every process: milliseconds."""
    found = {
        KNOWN_CONTROLLERS.get(read_bytes(root, f"proc/{pid}/comm") or b"")
        for pid in names(root, "proc")
        if pid.isdecimal()
    }
    return sorted(name for name in found if name is not None)
