"""Coalescing of one queue through ethtool, and when the kernel polls it through netlink.

A captured tree has neither.
"""

import errno
from pathlib import Path

from coresteer_agent.apply.netdev_common import explain, owners
from coresteer_agent.collect.irq import is_running_kernel
from coresteer_agent.linux import ethtool_params, napi
from coresteer_core.settings import QueueParam
from coresteer_core.settings.params import IN_SYSFS

__all__ = ["attainable", "exists", "explain", "owners", "read", "write"]

_ABSENT = (errno.ENODEV, errno.ENOENT, errno.EOPNOTSUPP)
"""Of the netdev; of the queue; of the message before Linux 6.8, or of the queue's NAPI."""


def exists(root: Path, setting: QueueParam) -> bool:
    """Whether the queue has its own. Raises OSError."""
    try:
        return is_running_kernel(root) and setting.param in _now(setting)
    except OSError as error:
        if error.errno in _ABSENT:
            return False
        raise


def read(root: Path, setting: QueueParam) -> str:
    """The value. Raises OSError."""
    if (value := _now(setting).get(setting.param)) is None:
        raise OSError(errno.EOPNOTSUPP, "the driver does not tell it")
    return value


def write(root: Path, setting: QueueParam, value: str) -> None:
    """Make it stand. Raises OSError."""
    if setting.param in IN_SYSFS:
        napi.set_param(napi.napi_of(setting.netdev, setting.queue), setting.param, value)
    else:
        ethtool_params.set_queue_param(setting.netdev, setting.queue, setting.param, value)


def attainable(root: Path, setting: QueueParam, value: str) -> str:
    """The value itself."""
    return value


def _now(setting: QueueParam) -> dict[str, str]:
    if setting.param in IN_SYSFS:
        return napi.params(napi.napi_of(setting.netdev, setting.queue))
    has = ethtool_params.params(setting.netdev).values
    own = ethtool_params.queue_params(setting.netdev, [setting.queue]).get(setting.queue, {})
    return {name: value for name, value in own.items() if name in has}
