"""Reads netdevs through ethtool: channels, RSS, interrupt coalescing, ring sizes, ntuple, flow rules and firmware."""

import errno
import logging
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from coresteer_agent.collect.errors import ParseError
from coresteer_agent.collect.files import read_bytes, real_path
from coresteer_agent.collect.irq import is_running_kernel
from coresteer_agent.collect.netdev import NETDEV_FOLDER, read_ifindex
from coresteer_agent.linux import ethtool, ethtool_params, features, flow_rules, rss_contexts
from coresteer_agent.observe.queues import ParamValue, queue_names
from coresteer_core.bounds import Name
from coresteer_core.node.inventory import MAX_RSS_CONTEXTS, FlowRule, FlowRuleTable, RssContext
from coresteer_core.settings import Channels, RssTable
from coresteer_core.settings.params import PARAMS

_log = logging.getLogger(__name__)

T = TypeVar("T")

ETHTOOL_PATH = "ethtool.json"
"""File of a captured tree with ethtool's answers, as read_ethtool_settings() returns them."""


class EthtoolSettings(Struct, frozen=True):
    """Settings of a netdev through ethtool, as in Netdev; None or empty if absent or unknown. queues: by queue name."""

    channels: str | None = None
    channels_max: str | None = None
    rss: str | None = None
    params: dict[str, ParamValue] = {}
    params_max: dict[str, ParamValue] = {}
    queues: dict[str, dict[str, ParamValue]] = {}
    firmware: Name | None = None
    rss_entries: int | None = None
    flow_rules: FlowRuleTable | None = None
    rss_contexts: list[RssContext] | None = None


def read_ethtool_settings(
    root: Path, netdevs: list[str], before: Mapping[str, EthtoolSettings] | None = None
) -> dict[str, EthtoolSettings]:
    """Return each netdev's ethtool settings; for a captured tree those at its capture.

    RSS is read of netdevs with several receive queues only. before: of the last read. All settings of a netdev that its
    driver restarts, and flow rules that cannot be read, are those in it, with flow rules incomplete. Raises ParseError
    for an invalid file.
    """
    if is_running_kernel(root):
        known = before or {}
        return {netdev: _read_ethtool(root, netdev, known.get(netdev, EthtoolSettings())) for netdev in netdevs}
    try:
        return msgspec.json.decode(read_bytes(root, ETHTOOL_PATH) or b"{}", type=dict[str, EthtoolSettings])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ParseError(ETHTOOL_PATH, None, f"{error}.") from None


def _read_ethtool(root: Path, netdev: str, before: EthtoolSettings) -> EthtoolSettings:
    channels = None
    try:
        channels = ethtool.read_channels(netdev)
    except OSError as error:
        _log.debug("The channels of netdev %s cannot be read: %s.", netdev, error.strerror)
        if error.errno == errno.ENODEV and read_ifindex(root, netdev) is not None:  # its driver restarts it
            return replace(before, flow_rules=_incomplete(before.flow_rules))
    has_several_queues = real_path(root, f"{NETDEV_FOLDER}/{netdev}/queues/rx-1") is not None
    rss = _read_or_none(netdev, lambda: ethtool.read_rss(netdev)) if has_several_queues else None
    params = _read_or_none(netdev, lambda: ethtool_params.read_params(netdev)) or ethtool_params.Params({}, {})
    ntuple = _read_or_none(netdev, lambda: features.read_ntuple(netdev))
    return EthtoolSettings(
        Channels.value(channels.counts) or None if channels is not None else None,
        Channels.value(channels.maxima) or None if channels is not None else None,
        RssTable.pattern(rss.table) if rss is not None else None,
        params.values | ({"ntuple": ntuple} if ntuple is not None else {}),
        params.maxima,
        _read_queue_params(root, netdev, params.values) if params.values else {},
        _read_or_none(netdev, lambda: ethtool.read_firmware(netdev)),
        len(rss.table) if rss is not None else None,
        _read_flow_rules(netdev, before.flow_rules),
        _read_or_none(netdev, lambda: _read_rss_contexts(netdev)) if rss is not None else None,
    )


def _read_rss_contexts(netdev: str) -> list[RssContext] | None:
    tables = rss_contexts.read_contexts(netdev)
    if tables is None:
        return None
    found = [RssContext(number, RssTable.pattern(table)) for number, table in sorted(tables.items()) if table]
    return found[:MAX_RSS_CONTEXTS]


def _read_flow_rules(netdev: str, before: FlowRuleTable | None = None) -> FlowRuleTable | None:
    try:
        table = flow_rules.read_table(netdev)
    except OSError as error:
        _log.debug("The flow rules of netdev %s cannot be read: %s.", netdev, error.strerror)
        return _incomplete(before)
    if table is None:
        return None
    rules = [FlowRule(at, "") if rule is None else rule.row(at) for at, rule in table.rules.items()]
    return FlowRuleTable(table.size, rules, table.complete)


def _incomplete(table: FlowRuleTable | None) -> FlowRuleTable | None:
    return None if table is None else replace(table, complete=False)


def _read_queue_params(root: Path, netdev: str, names: Container[str]) -> dict[str, dict[str, str]]:
    """Return coalescing parameters by queue name, for drivers that have them per queue.

    Limited to those of the queue's direction.
    """
    queues = queue_names(root, netdev)
    numbers = sorted({int(queue.partition("-")[2]) for queue in queues})
    by_number = _read_or_none(netdev, lambda: ethtool_params.read_queue_params(netdev, numbers)) or {}
    found: dict[str, dict[str, str]] = {}
    for queue in queues if by_number else []:
        direction, _, number = queue.partition("-")
        values = by_number.get(int(number), {})
        found[queue] = {
            name: value for name, value in values.items() if name in names and PARAMS[name].queue == direction
        }
    return found


def _read_or_none(netdev: str, read: Callable[[], T]) -> T | None:
    try:
        return read()
    except OSError as error:
        _log.debug("An ethtool request for netdev %s failed: %s.", netdev, error.strerror)
        return None
