"""IRQ affinity: ``/proc/irq/N/smp_affinity_list`` (kernel: kernel/irq/proc.c)."""

import errno
from pathlib import Path

from coresteer_agent.apply import rooted
from coresteer_core.protocol import Outcome
from coresteer_core.settings import IrqAffinity

MANAGED = "The kernel manages this interrupt's affinity itself and lets nobody change it."
READ_ONLY = (
    "The kernel made its affinity read-only: it spreads this interrupt itself, or its controller can deliver it "
    "to one CPU only."
)

_ERRORS = {
    errno.EIO: (Outcome.REFUSED, MANAGED),
    errno.EPERM: (Outcome.REFUSED, MANAGED),
    errno.EACCES: (Outcome.REFUSED, "The agent may not write its affinity; it has to run as root."),
    errno.EROFS: (
        Outcome.REFUSED,
        "/proc/irq is read-only for the agent; a systemd unit with ProtectKernelTunables or a container does that.",
    ),
    errno.ENOSPC: (Outcome.FAILED, "That CPU's interrupt vectors are used up; choose another CPU."),
    errno.EINVAL: (Outcome.FAILED, "The kernel takes no such set of CPUs; at least one of them has to be online."),
}


def exists(root: Path, setting: IrqAffinity) -> bool:
    """Whether the node has that interrupt with an affinity."""
    return rooted.exists(root, setting.path)


def read(root: Path, setting: IrqAffinity) -> str:
    """The requested affinity in canonical form. Raises OSError, or SettingError for a text that is no CPU list."""
    return setting.canonical(rooted.read_text(root, setting.path))


def write(root: Path, setting: IrqAffinity, value: str) -> None:
    """Request an affinity. Raises OSError or rooted.ReadOnlyModeError."""
    rooted.write_text(root, setting.path, f"{value}\n")


def attainable(root: Path, setting: IrqAffinity, value: str) -> str:
    """The value itself."""
    return value


def owners(root: Path, setting: IrqAffinity) -> list[str]:
    """Who handles the interrupt: the names of its actions, each a folder of its own; empty when not known."""
    try:
        return rooted.folders(root, str(Path(setting.path).parent))
    except OSError:
        return []


def explain(error: OSError | rooted.ReadOnlyModeError, root: Path) -> tuple[Outcome, str]:
    """A failed write's outcome, refused or failed, and a sentence for it. On a captured tree the disk answers."""
    if isinstance(error, rooted.ReadOnlyModeError):
        return Outcome.REFUSED, READ_ONLY
    known = _ERRORS.get(error.errno or 0)
    if known is None or (error.errno == errno.ENOSPC and root != Path("/")):
        return Outcome.FAILED, f"The answer was: {error.strerror}."
    return known
