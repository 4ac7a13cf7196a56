"""What ethtool says of a netdev: how its packets are spread over its queues, its coalescing and its rings."""

import logging
from collections.abc import Callable, Container
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from coresteer_agent.collect.errors import ParseError
from coresteer_agent.collect.files import read_bytes, real_path
from coresteer_agent.collect.irq import is_running_kernel
from coresteer_agent.collect.netdev import CLASS
from coresteer_agent.linux import ethtool, ethtool_params
from coresteer_agent.observe.queues import ParamValue, queue_names
from coresteer_core.settings import Channels, RssTable
from coresteer_core.settings.params import PARAMS

_log = logging.getLogger(__name__)

T = TypeVar("T")

SCALING_PATH = "ethtool.json"
"""Where a captured tree has what ethtool said, as read_scaling() returns it."""


class Scaling(Struct, frozen=True):
    """None or empty where the netdev has none or it is not known. As in Netdev; queues: their params by name."""

    channels: str | None = None
    channels_max: str | None = None
    rss: str | None = None
    params: dict[str, ParamValue] = {}
    params_max: dict[str, ParamValue] = {}
    queues: dict[str, dict[str, ParamValue]] = {}


def read_scaling(root: Path, netdevs: list[str]) -> dict[str, Scaling]:
    """By netdev, what ethtool says; of a captured tree, what it said. Raises ParseError for a file that makes no sense.

    A netdev with one receive queue has nothing to spread.
    """
    if is_running_kernel(root):
        return {netdev: _ask(root, netdev) for netdev in netdevs}
    try:
        return msgspec.json.decode(read_bytes(root, SCALING_PATH) or b"{}", type=dict[str, Scaling])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ParseError(SCALING_PATH, None, f"{error}.") from None


def _ask(root: Path, netdev: str) -> Scaling:
    channels = _known(netdev, lambda: ethtool.channels(netdev))
    several = real_path(root, f"{CLASS}/{netdev}/queues/rx-1") is not None
    rss = _known(netdev, lambda: ethtool.rss(netdev)) if several else None
    params = _known(netdev, lambda: ethtool_params.params(netdev)) or ethtool_params.Params({}, {})
    return Scaling(
        Channels.value(channels.counts) or None if channels is not None else None,
        Channels.value(channels.maxima) or None if channels is not None else None,
        RssTable.pattern(rss.table) if rss is not None else None,
        params.values,
        params.maxima,
        _of_queues(root, netdev, params.values) if params.values else {},
    )


def _of_queues(root: Path, netdev: str, has: Container[str]) -> dict[str, dict[str, str]]:
    """The coalescing of each queue, where queues have their own: those of the netdev's that are about its direction."""
    queues = queue_names(root, netdev)
    numbers = sorted({int(queue.partition("-")[2]) for queue in queues})
    told = _known(netdev, lambda: ethtool_params.queue_params(netdev, numbers)) or {}
    found: dict[str, dict[str, str]] = {}
    for queue in queues if told else []:
        way, _, number = queue.partition("-")
        values = told.get(int(number), {})
        found[queue] = {name: value for name, value in values.items() if name in has and PARAMS[name].queue == way}
    return found


def _known(netdev: str, read: Callable[[], T]) -> T | None:
    try:
        return read()
    except OSError as error:
        _log.debug("Something of what ethtool says of %s is not known: %s.", netdev, error.strerror)
        return None
