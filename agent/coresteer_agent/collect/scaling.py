"""How a netdev's packets are spread over its queues, as the settings of these names have it."""

import logging
from pathlib import Path

from msgspec import Struct

from coresteer_agent import ethtool
from coresteer_agent.collect.irq import is_running_kernel
from coresteer_core.settings import Channels, RssTable

_log = logging.getLogger(__name__)


class Scaling(Struct, frozen=True):
    """None where the netdev has none or it is not known."""

    channels: str | None = None
    channels_max: str | None = None
    rss: str | None = None


def read_scaling(root: Path, netdev: str, queues: list[str]) -> Scaling:
    """What ethtool says; nothing of a captured tree. A netdev with one receive queue has nothing to spread."""
    if not is_running_kernel(root):
        return Scaling()
    try:
        channels = ethtool.channels(netdev)
        rss = ethtool.rss(netdev) if "rx-1" in queues else None
    except OSError as error:
        _log.debug("How %s spreads packets is not known: %s.", netdev, error.strerror)
        return Scaling()
    return Scaling(
        Channels.value(channels.counts) or None if channels is not None else None,
        Channels.value(channels.maxima) or None if channels is not None else None,
        RssTable.pattern(rss.table) if rss is not None else None,
    )
