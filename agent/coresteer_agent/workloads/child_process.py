"""A workload's child process: started, polled and ended without blocking; it ends with this process."""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress

import msgspec
from msgspec import Struct

_END_S = 5.0
"""Time for a program to remove what it created, before it is killed."""
_MAX_LINE_BYTES = 64 * 1024
_READ_BYTES = 64 * 1024
_MAX_READS = 16
"""The rest stays in the pipe, so that a program with endless output blocks instead of the agent."""


class Child:
    """A child process that runs a module of this package, with its configuration as a JSON argument.

    Start it from the main thread: the kernel ends the program when the thread that started it ends (prctl(2),
    PR_SET_PDEATHSIG, set by process_control.end_with_parent).
    """

    def __init__(self, program: str, config: Struct, descriptors: Sequence[int] = ()) -> None:
        """program: a module of this package. descriptors: inherited by the program under the same numbers."""
        arguments = ("-m", f"coresteer_agent.{program}", msgspec.json.encode(config).decode())
        self._process = subprocess.Popen(
            [sys.executable, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, pass_fds=descriptors
        )
        assert self._process.stdout is not None  # noqa: S101 - PIPE
        self._output = self._process.stdout.fileno()
        os.set_blocking(self._output, False)
        self._ended = os.pidfd_open(self._process.pid)
        self._rest = b""
        self.last_line = ""

    def lines(self) -> list[str]:
        """Return the complete lines that the process printed since the last call; the last one also without newline."""
        lines: list[str] = []
        for _ in range(_MAX_READS):
            try:
                read = os.read(self._output, _READ_BYTES)
            except BlockingIOError:
                break
            *whole, self._rest = (self._rest + read).split(b"\n")
            self._rest = self._rest[:_MAX_LINE_BYTES]
            if not read and self._rest:
                whole, self._rest = [self._rest], b""
            lines += [line[:_MAX_LINE_BYTES].decode("utf-8", "replace") for line in whole if line.strip()]
            if not read:
                break
        if lines:
            self.last_line = lines[-1]
        return lines

    @property
    def code(self) -> int | None:
        """Return the process's exit code, negative for a signal; None while it runs."""
        return self._wait(0)

    def end(self) -> None:
        """End the process by SIGTERM and, after 5 s, by SIGKILL; idempotent."""
        if self._output < 0:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._wait(0) is None:
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(self._ended, number)
                self._wait(_END_S)
        os.close(self._ended)
        assert self._process.stdout is not None  # noqa: S101 - PIPE
        self._process.stdout.close()
        self._output = -1

    def _wait(self, seconds: float) -> int | None:
        """Wait for the process's end, without Popen.wait(), which may block forever after an interrupt."""
        if self._process.returncode is None:
            watch = select.poll()
            watch.register(self._ended, select.POLLIN)
            if watch.poll(seconds * 1000):
                try:
                    _, status = os.waitpid(self._process.pid, 0)
                except ChildProcessError:  # an exception in a signal handler interrupted the assignment
                    status = 0
                self._process.returncode = os.waitstatus_to_exitcode(status)
        return self._process.returncode
