"""The process that simulates nodes for `coresteer up`: a child of the backend, which ends with it."""

import asyncio
import logging
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from coresteer.background import cancel
from coresteer.config import Config
from coresteer.process import spawn, terminate

NODES = 50
_CPUS, _IRQS = 64, 150
_GRACE_S = 2.0
_NICENESS = 10
"""Of its process: what the machine is there for comes first."""

_ERROR = "ERROR "
"""Begins the lines with which the agent says why it ends."""

log = logging.getLogger("coresteer")


class SimulationProcess:
    """Runs `coresteer-agent simulate`. failure: why it ended by itself; None if it did not."""

    def __init__(self, config: Config) -> None:
        self._backend = config.address
        self._process: asyncio.subprocess.Process | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._folder: TemporaryDirectory[str] | None = None
        self._error = ""
        self.failure: str | None = None

    @property
    def is_running(self) -> bool:
        """Return whether the process runs."""
        return self._process is not None and self._process.returncode is None

    async def start(self, token: str) -> None:
        """Start the process, which enrols its nodes with the token. Their keys are gone when it ends.

        Raises OSError. The same nodes are simulated each time.
        """
        await self.stop()
        self._folder = TemporaryDirectory(prefix="coresteer-simulated-")
        token_file = Path(self._folder.name) / "token"
        token_file.touch(mode=0o600)
        token_file.write_text(token)
        argv: list[str | Path] = [sys.executable, "-m", "coresteer_agent", "simulate", "--backend", self._backend]
        argv += ["--nodes", str(NODES), "--cpus", str(_CPUS), "--irqs", str(_IRQS)]
        argv += ["--state-dir", self._folder.name, "--token-file", token_file]
        environment = {name: value for name, value in os.environ.items() if "DATABASE" not in name}
        self._process, output = await spawn(argv, on_line=self._note, environment=environment)
        with suppress(ProcessLookupError):  # it has ended already; _watch says why
            os.setpriority(os.PRIO_PROCESS, self._process.pid, _NICENESS)
        self._tasks = [output, asyncio.create_task(self._watch(self._process))]

    async def stop(self) -> None:
        """End the process, and wait for its end."""
        process, self._process = self._process, None
        self._error, self.failure = "", None
        if process is not None:
            await terminate(process, signal.SIGTERM, _GRACE_S)
        await cancel(self._tasks)
        self._tasks = []
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def _note(self, line: str) -> None:
        if line.startswith(_ERROR):
            self._error = line.removeprefix(_ERROR)
        log.info("simulated nodes: %s", line)

    async def _watch(self, process: asyncio.subprocess.Process) -> None:
        """Note why the process ended, if nobody stopped it."""
        status = await process.wait()
        if self._process is process:
            self.failure = self._error or f"The process ended with status {status}."
