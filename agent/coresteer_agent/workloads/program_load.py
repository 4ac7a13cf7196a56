"""Workloads that end by themselves and tell their figures at their end: the service classes, a command."""

import os
from collections.abc import Sequence

import msgspec

from coresteer_agent.workloads.child import Child
from coresteer_agent.workloads.classes_program import ClassesOrders
from coresteer_agent.workloads.supervisor import Orders
from coresteer_agent.workloads.traffic import FAILED
from coresteer_core.experiments.model import Classes, Command


def classes_program(workload: Classes) -> Child:
    """The service classes' experiment."""
    return Child("workloads.classes_program", ClassesOrders(os.getpid(), workload))


def command_program(workload: Command, argv: Sequence[str]) -> Child:
    """A command that the operator allowed."""
    return Child("workloads.supervisor", Orders(os.getpid(), [*argv], name=f"The command {workload.name!r}"))


class ProgramLoad:
    """A load as children.Load wants it. The last line of output may be a JSON object of numbers."""

    def __init__(self, child: Child, *, own_names: bool = False) -> None:
        """own_names: its figures are not those of METRICS."""
        self.failed: str | None = None
        self.done = False
        self._child = child
        self._prefix = "command." if own_names else ""

    def look(self) -> bool:
        """It is ready once it was started."""
        code = self._child.code
        for line in self._child.lines():
            if line.startswith(FAILED):
                self.failed = line.removeprefix(FAILED)
        if code is not None and self.failed is None:
            self.done = code == 0
            self.failed = None if self.done else f"It ended with {code}; what it said is in the agent's log."
        return True

    def flows(self) -> bool:
        """From its start."""
        return True

    def begin_window(self) -> None:
        """It is measured from its start."""

    def end_window(self) -> None:
        """To its end."""

    def figures(self) -> dict[str, float]:
        """Empty before its end, and where its last line is no such object."""
        if not self.done:
            return {}
        try:
            told = msgspec.json.decode(self._child.last_line, type=dict[str, float])
        except msgspec.MsgspecError:
            return {}
        return {self._prefix + name: value for name, value in told.items()}

    def end(self) -> None:
        """At once."""
        self._child.end()
