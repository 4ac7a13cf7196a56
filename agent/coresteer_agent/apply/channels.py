"""How many channels a netdev has, through ethtool. A captured tree has none."""

import errno
from pathlib import Path

from coresteer_agent.apply.netdev_common import explain, owners
from coresteer_agent.collect.irq import is_running_kernel
from coresteer_agent.linux import ethtool
from coresteer_core.settings import Channels

__all__ = ["attainable", "exists", "explain", "owners", "read", "write"]


def exists(root: Path, setting: Channels) -> bool:
    """Whether the netdev's driver tells them. Raises OSError."""
    if not is_running_kernel(root):
        return False
    try:
        found = ethtool.channels(setting.netdev)
    except OSError as error:
        if error.errno == errno.ENODEV:
            return False
        raise
    return found is not None and bool(found.counts)


def read(root: Path, setting: Channels) -> str:
    """The channels of each kind. Raises OSError."""
    return setting.value(_now(setting).counts)


def write(root: Path, setting: Channels, value: str) -> None:
    """Set those of each kind that the netdev can have. Raises OSError."""
    wanted = setting.counts(value)
    ethtool.set_channels(setting.netdev, dict.fromkeys(_now(setting).maxima, 0) | wanted)


def attainable(root: Path, setting: Channels, value: str) -> str:
    """The value itself."""
    return value


def _now(setting: Channels) -> ethtool.Channels:
    if (found := ethtool.channels(setting.netdev)) is None:
        raise OSError(errno.EOPNOTSUPP, "the driver does not tell them")
    return found
