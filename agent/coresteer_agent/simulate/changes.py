"""Changes of a simulated node: the agent's ChangeRunner and Executor on simulated settings."""

import errno
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

from coresteer_agent.apply.executor import Executor
from coresteer_agent.apply.handler import Explanation, Handler
from coresteer_agent.apply.journal import Changed, Journal, Record
from coresteer_agent.runtime.changes import ChangeRunner
from coresteer_agent.simulate.node import SimulatedNode
from coresteer_core.changes.events import BackendLost, BackendReconnected
from coresteer_core.changes.report import ChangeMessage, Outcome
from coresteer_core.node.rates import Rates
from coresteer_core.node.view import View
from coresteer_core.settings import Setting

_log = logging.getLogger("coresteer.simulate.changes")
_log.setLevel(logging.WARNING)  # thousands of nodes would each log every state


class SimulatedHandler(Handler[Setting]):
    """Reads and writes settings of every kind on a simulated machine, which has no root directory."""

    errors: ClassVar[Mapping[int, Explanation]] = {
        errno.EOPNOTSUPP: (Outcome.UNSUPPORTED, "A simulated node does not simulate it.")
    }

    def __init__(self, node: SimulatedNode) -> None:
        self._node = node

    def exists(self, root: Path, setting: Setting) -> bool:
        """Return whether the simulated machine has the setting."""
        return setting.current(self.view()) is not None

    def read(self, root: Path, setting: Setting) -> str:
        """Return the simulated setting's value. Raises OSError if the machine does not have it."""
        if (value := setting.current(self.view())) is None:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
        return value

    def write(self, root: Path, setting: Setting, value: str) -> None:
        """Write a simulated setting. Raises OSError if its driver refuses the value or it is not simulated."""
        self._node.write(setting, value)

    def view(self) -> View:
        """Return the View of the simulated machine for the guard, without load."""
        numa = self._node.numa()
        return View(
            self._node.machine.topology,
            self._node.inventory,
            tasks=self._node.net_tasks(),
            learned=self._node.learned,
            cgroups=self._node.cgroups(),
            numa=numa,
            cpusets=self._node.cpusets(numa),
        )


class NoJournal(Journal):
    """Journal of originals in memory: a simulated node ends with its process, and its settings with it."""

    def __init__(self) -> None:
        self._reset()

    @contextmanager
    def locked(self, how: int = 0) -> Iterator[None]:
        """Lock nothing."""
        yield

    def _append(self, *records: Record) -> None:
        for record in records:
            if not isinstance(record, Changed):
                self._apply(record)
        self._written.clear()  # for the undo of interrupted changes, of which there are none


class SimulatedChanges(ChangeRunner):
    """Applies the changes of one simulated node; its journal ends with its process.

    Messages are collected for messages(), as a simulated agent sends them together with its inventory.
    """

    def __init__(self, node: SimulatedNode, clock: Callable[[], float] | None = None) -> None:
        self._messages: list[ChangeMessage] = []
        handler = SimulatedHandler(node)
        executor = Executor(Path(), NoJournal(), handler.view, node.record_attempt, handler=handler)
        super().__init__(executor, self._collect, clock=clock, logger=_log)

    def drain_messages(self) -> list[ChangeMessage]:
        """Return the messages for the backend since the last call."""
        messages, self._messages = self._messages, []
        return messages

    def handle_connected(self) -> None:
        """Start reporting changes: the backend has welcomed the node."""
        self.feed(BackendReconnected())

    def handle_disconnected(self) -> None:
        """Handle the end of the connection: undo unconfirmed changes, and report that after the next Welcome."""
        self.feed(BackendLost())

    def advance(self, rates: Rates) -> None:
        """Advance confirmation timers, and check guardrails against the rates of one interval."""
        if any(change.open for change in self._state.changes.values()):
            self.tick()
            self.check_guardrails(rates)

    def _collect(self, message: ChangeMessage) -> None:
        self._messages.append(message)
