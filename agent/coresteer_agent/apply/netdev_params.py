"""Reads and writes a netdev's coalescing and ring parameters (ethtool), and its polling in ``/sys/class/net/NAME``.

A captured tree has only the files.
"""

import errno
from pathlib import Path

from coresteer_agent.apply import rooted
from coresteer_agent.apply.netdev_common import NetdevHandler
from coresteer_agent.collect.irq import is_running_kernel
from coresteer_agent.linux import ethtool_params
from coresteer_core.settings import NetdevParam
from coresteer_core.settings.params import NAPI_PARAMS


class NetdevParamHandler(NetdevHandler[NetdevParam]):
    """Reads and writes a coalescing, ring or polling parameter of a whole netdev."""

    def exists(self, root: Path, setting: NetdevParam) -> bool:
        """Return whether the netdev has this parameter. Raises OSError."""
        try:
            if setting.param in NAPI_PARAMS:
                return rooted.exists(root, _path(root, setting))
            return is_running_kernel(root) and setting.param in ethtool_params.read_params(setting.netdev).values
        except OSError as error:
            if error.errno in (errno.ENODEV, errno.ENOENT):
                return False
            raise

    def read(self, root: Path, setting: NetdevParam) -> str:
        """Return the parameter's value. Raises OSError, or SettingError for invalid text."""
        if setting.param in NAPI_PARAMS:
            return setting.canonical(rooted.read_text(root, _path(root, setting)))
        values = ethtool_params.read_params(setting.netdev).values
        if setting.param not in values:
            raise OSError(errno.EOPNOTSUPP, "the driver does not report this parameter")
        return values[setting.param]

    def write(self, root: Path, setting: NetdevParam, value: str) -> None:
        """Set the netdev's parameter. Raises OSError or rooted.ReadOnlyModeError."""
        if setting.param in NAPI_PARAMS:
            rooted.write_text(root, _path(root, setting), f"{value}\n")
        else:
            ethtool_params.set_param(setting.netdev, setting.param, value)


def _path(root: Path, setting: NetdevParam) -> str:
    return f"{rooted.netdev_folder(root, setting.netdev)}/{setting.param}"
