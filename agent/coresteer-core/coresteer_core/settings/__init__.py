"""Registry of the kinds of settings. Only settings of these kinds can be written.

A kind is a subclass of Setting in a module of its own, listed once in KINDS.
"""

import re
from functools import lru_cache

from coresteer_core.settings.base import KeyForm, Setting, SettingError
from coresteer_core.settings.cgroup import CgroupWeight
from coresteer_core.settings.cpusets import CpusetCpus, CpusetMems
from coresteer_core.settings.flow_rule import FlowRuleSlot
from coresteer_core.settings.irq import IrqAffinity
from coresteer_core.settings.kernel import KernelParameter
from coresteer_core.settings.location import MachineLocation
from coresteer_core.settings.memory_nodes import TaskMemoryNodes
from coresteer_core.settings.netdev import Channels, RssTable
from coresteer_core.settings.params import NetdevParam, QueueParam
from coresteer_core.settings.queue import Rps, Xps
from coresteer_core.settings.rss_context import RssContextTable
from coresteer_core.settings.task import TaskAffinity, TaskNice

__all__ = [
    "KINDS",
    "MACHINE_SETTINGS",
    "CgroupWeight",
    "Channels",
    "CpusetCpus",
    "CpusetMems",
    "FlowRuleSlot",
    "IrqAffinity",
    "KernelParameter",
    "NetdevParam",
    "QueueParam",
    "Rps",
    "RssContextTable",
    "RssTable",
    "Setting",
    "SettingError",
    "TaskAffinity",
    "TaskMemoryNodes",
    "TaskNice",
    "Xps",
    "parse_setting",
]

KINDS: tuple[type[Setting], ...] = (
    IrqAffinity,
    TaskAffinity,
    TaskNice,
    TaskMemoryNodes,
    CgroupWeight,
    CpusetCpus,
    CpusetMems,
    Rps,
    Xps,
    RssTable,
    Channels,
    FlowRuleSlot,
    RssContextTable,
    NetdevParam,
    QueueParam,
    KernelParameter,
)
"""Every kind of setting; all other layers iterate over this tuple."""

_EXAMPLES = [example for kind in KINDS for example in kind.examples()]

MACHINE_SETTINGS = {example.key: example for example in _EXAMPLES if isinstance(example.location, MachineLocation)}
"""Settings of the machine as a whole (sysctl) by key; a View has their values in ``Inventory.settings``."""

_FORMS: dict[str, list[tuple[re.Pattern[str], KeyForm]]] = {}
for _kind in KINDS:
    for _form in _kind.forms:
        _compiled = re.compile(rf"{_form.pattern}\Z", re.ASCII)
        _FORMS.setdefault(_form.pattern.partition("/")[0], []).append((_compiled, _form))


def parse_setting(key: str) -> Setting:
    """Return the setting that a key such as ``irq/41/affinity`` addresses. Raises SettingError for an unknown key."""
    return _parsed(key)


@lru_cache(maxsize=2048)  # a round of policies repeats the same keys
def _parsed(key: str) -> Setting:
    for pattern, form in _FORMS.get(key.partition("/")[0], ()):
        if match := pattern.match(key):
            return form.make(match)
    known = ", ".join(form.syntax for kind in KINDS for form in kind.forms)
    placeholders = {name: values for kind in KINDS for name, values in kind.placeholders.items()}
    explained = "".join(f"; {name} is {', '.join(values)}" for name, values in placeholders.items())
    raise SettingError(f"“{key[:60]}” is not a setting Coresteer knows; it knows {known}{explained}.")
