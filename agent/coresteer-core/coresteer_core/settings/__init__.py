"""Everything Coresteer can change, as keys and values. What is not a Setting here cannot be touched.

A kind of Setting is a frozen Struct with the methods of IrqAffinity, a name in Setting and a line in _KINDS.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import TypeAlias

from coresteer_core.settings.base import SettingError
from coresteer_core.settings.cgroup import WEIGHTS, CgroupWeight
from coresteer_core.settings.irq import IrqAffinity
from coresteer_core.settings.netdev import Channels, RssTable
from coresteer_core.settings.params import PARAMS, NetdevParam, QueueParam
from coresteer_core.settings.queue import Rps, Xps
from coresteer_core.settings.task import TaskAffinity, TaskNice

__all__ = [
    "CgroupWeight",
    "Channels",
    "IrqAffinity",
    "NetdevParam",
    "QueueParam",
    "Rps",
    "RssTable",
    "Setting",
    "SettingError",
    "TaskAffinity",
    "TaskNice",
    "Xps",
    "parse_setting",
]

Setting: TypeAlias = (
    IrqAffinity | TaskAffinity | TaskNice | CgroupWeight | Rps | Xps | RssTable | Channels | NetdevParam | QueueParam
)
"""A union of every kind of Setting."""

_NUMBER = r"(0|[1-9]\d{0,6})"
_NETDEV = r"netdev/([A-Za-z0-9_][A-Za-z0-9_.@+-]{0,14})"
_QUEUE = r"(0|[1-9]\d{0,4})"
_GROUP = r"((?:(?!\.\.?/)[ -.0-~]{1,255}/){1,32})"
"""Folders below the root cgroup, which has no weight of its own."""
_WEIGHT = "|".join(map(re.escape, WEIGHTS))
_PARAM = "|".join(PARAMS)
_RX_PARAM, _TX_PARAM = ("|".join(p.name for p in PARAMS.values() if p.queue == way) for way in ("rx", "tx"))

_KINDS: list[tuple[str, str, Callable[[re.Match[str]], Setting]]] = [
    ("irq/NUMBER/affinity", rf"irq/{_NUMBER}/affinity", lambda m: IrqAffinity(int(m[1]))),
    ("task/PID/affinity", r"task/([1-9]\d{0,6})/affinity", lambda m: TaskAffinity(int(m[1]))),
    ("task/PID/nice", r"task/([1-9]\d{0,6})/nice", lambda m: TaskNice(int(m[1]))),
    ("cgroup/PATH/WEIGHT", rf"cgroup/{_GROUP}({_WEIGHT})", lambda m: CgroupWeight(m[1][:-1], m[2])),
    ("netdev/NAME/rx-NUMBER/rps", rf"{_NETDEV}/rx-{_QUEUE}/rps", lambda m: Rps(m[1], int(m[2]))),
    ("netdev/NAME/tx-NUMBER/xps", rf"{_NETDEV}/tx-{_QUEUE}/xps", lambda m: Xps(m[1], int(m[2]))),
    ("netdev/NAME/rss", rf"{_NETDEV}/rss", lambda m: RssTable(m[1])),
    ("netdev/NAME/channels", rf"{_NETDEV}/channels", lambda m: Channels(m[1])),
    ("netdev/NAME/PARAM", rf"{_NETDEV}/({_PARAM})", lambda m: NetdevParam(m[1], m[2])),
    ("netdev/NAME/rx-NUMBER/PARAM", rf"{_NETDEV}/(rx-{_QUEUE})/({_RX_PARAM})", lambda m: QueueParam(m[1], m[4], m[2])),
    ("netdev/NAME/tx-NUMBER/PARAM", rf"{_NETDEV}/(tx-{_QUEUE})/({_TX_PARAM})", lambda m: QueueParam(m[1], m[4], m[2])),
]
_PATTERNS = [(re.compile(rf"{pattern}\Z", re.ASCII), make) for _, pattern, make in _KINDS]


def parse_setting(key: str) -> Setting:
    """The Setting that a key addresses. Raises SettingError with the kinds there are."""
    return _parsed(key)


@lru_cache(maxsize=2048)  # a round of policies asks again and again for the same
def _parsed(key: str) -> Setting:
    for pattern, make in _PATTERNS:
        if match := pattern.match(key):
            return make(match)
    known = ", ".join(form for form, _, _ in _KINDS)
    raise SettingError(
        f"“{key[:60]}” is not a setting Coresteer knows; it knows {known}; "
        f"PARAM is {', '.join(PARAMS)}; WEIGHT is {', '.join(WEIGHTS)}."
    )
