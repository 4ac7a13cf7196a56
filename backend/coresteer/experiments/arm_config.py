"""Resolve an arm of an experiment to its workload, settings and policies. Pure.

An arm is one combination of levels, one level of each factor.
"""

from collections.abc import Iterator, Mapping

import msgspec

from coresteer.experiments.spec import Arm, Level, PolicyLevel, Spec
from coresteer_core.changes.guardrail import Guardrail
from coresteer_core.changes.plan import DesiredValue
from coresteer_core.experiments.model import Classes, Command, Workload
from coresteer_core.experiments.parallel_jobs import Bsp
from coresteer_core.metrics import GUARDRAIL_METRICS
from coresteer_core.node.view import View
from coresteer_core.settings import SettingError, parse_setting

NETDEV_PLACEHOLDER = "{netdev}"
"""Placeholder in keys for the netdev by which the load arrives; it may exist only during the experiment."""
_CHANGED_BY_POLICIES = ("coalesce/", "gro_flush_timeout", "napi_defer_hard_irqs")
"""Prefixes of the names of netdev and queue settings that policies change."""


def levels_of(spec: Spec, arm: Arm) -> list[Level]:
    """Return the arm's level of each factor."""
    return [factor.levels[level] for factor, level in zip(spec.factors, arm, strict=True)]


def workload_of(spec: Spec, arm: Arm) -> Workload:
    """Return the workload with the fields that the arm's levels override. Raises msgspec.ValidationError."""
    fields = msgspec.to_builtins(spec.workload)
    for level in levels_of(spec, arm):
        fields |= level.workload
    workload: Workload = msgspec.convert(fields, Workload)
    return workload


def desired_of(spec: Spec, arm: Arm, netdev: str) -> list[DesiredValue]:
    """Return the desired values of settings in the arm. netdev: replaces the placeholder."""
    return [
        DesiredValue(desired_value.key.replace(NETDEV_PLACEHOLDER, netdev), desired_value.value)
        for level in levels_of(spec, arm)
        for desired_value in level.settings
    ]


def policies_of(spec: Spec, arm: Arm) -> list[PolicyLevel]:
    """Return the policies that are in force in the arm of the experiment."""
    return [level.policy for level in levels_of(spec, arm) if level.policy is not None]


def node_guardrails(spec: Spec) -> list[Guardrail]:
    """Return the guardrails that the node itself watches: those on application metrics are the backend's."""
    return [guardrail for guardrail in spec.guardrails if guardrail.metric in GUARDRAIL_METRICS]


def runs_irqbalance(spec: Spec, arm: Arm) -> bool:
    """Return whether irqbalance runs in the arm of the experiment."""
    return any(level.irqbalance for level in levels_of(spec, arm))


def irqbalance_cpus(spec: Spec, arm: Arm) -> str:
    """Return the CPU list to which irqbalance is restricted in the arm of the experiment, empty for its own choice."""
    return next((level.irqbalance_cpus for level in levels_of(spec, arm) if level.irqbalance), "")


def warmup_s(spec: Spec, arm: Arm) -> float:
    """Return how long the arm's runs warm up under load, s, including the settling time of policies and irqbalance.

    A command settles before it starts, and is measured from its start.
    """
    settles = runs_irqbalance(spec, arm) or bool(policies_of(spec, arm))
    return (0.0 if isinstance(spec.workload, Command) else spec.warmup_s) + (spec.settle_s if settles else 0.0)


def measure_s(spec: Spec, arm: Arm) -> float:
    """Return how long the arm's runs are measured, s; at most, where the workload ends by itself."""
    workload = workload_of(spec, arm)
    return max(spec.measure_s, workload.limit_s) if isinstance(workload, Classes) else spec.measure_s


def runs_on_both_nodes(spec: Spec) -> bool:
    """Return whether the processes under test are on the peer too, as those of parallel jobs; so are then policies."""
    return isinstance(spec.workload, Bsp)


def changes_nothing(spec: Spec, arm: Arm | None = None) -> bool:
    """Return whether the arm (None: every arm) changes nothing on the node."""
    levels = [level for _, level in all_levels(spec)] if arm is None else levels_of(spec, arm)
    return not any(level.settings or level.policy or level.irqbalance for level in levels)


def all_levels(spec: Spec) -> Iterator[tuple[str, Level]]:
    """Yield every level of every factor, each with its path in the request (spec.factors[0].levels[1])."""
    for f, factor in enumerate(spec.factors):
        for n, level in enumerate(factor.levels):
            yield f"spec.factors[{f}].levels[{n}]", level


def netdev_keys(spec: Spec, netdev: str) -> list[str]:
    """Return the keys of settings that contain the netdev placeholder, in all arms, with the netdev in its place."""
    keys = {
        desired_value.key
        for _, level in all_levels(spec)
        for desired_value in level.settings
        if NETDEV_PLACEHOLDER in desired_value.key
    }
    return sorted(key.replace(NETDEV_PLACEHOLDER, netdev) for key in keys)


def compared_settings(spec: Spec, view: View) -> dict[str, str]:
    """Return the values of all settings that the experiment may change, by key; unknown ones are omitted.

    These are the settings of the levels and, with a policy or irqbalance, all settings that these may change except
    those of processes, which come and go.
    """
    keys = {
        desired_value.key
        for _, level in all_levels(spec)
        for desired_value in level.settings
        if NETDEV_PLACEHOLDER not in desired_value.key
    }
    if any(level.policy or level.irqbalance for _, level in all_levels(spec)):
        keys |= {f"irq/{irq.irq}/affinity" for irq in view.inventory.irqs if irq.movable}
        for netdev in view.inventory.netdevs:
            keys |= {f"netdev/{netdev.name}/{name}" for name in netdev.params if name.startswith(_CHANGED_BY_POLICIES)}
            keys |= {f"netdev/{netdev.name}/{queue.name}/rps" for queue in netdev.queues if queue.rps is not None}
        keys |= {f"cgroup/{path}/{name}" for path, weights in view.cgroups.items() for name in weights}
    return current_values(view, keys)


def current_values(view: View, keys: set[str] | Mapping[str, str] | list[str]) -> dict[str, str]:
    """Return the current values of settings, sorted by key; unknown ones are omitted."""
    found: dict[str, str] = {}
    for key in sorted(keys):
        try:
            value = parse_setting(key).current(view)
        except SettingError:  # the kernel allows names that keys do not, e.g. of an alias
            continue
        if value is not None:
            found[key] = value
    return found
