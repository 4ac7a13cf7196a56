"""How a netdev's packets are spread over its queues, as the settings of these names have it."""

import logging
from pathlib import Path

import msgspec
from msgspec import Struct

from coresteer_agent import ethtool
from coresteer_agent.collect.errors import ParseError
from coresteer_agent.collect.files import read_bytes, real_path
from coresteer_agent.collect.irq import is_running_kernel
from coresteer_agent.collect.netdev import CLASS
from coresteer_core.settings import Channels, RssTable

_log = logging.getLogger(__name__)

SCALING_PATH = "ethtool.json"
"""Where a captured tree has what ethtool said, as read_scaling() returns it."""


class Scaling(Struct, frozen=True):
    """None where the netdev has none or it is not known."""

    channels: str | None = None
    channels_max: str | None = None
    rss: str | None = None


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
    try:
        channels = ethtool.channels(netdev)
        rss = ethtool.rss(netdev) if real_path(root, f"{CLASS}/{netdev}/queues/rx-1") is not None else None
    except OSError as error:
        _log.debug("How %s spreads packets is not known: %s.", netdev, error.strerror)
        return Scaling()
    return Scaling(
        Channels.value(channels.counts) or None if channels is not None else None,
        Channels.value(channels.maxima) or None if channels is not None else None,
        RssTable.pattern(rss.table) if rss is not None else None,
    )
