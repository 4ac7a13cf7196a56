"""Reads and writes the RSS indirection table of a netdev (ethtool -X). A captured tree has none."""

import errno
from pathlib import Path

from coresteer_agent.apply.netdev_common import NetdevHandler, is_gone
from coresteer_agent.collect.irq import is_running_kernel
from coresteer_agent.linux import ethtool
from coresteer_core.settings import RssTable, SettingError


class RssTableHandler(NetdevHandler[RssTable]):
    """Reads and writes a netdev's RSS indirection table as a repeated pattern of queues."""

    def exists(self, root: Path, setting: RssTable) -> bool:
        """Return whether the netdev has an RSS indirection table. Raises OSError."""
        if not is_running_kernel(root):
            return False
        try:
            return ethtool.read_rss(setting.netdev) is not None
        except OSError as error:
            if is_gone(root, setting, error):
                return False
            raise

    def read(self, root: Path, setting: RssTable) -> str:
        """Return the shortest pattern of queues that the RSS indirection table repeats. Raises OSError."""
        return setting.pattern(_present(setting.netdev))

    def write(self, root: Path, setting: RssTable, value: str) -> None:
        """Fill the RSS indirection table with a repeated pattern of queues. Raises OSError.

        The kernel refuses to remove channels that a configured table needs; so a table that equals the kernel's
        default, queues in turn, is reset to the default. Drivers with another default (igb) keep a configured table.
        """
        table = table_of(setting.netdev, value)
        channels = ethtool.read_channels(setting.netdev)
        queues = 0 if channels is None else channels.counts.get("rx", 0) + channels.counts.get("combined", 0)
        default = bool(queues) and table == [entry % queues for entry in range(len(table))]
        ethtool.set_rss(setting.netdev, [] if default else table)

    def attainable(self, root: Path, setting: RssTable, value: str) -> str:
        """Return the pattern that read() returns after a write. Raises OSError."""
        return setting.pattern(table_of(setting.netdev, value))


def table_of(netdev: str, value: str) -> list[int]:
    """Return a table of the netdev's size that repeats a pattern of queues. Raises OSError."""
    try:
        return RssTable.table(value, len(_present(netdev)))
    except SettingError as error:
        raise OSError(errno.EINVAL, str(error).rstrip(".")) from None


def _present(netdev: str) -> list[int]:
    if (found := ethtool.read_rss(netdev)) is None:
        raise OSError(errno.EOPNOTSUPP, "the driver has no RSS indirection table")
    return found.table
