"""The RSS indirection table of a netdev, through ethtool. A captured tree has none."""

import errno
from pathlib import Path

from coresteer_agent.apply.netdev_common import explain, owners
from coresteer_agent.collect.irq import is_running_kernel
from coresteer_agent.linux import ethtool
from coresteer_core.settings import RssTable

__all__ = ["attainable", "exists", "explain", "owners", "read", "write"]


def exists(root: Path, setting: RssTable) -> bool:
    """Whether the netdev has such a table. Raises OSError."""
    if not is_running_kernel(root):
        return False
    try:
        return ethtool.rss(setting.netdev) is not None
    except OSError as error:
        if error.errno == errno.ENODEV:
            return False
        raise


def read(root: Path, setting: RssTable) -> str:
    """The table as a pattern. Raises OSError."""
    return setting.pattern(_now(setting).table)


def write(root: Path, setting: RssTable, value: str) -> None:
    """Fill the table. Raises OSError.

    The kernel lets nobody take away channels that a table somebody set needs; only where the table is the kernel's
    default, queues in turn, it is set as that. Drivers whose own first table is another one (igb) stay bound so.
    """
    table = setting.table(value, len(_now(setting).table))
    channels = ethtool.channels(setting.netdev)
    queues = 0 if channels is None else channels.counts.get("rx", 0) + channels.counts.get("combined", 0)
    default = bool(queues) and table == [entry % queues for entry in range(len(table))]
    ethtool.set_rss(setting.netdev, [] if default else table)


def attainable(root: Path, setting: RssTable, value: str) -> str:
    """The value as the table shows it. Raises OSError, or SettingError where it is longer than the table."""
    return setting.pattern(setting.table(value, len(_now(setting).table)))


def _now(setting: RssTable) -> ethtool.Rss:
    if (found := ethtool.rss(setting.netdev)) is None:
        raise OSError(errno.EOPNOTSUPP, "the driver has no such table")
    return found
