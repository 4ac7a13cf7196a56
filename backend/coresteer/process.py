"""Child processes that never outlive their parent, with their output read line by line."""

import asyncio
import ctypes
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1  # include/uapi/linux/prctl.h
_PR_SET_NO_NEW_PRIVS = 38
_libc = ctypes.CDLL(None)


@dataclass(frozen=True)
class SystemAccount:
    """The system account (uid, gid) that a child process runs as."""

    uid: int
    gid: int


async def spawn(
    argv: Sequence[str | Path],
    *,
    on_line: Callable[[str], None],
    death_signal: signal.Signals = signal.SIGTERM,
    environment: Mapping[str, str] | None = None,
    account: SystemAccount | None = None,
) -> tuple[asyncio.subprocess.Process, asyncio.Task[None]]:
    """Start a child process in a session of its own; return it and the task that passes on its output.

    The kernel sends death_signal to the child when the calling thread ends, however it ends (prctl(2),
    PR_SET_PDEATHSIG): call it from the main thread. A session of its own keeps a terminal's Ctrl-C from the
    child, so that the parent stops its children in the right order. No set-user-ID program gives it privileges.
    """
    parent = os.getpid()

    def restrict() -> None:
        _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        die_with_parent(parent, death_signal)

    # only where it is needed: uvloop has no such arguments
    other: dict[str, Any] = {"user": account.uid, "group": account.gid, "extra_groups": []} if account else {}
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=environment,
        cwd="/",
        start_new_session=True,
        preexec_fn=restrict,
        **other,
    )
    return process, asyncio.create_task(_pass_lines_on(process, on_line))


def die_with_parent(parent: int, death_signal: signal.Signals = signal.SIGKILL) -> None:
    """Let the kernel send this process a signal when the thread that started it ends. parent: the parent's PID."""
    _libc.prctl(_PR_SET_PDEATHSIG, death_signal, 0, 0, 0)
    if os.getppid() != parent:  # it died before the line above
        os._exit(1)


async def _pass_lines_on(process: asyncio.subprocess.Process, on_line: Callable[[str], None]) -> None:
    assert process.stdout is not None  # noqa: S101 - PIPE above
    unfinished = b""
    while block := await process.stdout.read(65536):
        *lines, unfinished = (unfinished + block).split(b"\n")
        for line in lines:
            on_line(line.decode(errors="replace"))
    if unfinished:
        on_line(unfinished.decode(errors="replace"))


async def terminate(process: asyncio.subprocess.Process, how: signal.Signals, grace_s: float) -> None:
    """Send the process the signal, kill it after grace_s seconds, and wait for its end."""
    if process.returncode is not None:
        return
    process.send_signal(how)
    try:
        async with asyncio.timeout(grace_s):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
