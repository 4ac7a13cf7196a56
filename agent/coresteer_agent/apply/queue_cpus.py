"""RPS and XPS: ``/sys/class/net/NAME/queues/*/rps_cpus`` and ``xps_cpus`` (kernel: net/core/net-sysfs.c)."""

import errno
from pathlib import Path

from coresteer_agent.apply import rooted
from coresteer_agent.apply.netdev_common import owners
from coresteer_core.cpuset import CpuListError, format_cpu_list, parse_cpu_mask
from coresteer_core.protocol import Outcome
from coresteer_core.settings import Rps, SettingError, Xps

__all__ = ["attainable", "exists", "explain", "owners", "read", "write"]

_ERRORS = {
    errno.EPERM: (Outcome.REFUSED, "The agent may not write it; it has to run as root."),
    errno.EACCES: (Outcome.REFUSED, "The agent may not write it; it has to run as root."),
    errno.EROFS: (Outcome.REFUSED, "/sys is read-only for the agent; a systemd unit or a container does that."),
    errno.EINVAL: (
        Outcome.FAILED,
        "The kernel takes no such set of CPUs; none of them exists, or isolcpus or nohz_full keep all of them free.",
    ),
    errno.ENOENT: (Outcome.UNSUPPORTED, "The kernel has no such setting for a network device with one queue."),
}


def exists(root: Path, setting: Rps | Xps) -> bool:
    """Whether the netdev has that queue with such a mask. Raises OSError."""
    try:
        return rooted.exists(root, _path(root, setting))
    except FileNotFoundError:
        return False


def read(root: Path, setting: Rps | Xps) -> str:
    """The CPUs. Raises OSError, or SettingError for a text that is no mask."""
    text = rooted.read_text(root, _path(root, setting))
    try:
        return setting.canonical(format_cpu_list(parse_cpu_mask(text)))
    except CpuListError as error:
        raise SettingError(str(error)) from None


def write(root: Path, setting: Rps | Xps, value: str) -> None:
    """Set the mask. Raises OSError or rooted.ReadOnlyModeError."""
    rooted.write_text(root, _path(root, setting), f"{setting.mask(value)}\n")


def attainable(root: Path, setting: Rps | Xps, value: str) -> str:
    """The value itself."""
    return value


def explain(error: OSError | rooted.ReadOnlyModeError, root: Path) -> tuple[Outcome, str]:
    """A failed write's outcome, refused or failed, and a sentence for it."""
    if isinstance(error, rooted.ReadOnlyModeError):
        return Outcome.REFUSED, "The kernel made it read-only."
    return _ERRORS.get(error.errno or 0, (Outcome.FAILED, f"The answer was: {error.strerror}."))


def _path(root: Path, setting: Rps | Xps) -> str:
    return f"{rooted.netdev_folder(root, setting.netdev)}/{setting.path}"
