"""irqbalance for the time of a run, where it is installed: it may move interrupts, and all of them go back."""

import os
import shutil
from collections.abc import Iterable

from coresteer_agent.apply.executor import reason
from coresteer_agent.apply.journal import JournalError
from coresteer_agent.runtime.changes import NodeChanges
from coresteer_agent.workloads.child_process import Child
from coresteer_agent.workloads.supervisor import Config
from coresteer_core.node.inventory import Inventory
from coresteer_core.settings import IrqAffinity

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_AT_ONCE = 16
"""Affinities put back in a step; each one costs a write to disk."""


class IrqbalanceError(Exception):
    """It cannot run here; the message is a sentence."""


class Irqbalance:
    """Runs from when it is made until stop() has answered or end() was called; then every affinity is back.

    Also when the agent is killed: irqbalance ends with it, and the next agent puts the affinities back. What an open
    change has set is left to that, and irqbalance told so. Make it in the main thread (see Child). Raises
    IrqbalanceError.
    """

    def __init__(self, changes: NodeChanges, inventory: Inventory) -> None:
        program = shutil.which("irqbalance", path=f"{os.environ.get('PATH', '')}:{_PATH}")
        if program is None:
            raise IrqbalanceError("irqbalance is not installed on this node.")
        if "irqbalance" in inventory.controllers:
            raise IrqbalanceError("irqbalance runs on this node already, in all runs; end it before the experiment.")
        self._changes = changes
        movable = [irq.irq for irq in inventory.irqs if irq.movable is not False]
        try:
            self.delegated = changes.delegate(IrqAffinity(irq).key for irq in movable)
        except (OSError, JournalError) as error:
            why = f"The journal cannot be written ({reason(error)}), so irqbalance was not started."
            raise IrqbalanceError(why) from None
        kept = [irq for irq in movable if IrqAffinity(irq).key not in self.delegated]
        try:
            self._child = _start(program, kept)
        except OSError as error:
            self._take_back()
            raise IrqbalanceError(f"{program} cannot be started: {error.strerror}.") from None

    @property
    def failed(self) -> str | None:
        """Why it does not run though nobody has stopped it."""
        said = self._child.lines()
        code = self._child.code
        return None if code is None else f"irqbalance ended by itself with {code}. {' '.join(said)}".rstrip()

    def stop(self) -> list[str] | None:
        """End it, then put affinities back, some a call. What could not be put back once it is done, None before."""
        self._child.end()
        results = self._changes.revoke(_AT_ONCE)
        return None if results is None else [result.sentence for result in results if result.stuck]

    def end(self) -> list[str]:
        """Do so at once."""
        self._child.end()
        return self._take_back()

    def _take_back(self) -> list[str]:
        results = self._changes.revoke(max(len(self.delegated), 1)) or []
        return [result.sentence for result in results if result.stuck]


def _start(program: str, kept: Iterable[int]) -> Child:
    argv = [program, "--foreground", *(f"--banirq={irq}" for irq in kept)]
    return Child("workloads.supervisor", Config(os.getpid(), argv, "irqbalance"))
