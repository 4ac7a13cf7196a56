"""Coalescing and rings of a netdev through ethtool, and when the kernel polls it: ``/sys/class/net/NAME/FILE``.

A captured tree has only the files.
"""

import errno
from pathlib import Path

from coresteer_agent.apply import rooted
from coresteer_agent.apply.netdev_common import NetdevHandler
from coresteer_agent.collect.irq import is_running_kernel
from coresteer_agent.linux import ethtool_params
from coresteer_core.settings import NetdevParam
from coresteer_core.settings.params import IN_SYSFS


class NetdevParamHandler(NetdevHandler[NetdevParam]):
    """Reads and writes a parameter of a netdev as a whole."""

    def exists(self, root: Path, setting: NetdevParam) -> bool:
        """Return whether the netdev has it. Raises OSError."""
        try:
            if setting.param in IN_SYSFS:
                return rooted.exists(root, _path(root, setting))
            return is_running_kernel(root) and setting.param in ethtool_params.params(setting.netdev).values
        except OSError as error:
            if error.errno in (errno.ENODEV, errno.ENOENT):
                return False
            raise

    def read(self, root: Path, setting: NetdevParam) -> str:
        """Return the value. Raises OSError, or SettingError for a text that is none."""
        if setting.param in IN_SYSFS:
            return setting.canonical(rooted.read_text(root, _path(root, setting)))
        values = ethtool_params.params(setting.netdev).values
        if setting.param not in values:
            raise OSError(errno.EOPNOTSUPP, "the driver does not report it")
        return values[setting.param]

    def write(self, root: Path, setting: NetdevParam, value: str) -> None:
        """Set a value. Raises OSError or rooted.ReadOnlyModeError."""
        if setting.param in IN_SYSFS:
            rooted.write_text(root, _path(root, setting), f"{value}\n")
        else:
            ethtool_params.set_param(setting.netdev, setting.param, value)


def _path(root: Path, setting: NetdevParam) -> str:
    return f"{rooted.netdev_folder(root, setting.netdev)}/{setting.param}"
