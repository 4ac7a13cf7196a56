"""Registry of handlers: maps each kind of setting to the handler that reads and writes it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any  # Any: a handler takes only settings of its own kind

from coresteer_agent.apply.cgroup_weight import CgroupWeightHandler
from coresteer_agent.apply.channels import ChannelsHandler
from coresteer_agent.apply.cpuset_file import CpusetHandler
from coresteer_agent.apply.flow_rule import FlowRuleHandler
from coresteer_agent.apply.handler import Error, Explanation, Handler
from coresteer_agent.apply.irq_affinity import IrqAffinityHandler
from coresteer_agent.apply.kernel_parameter import KernelParameterHandler
from coresteer_agent.apply.memory_nodes import MemoryNodesHandler
from coresteer_agent.apply.netdev_params import NetdevParamHandler
from coresteer_agent.apply.queue_cpus import QueueCpusHandler
from coresteer_agent.apply.queue_params import QueueParamHandler
from coresteer_agent.apply.rss_context import RssContextHandler
from coresteer_agent.apply.rss_table import RssTableHandler
from coresteer_agent.apply.task_affinity import TaskAffinityHandler
from coresteer_agent.apply.task_nice import TaskNiceHandler
from coresteer_core import settings
from coresteer_core.node.view import View
from coresteer_core.settings import Setting

HANDLERS: dict[type[Setting], Handler[Any]] = {
    settings.IrqAffinity: IrqAffinityHandler(),
    settings.TaskAffinity: TaskAffinityHandler(),
    settings.TaskNice: TaskNiceHandler(),
    settings.TaskMemoryNodes: MemoryNodesHandler(),
    settings.CgroupWeight: CgroupWeightHandler(),
    settings.CpusetCpus: CpusetHandler(),
    settings.CpusetMems: CpusetHandler(),
    settings.Rps: QueueCpusHandler(),
    settings.Xps: QueueCpusHandler(),
    settings.RssTable: RssTableHandler(),
    settings.Channels: ChannelsHandler(),
    settings.FlowRuleSlot: FlowRuleHandler(),
    settings.RssContextTable: RssContextHandler(),
    settings.NetdevParam: NetdevParamHandler(),
    settings.QueueParam: QueueParamHandler(),
    settings.KernelParameter: KernelParameterHandler(),
}
"""The handler of every kind in ``coresteer_core.settings.KINDS``."""


class Tunable:
    """One setting of one machine, accessed through a handler.

    root: ``/`` or a captured tree. handler: None for the handler of the setting's kind.
    """

    def __init__(self, root: Path, setting: Setting, handler: Handler[Any] | None = None) -> None:
        self._root = root
        self._setting = setting
        self._handler = handler or HANDLERS[type(setting)]

    def exists(self) -> bool:
        """Return whether the node has the setting. Raises OSError."""
        return self._handler.exists(self._root, self._setting)

    def read(self) -> str:
        """Return the setting's present value. Raises OSError or SettingError."""
        return self._handler.read(self._root, self._setting)

    def write(self, value: str) -> None:
        """Write a value to the setting. Raises OSError or ReadOnlyModeError."""
        self._handler.write(self._root, self._setting, value)

    def write_in_steps(self, value: str) -> Iterator[None]:
        """Write a value and pause after each part of a write that takes long. Raises as write() does."""
        return self._handler.write_in_steps(self._root, self._setting, value)

    def attainable(self, value: str) -> str:
        """Return the value that read() will return after this value is written."""
        return self._handler.attainable(self._root, self._setting, value)

    def owners(self) -> list[str]:
        """Return the identity of the setting's device or process; empty if unknown."""
        return self._handler.owners(self._root, self._setting)

    def refresh(self, view: View) -> View:
        """Return the View with the setting's data read again for the guard."""
        return self._handler.refresh(self._root, self._setting, view)

    def explain(self, error: Error) -> Explanation:
        """Return the outcome (refused or failed) and a sentence for the error of a failed write."""
        return self._handler.explain(error, self._root)
