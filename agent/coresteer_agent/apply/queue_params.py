"""Reads and writes one queue's coalescing (ethtool), NAPI polling (netlink) and RFS (a file).

A captured tree has only the file. Kernel: net/core/net-sysfs.c, store_rps_dev_flow_table_cnt().
"""

import errno
from contextlib import suppress
from pathlib import Path

from coresteer_agent.apply import rooted
from coresteer_agent.apply.netdev_common import NetdevHandler, is_gone
from coresteer_agent.collect.irq import is_running_kernel
from coresteer_agent.linux import ethtool_params, napi
from coresteer_core.settings import QueueParam
from coresteer_core.settings.params import NAPI_PARAMS, QUEUE_FILES

_ABSENT = (errno.ENOENT, errno.EOPNOTSUPP)
"""Errors for: no such queue, or its netdev is down; no such message before Linux 6.8, or no NAPI of the queue."""


class QueueParamHandler(NetdevHandler[QueueParam]):
    """Reads and writes a parameter of one queue."""

    def exists(self, root: Path, setting: QueueParam) -> bool:
        """Return whether the queue has this parameter separately from its netdev. Raises OSError."""
        try:
            if setting.param in QUEUE_FILES:
                return rooted.exists(root, _path(root, setting))
            return is_running_kernel(root) and setting.param in _values(setting)
        except OSError as error:
            is_down = error.errno == errno.ENOENT and setting.param in NAPI_PARAMS and _has_queue(root, setting)
            if (error.errno in _ABSENT and not is_down) or is_gone(root, setting, error):
                return False
            raise

    def read(self, root: Path, setting: QueueParam) -> str:
        """Return the value of the queue's parameter. Raises OSError, or SettingError for invalid text."""
        if setting.param in QUEUE_FILES:
            return setting.canonical(rooted.read_text(root, _path(root, setting)))
        if (value := _values(setting).get(setting.param)) is None:
            raise OSError(errno.EOPNOTSUPP, "the driver does not report this parameter for a single queue")
        return value

    def write(self, root: Path, setting: QueueParam, value: str) -> None:
        """Set the queue's parameter. Raises OSError or rooted.ReadOnlyModeError."""
        if setting.param in QUEUE_FILES:
            rooted.write_text(root, _path(root, setting), f"{value}\n")
        elif setting.param in NAPI_PARAMS:
            napi.set_param(napi.read_napi_id(setting.netdev, setting.queue), setting.param, value)
        else:
            ethtool_params.set_queue_param(setting.netdev, setting.queue, setting.param, value)


def _has_queue(root: Path, setting: QueueParam) -> bool:
    with suppress(FileNotFoundError):
        return rooted.exists(root, f"{rooted.netdev_folder(root, setting.netdev)}/queues/{setting.queue_name}")
    return False


def _path(root: Path, setting: QueueParam) -> str:
    return f"{rooted.netdev_folder(root, setting.netdev)}/{setting.path}"


def _values(setting: QueueParam) -> dict[str, str]:
    if setting.param in NAPI_PARAMS:
        return napi.read_params(napi.read_napi_id(setting.netdev, setting.queue))
    has = ethtool_params.read_params(setting.netdev).values
    own = ethtool_params.read_queue_params(setting.netdev, [setting.queue]).get(setting.queue, {})
    return {name: value for name, value in own.items() if name in has}
