"""Runs irqbalance during an experiment's run and restores all IRQ affinities afterwards."""

import os
import shutil
from collections.abc import Iterable

from coresteer_agent.apply.journal import JournalError
from coresteer_agent.apply.results import journal_error_text
from coresteer_agent.runtime.changes import NodeChanges
from coresteer_agent.workloads.child_process import Child
from coresteer_agent.workloads.supervisor import Config
from coresteer_core.changes.guard import limits_refusal
from coresteer_core.cpuset import format_cpu_list, format_cpu_mask
from coresteer_core.node.inventory import Inventory
from coresteer_core.node.limits import LIMITS_FILE
from coresteer_core.settings import IrqAffinity

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_AT_ONCE = 16
"""Affinities restored per step; each one costs a write to disk."""


class IrqbalanceError(Exception):
    """Raised if irqbalance cannot run here; the message is a sentence."""


class Irqbalance:
    """irqbalance as a child process; all IRQ affinities are restored by stop() or end(). Raises IrqbalanceError.

    cpus: to which alone it may move interrupts; empty for its own choice, which excludes isolated ones. If the agent is
    killed, irqbalance ends with it, and the next agent restores the affinities. Settings of open changes, those off
    limits, and interrupts of queue users are not delegated; irqbalance ignores these. Construct it in the main thread
    (see Child).
    """

    def __init__(self, changes: NodeChanges, inventory: Inventory, cpus: frozenset[int] = frozenset()) -> None:
        program = shutil.which("irqbalance", path=f"{os.environ.get('PATH', '')}:{_PATH}")
        if program is None:
            raise IrqbalanceError("irqbalance is not installed on this node.")
        if "irqbalance" in inventory.controllers:
            raise IrqbalanceError(
                "irqbalance already runs on this node and would affect all runs; stop it before the experiment."
            )
        self._changes = changes
        movable = [irq.irq for irq in inventory.irqs if irq.movable is not False]
        refused = {irq: why for irq in movable if (why := limits_refusal(inventory, IrqAffinity(irq))) is not None}
        if movable and len(refused) == len(movable):
            raise IrqbalanceError(f"irqbalance may change no interrupt. {refused[movable[0]]}")
        if (closed := inventory.limits.settings.closed_cpus) and (not cpus or cpus & closed):
            others = f"other CPUs than {format_cpu_list(closed)}, which {LIMITS_FILE} puts off limits"
            raise IrqbalanceError(f"irqbalance needs a list of CPUs on this node: {others}.")
        try:
            self.delegated = changes.delegate(IrqAffinity(irq).key for irq in movable if irq not in refused)
        except (OSError, JournalError) as error:
            why = f"The journal cannot be written ({journal_error_text(error)}), so irqbalance was not started."
            raise IrqbalanceError(why) from None
        used = [irq.irq for irq in inventory.irqs if any(user.uses(irq) for user in inventory.queue_users)]
        banned = [*used, *(irq for irq in movable if IrqAffinity(irq).key not in self.delegated)]
        try:
            self._child = _start(program, banned, cpus)
        except OSError as error:
            self._restore()
            raise IrqbalanceError(f"{program} cannot be started: {error.strerror}.") from None

    @property
    def failed(self) -> str | None:
        """Return a sentence if irqbalance ended by itself, None while it runs."""
        output = self._child.lines()
        code = self._child.code
        return None if code is None else f"irqbalance ended unexpectedly with code {code}. {' '.join(output)}".rstrip()

    def stop(self) -> list[str] | None:
        """Stop irqbalance and restore some affinities per call; return failures when all are done, None before."""
        self._child.end()
        results = self._changes.revoke(_AT_ONCE)
        return None if results is None else [result.sentence for result in results if result.stuck]

    def end(self) -> list[str]:
        """Stop irqbalance and restore all affinities at once; return the failures."""
        self._child.end()
        return self._restore()

    def _restore(self) -> list[str]:
        results = self._changes.revoke(max(len(self.delegated), 1)) or []
        return [result.sentence for result in results if result.stuck]


def _start(program: str, banned: Iterable[int], cpus: frozenset[int]) -> Child:
    argv = [program, "--foreground", *(f"--banirq={irq}" for irq in banned)]
    if cpus:
        others = frozenset(range(os.sysconf("SC_NPROCESSORS_CONF"))) - cpus
        cpu_list, mask = format_cpu_list(others), format_cpu_mask(others)  # only the mask before irqbalance 1.8
        argv = ["env", f"IRQBALANCE_BANNED_CPULIST={cpu_list}", f"IRQBALANCE_BANNED_CPUS={mask}", *argv]
    return Child("workloads.supervisor", Config(os.getpid(), argv, "irqbalance"))
