"""Detects other programs that move interrupts or processes, such as irqbalance and numad."""

from pathlib import Path

from coresteer_agent.collect.files import names, read_bytes

KNOWN_CONTROLLERS = {b"irqbalance\n": "irqbalance", b"tuned\n": "tuned", b"numad\n": "numad"}
"""By /proc/PID/comm."""


def find_controllers(root: Path) -> list[str]:
    """Return the names of running programs that move interrupts or processes. Reads every process: milliseconds."""
    found = {
        KNOWN_CONTROLLERS.get(read_bytes(root, f"proc/{pid}/comm") or b"")
        for pid in names(root, "proc")
        if pid.isdecimal()
    }
    return sorted(name for name in found if name is not None)
