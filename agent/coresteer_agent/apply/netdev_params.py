"""Reads and writes parameters of a whole netdev: coalescing, rings and ntuple (ethtool), files of /sys/class/net/NAME.

A captured tree has only the files.
"""

import errno
from pathlib import Path

from coresteer_agent.apply import rooted
from coresteer_agent.apply.netdev_common import NetdevHandler, is_gone
from coresteer_agent.collect.irq import is_running_kernel
from coresteer_agent.linux import ethtool_params, features, flow_rules
from coresteer_core.settings import NetdevParam
from coresteer_core.settings.params import NETDEV_FILES


class NetdevParamHandler(NetdevHandler[NetdevParam]):
    """Reads and writes a parameter of a whole netdev."""

    def exists(self, root: Path, setting: NetdevParam) -> bool:
        """Return whether the netdev has this parameter. Raises OSError."""
        try:
            if setting.param in NETDEV_FILES:
                return rooted.exists(root, _path(root, setting))
            return is_running_kernel(root) and _ethtool_value(setting) is not None
        except OSError as error:
            if error.errno == errno.ENOENT or is_gone(root, setting, error):
                return False
            raise

    def read(self, root: Path, setting: NetdevParam) -> str:
        """Return the parameter's value. Raises OSError, or SettingError for invalid text."""
        if setting.param in NETDEV_FILES:
            return setting.canonical(rooted.read_text(root, _path(root, setting)))
        if (value := _ethtool_value(setting)) is None:
            raise OSError(errno.EOPNOTSUPP, "the driver does not report this parameter")
        return value

    def write(self, root: Path, setting: NetdevParam, value: str) -> None:
        """Set the netdev's parameter. Raises OSError or rooted.ReadOnlyModeError."""
        if setting.param in NETDEV_FILES:
            rooted.write_text(root, _path(root, setting), f"{value}\n")
        elif setting.param == "ntuple":
            found = flow_rules.read_locations(setting.netdev) if value == "off" else None
            if found is not None and found[1]:  # off removes them, also another program's
                raise OSError(errno.EBUSY, "the NIC has flow rules, which this would remove; delete them first")
            features.set_ntuple(setting.netdev, on=value == "on")
        else:
            ethtool_params.set_param(setting.netdev, setting.param, value)


def _ethtool_value(setting: NetdevParam) -> str | None:
    if setting.param == "ntuple":
        return features.read_ntuple(setting.netdev)
    return ethtool_params.read_params(setting.netdev).values.get(setting.param)


def _path(root: Path, setting: NetdevParam) -> str:
    return f"{rooted.netdev_folder(root, setting.netdev)}/{setting.path}"
