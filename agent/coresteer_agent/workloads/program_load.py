"""Loads that end by themselves and then report their metrics: this package's programs, and a command."""

import os
import socket
from collections.abc import Sequence

import msgspec

from coresteer_agent.workloads.bsp import BspConfig
from coresteer_agent.workloads.child_process import Child
from coresteer_agent.workloads.classes_program import ClassesConfig
from coresteer_agent.workloads.memory import MemoryConfig
from coresteer_agent.workloads.supervisor import Config
from coresteer_agent.workloads.traffic_protocol import FAILED, ReceiptsPart, descriptors_of
from coresteer_core.experiments.model import Classes, Command, Memory, Role
from coresteer_core.experiments.parallel_jobs import Bsp


def start_program(workload: Classes | Memory) -> Child:
    """Start this package's program for a workload that ends by itself as a child process."""
    match workload:
        case Classes():
            return Child("workloads.classes_program", ClassesConfig(os.getpid(), workload))
        case Memory():
            return Child("workloads.memory", MemoryConfig(os.getpid(), workload))


def start_jobs(  # noqa: PLR0917 - as BspConfig
    workload: Bsp,
    role: Role,
    address: str,
    network: str,
    listeners: Sequence[socket.socket],
    receipts: ReceiptsPart | None = None,
) -> Child:
    """Start the program of parallel jobs on one of the machines as a child process.

    address: of the first machine. network, listeners: the second one's namespace and the first one's socket, if any.
    """
    descriptors = [listener.fileno() for listener in listeners]
    config = BspConfig(os.getpid(), workload, role, address, descriptors, network, receipts)
    return Child("workloads.bsp", config, [*descriptors, *descriptors_of(receipts)])


def start_command(workload: Command, argv: Sequence[str]) -> Child:
    """Start a command that the operator allowed as a child process."""
    return Child("workloads.supervisor", Config(os.getpid(), [*argv], name=f"The command {workload.name!r}"))


class ProgramLoad:
    """Load of a program that ends by itself; its last line of output may be a JSON object of metrics.

    Same interface as load.Load.
    """

    def __init__(self, child: Child, *, custom_metrics: bool = False) -> None:
        """custom_metrics: its metrics are not those of METRICS and get the prefix command."""
        self.failed: str | None = None
        self.done = False
        self._child = child
        self._prefix = "command." if custom_metrics else ""

    def poll(self) -> bool:
        """Update done and failed; return True, because a program is ready once it is started."""
        code = self._child.code
        for line in self._child.lines():
            if line.startswith(FAILED):
                self.failed = line.removeprefix(FAILED)
        if code is not None and self.failed is None:
            self.done = code == 0
            self.failed = (
                None
                if self.done
                else f"The workload's program ended with exit code {code}; its output is in the agent's log."
            )
        return True

    def has_traffic(self) -> bool:
        """Return True, because a program does not wait for a client's traffic."""
        return True

    def begin_window(self) -> None:
        """Accept the start of the measuring window; a program's metrics cover its whole run."""

    def end_window(self) -> None:
        """Accept the end of the measuring window; a program's metrics cover its whole run."""

    def figures(self) -> dict[str, float]:
        """Return the metrics in the last line of output; empty before the program's end and for an invalid line."""
        if not self.done:
            return {}
        try:
            metrics = msgspec.json.decode(self._child.last_line, type=dict[str, float])
        except msgspec.MsgspecError:
            return {}
        return {self._prefix + name: value for name, value in metrics.items()}

    def end(self) -> None:
        """End the program's process at once."""
        self._child.end()
