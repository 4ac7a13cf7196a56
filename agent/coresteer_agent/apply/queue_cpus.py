"""Reads and writes RPS and XPS masks: ``/sys/class/net/NAME/queues/*/{rps,xps}_cpus`` (net/core/net-sysfs.c)."""

import errno
from pathlib import Path

from coresteer_agent.apply import rooted
from coresteer_agent.apply.handler import Error, Explanation, Handler, not_permitted
from coresteer_agent.apply.netdev_common import NetdevHandler
from coresteer_agent.collect.files import read_cpus
from coresteer_core.changes.report import Outcome
from coresteer_core.cpuset import CpuListError, format_cpu_list, parse_cpu_mask
from coresteer_core.settings import Rps, SettingError, Xps


class QueueCpusHandler(NetdevHandler[Rps | Xps]):
    """Reads and writes the RPS or XPS CPU mask of a queue."""

    errors = not_permitted("The agent may not write the CPU mask of this queue; it has to run as root.") | {
        errno.EROFS: (Outcome.REFUSED, "/sys is read-only for the agent: by a systemd unit or in a container."),
        errno.EINVAL: (
            Outcome.FAILED,
            "The kernel rejects this set of CPUs; none of them exists, or all of them are isolated by isolcpus or "
            "nohz_full.",
        ),
        errno.ENOENT: (Outcome.UNSUPPORTED, "The kernel has no such setting for a network device with one queue."),
    }

    def exists(self, root: Path, setting: Rps | Xps) -> bool:
        """Return whether the netdev has this queue and the queue has a mask. Raises OSError."""
        try:
            return rooted.exists(root, _path(root, setting))
        except FileNotFoundError:
            return False

    def read(self, root: Path, setting: Rps | Xps) -> str:
        """Return the CPUs of the queue's mask as a CPU list. Raises OSError, or SettingError for an invalid mask."""
        text = rooted.read_text(root, _path(root, setting))
        try:
            return setting.canonical(format_cpu_list(parse_cpu_mask(text)))
        except CpuListError as error:
            raise SettingError(str(error)) from None

    def write(self, root: Path, setting: Rps | Xps, value: str) -> None:
        """Set the queue's CPU mask. Raises OSError or rooted.ReadOnlyModeError."""
        rooted.write_text(root, _path(root, setting), f"{setting.mask(value)}\n")

    def attainable(self, root: Path, setting: Rps | Xps, value: str) -> str:
        """Return the CPUs that are online: the kernel drops the others."""
        online = read_cpus(root, "sys/devices/system/cpu/online")
        cpus = setting.cpus(value)
        return value if online is None else setting.canonical(format_cpu_list(cpus & online))

    def explain(self, error: Error, root: Path) -> Explanation:
        """Return the outcome (refused, failed or unsupported) and a sentence for a failed write."""
        return Handler.explain(self, error, root)


def _path(root: Path, setting: Rps | Xps) -> str:
    return f"{rooted.netdev_folder(root, setting.netdev)}/{setting.path}"
