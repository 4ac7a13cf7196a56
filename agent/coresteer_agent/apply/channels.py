"""Reads and writes the number of channels (queues) of a netdev, as ``ethtool -L``. A captured tree has none."""

import errno
from pathlib import Path

from coresteer_agent.apply.netdev_common import NetdevHandler, is_gone
from coresteer_agent.collect.irq import is_running_kernel
from coresteer_agent.linux import ethtool
from coresteer_core.settings import Channels


class ChannelsHandler(NetdevHandler[Channels]):
    """Reads and writes a netdev's number of rx, tx and combined channels."""

    def exists(self, root: Path, setting: Channels) -> bool:
        """Return whether the netdev's driver reports channels. Raises OSError."""
        if not is_running_kernel(root):
            return False
        try:
            found = ethtool.read_channels(setting.netdev)
        except OSError as error:
            if is_gone(root, setting, error):
                return False
            raise
        return found is not None and bool(found.counts)

    def read(self, root: Path, setting: Channels) -> str:
        """Return the netdev's present number of channels by kind. Raises OSError."""
        return setting.value(_channels(setting).counts)

    def write(self, root: Path, setting: Channels, value: str) -> None:
        """Set the netdev's number of channels of each kind that its driver supports. Raises OSError."""
        ethtool.set_channels(setting.netdev, dict.fromkeys(_channels(setting).maxima, 0) | setting.counts(value))


def _channels(setting: Channels) -> ethtool.Channels:
    if (found := ethtool.read_channels(setting.netdev)) is None:
        raise OSError(errno.EOPNOTSUPP, "the driver does not report its number of channels")
    return found
