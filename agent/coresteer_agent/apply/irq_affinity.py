"""Reads and writes the CPUs of an IRQ in ``/proc/irq/N/smp_affinity_list`` (kernel: kernel/irq/proc.c)."""

import errno
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from coresteer_agent.apply import rooted
from coresteer_agent.apply.handler import Error, Explanation, FileHandler
from coresteer_core.changes.report import Outcome
from coresteer_core.settings import IrqAffinity

MANAGED = "The kernel manages this interrupt's affinity itself and rejects any change."
READ_ONLY = (
    "The kernel made the affinity of this interrupt read-only: it is a managed interrupt, or its interrupt controller "
    "can deliver it to one CPU only."
)


class IrqAffinityHandler(FileHandler[IrqAffinity]):
    """Reads and writes the requested affinity of an interrupt."""

    read_only = (Outcome.REFUSED, READ_ONLY)
    errors: ClassVar[Mapping[int, Explanation]] = {
        errno.EIO: (Outcome.REFUSED, MANAGED),
        errno.EPERM: (Outcome.REFUSED, MANAGED),
        errno.EACCES: (
            Outcome.REFUSED,
            "The agent may not write the affinity of this interrupt; it has to run as root.",
        ),
        errno.EROFS: (
            Outcome.REFUSED,
            "/proc/irq is read-only for the agent: by a systemd unit with ProtectKernelTunables, or in a container.",
        ),
        errno.ENOSPC: (Outcome.FAILED, "All interrupt vectors of that CPU are in use; choose another CPU."),
        errno.EINVAL: (Outcome.FAILED, "The kernel rejects this set of CPUs; at least one of them has to be online."),
    }

    def owners(self, root: Path, setting: IrqAffinity) -> list[str]:
        """Return the names of the interrupt's handlers (subfolders of /proc/irq/N); empty if unknown."""
        try:
            return rooted.folders(root, str(Path(setting.path).parent))
        except OSError:
            return []

    def explain(self, error: Error, root: Path) -> Explanation:
        """Return the outcome and a sentence for a failed write; ENOSPC means that no interrupt vector is free."""
        if isinstance(error, OSError) and error.errno == errno.ENOSPC and root != Path("/"):
            return Outcome.FAILED, f"The system call failed: {error.strerror}."
        return super().explain(error, root)
