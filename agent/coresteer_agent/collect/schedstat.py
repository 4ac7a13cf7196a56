"""Reads how a process's main thread was scheduled: /proc/PID/schedstat, stat and status (kernel: fs/proc/base.c)."""

from pathlib import Path

from coresteer_agent.collect.errors import ParseError
from coresteer_agent.collect.files import DIGITS, read_bytes
from coresteer_core.node.tasks import ThreadActivity

_VOLUNTARY = b"\nvoluntary_ctxt_switches:"


def parse_schedstat(text: bytes, path: str) -> tuple[int, int]:
    """Parse schedstat; return the time on a CPU in ns and the number of time slices. Raises ParseError."""
    fields = text.split()
    if len(fields) != 3 or not all(field.isdigit() and len(field) <= DIGITS for field in fields):
        raise ParseError(path, 1, "The line has not the three numbers of a schedstat file.")
    return int(fields[0]), int(fields[2])


def parse_state(text: bytes, path: str) -> bool:
    """Parse a stat file; return whether the main thread runs or is ready to run. Raises ParseError."""
    state = text.rpartition(b") ")[2][:2]
    if len(state) != 2 or not state[:1].isalpha() or state[1:] != b" ":
        raise ParseError(path, 1, "The state after the name is missing.")
    return state == b"R "


def parse_sleeps(text: bytes, path: str) -> int:
    """Parse a status file; return the number of voluntary context switches. Raises ParseError."""
    number = text.partition(_VOLUNTARY)[2].partition(b"\n")[0].strip()
    if not number.isdigit() or len(number) > DIGITS:
        raise ParseError(path, None, "The line voluntary_ctxt_switches is missing or has no number.")
    return int(number)


def read_activity(root: Path, pid: int) -> ThreadActivity | None:
    """Return what a process's main thread has done; None if it has ended or the kernel has no schedstat.

    Other threads are not read: processes that exchange messages in lockstep compute and wait in their main thread.
    """
    folder = f"proc/{pid}"
    texts = [read_bytes(root, f"{folder}/{name}") for name in ("stat", "schedstat", "status")]
    try:
        runnable = parse_state(texts[0] or b"", f"{folder}/stat")
        run_ns, slices = parse_schedstat(texts[1] or b"", f"{folder}/schedstat")
        return ThreadActivity(runnable, run_ns, slices, parse_sleeps(texts[2] or b"", f"{folder}/status"))
    except ParseError:
        return None
