"""What an arm of an experiment means for the node: its workload, its settings, its policies. Pure."""

from collections.abc import Iterator, Mapping

import msgspec

from coresteer.experiments.spec import Arm, Level, PolicyLevel, Spec
from coresteer_core.changes.plan import DesiredValue
from coresteer_core.experiments.model import Classes, Command, Observe, Workload
from coresteer_core.node.view import View
from coresteer_core.settings import SettingError, parse_setting

NETDEV = "{netdev}"
"""Stands in keys for the netdev under which the load arrives, which may be there only while the experiment runs."""
_STEERED = ("coalesce/", "gro_flush_timeout", "napi_defer_hard_irqs")
"""Names of settings of netdevs and queues that policies change."""


def levels_of(spec: Spec, arm: Arm) -> list[Level]:
    """The arm's level of each factor."""
    return [factor.levels[place] for factor, place in zip(spec.factors, arm, strict=True)]


def workload_of(spec: Spec, arm: Arm) -> Workload:
    """The workload with what the arm's levels have otherwise. Raises msgspec.ValidationError."""
    fields = msgspec.to_builtins(spec.workload)
    for level in levels_of(spec, arm):
        fields |= level.workload
    workload: Workload = msgspec.convert(fields, Workload)
    return workload


def desired_of(spec: Spec, arm: Arm, netdev: str) -> list[DesiredValue]:
    """The settings of the arm. netdev: in the place of the placeholder."""
    return [
        DesiredValue(desired_value.key.replace(NETDEV, netdev), desired_value.value)
        for level in levels_of(spec, arm)
        for desired_value in level.settings
    ]


def policies_of(spec: Spec, arm: Arm) -> list[PolicyLevel]:
    """The policies that are in force in the arm."""
    return [level.policy for level in levels_of(spec, arm) if level.policy is not None]


def has_irqbalance(spec: Spec, arm: Arm) -> bool:
    """Whether irqbalance runs in the arm."""
    return any(level.irqbalance for level in levels_of(spec, arm))


def warmup_s(spec: Spec, arm: Arm) -> float:
    """Of the arm's runs, under load; what decides by itself gets its time to settle then."""
    settles = has_irqbalance(spec, arm) or bool(policies_of(spec, arm))
    return spec.warmup_s + (spec.settle_s if settles else 0.0)


def has_two_ends(workload: Workload) -> bool:
    """Whether it is traffic between a server and a client."""
    return not isinstance(workload, Classes | Observe | Command)


def is_as_it_is(spec: Spec, arm: Arm) -> bool:
    """Whether the arm changes nothing on the node."""
    return not any(level.settings or level.policy or level.irqbalance for level in levels_of(spec, arm))


def every_level(spec: Spec) -> Iterator[tuple[str, Level]]:
    """All levels, each with its path in the request."""
    for f, factor in enumerate(spec.factors):
        for n, level in enumerate(factor.levels):
            yield f"spec.factors[{f}].levels[{n}]", level


def netdev_keys(spec: Spec, netdev: str) -> list[str]:
    """The keys with the placeholder, of any arm, with the netdev in its place."""
    keys = {
        desired_value.key
        for _, level in every_level(spec)
        for desired_value in level.settings
        if NETDEV in desired_value.key
    }
    return sorted(key.replace(NETDEV, netdev) for key in keys)


def watched(spec: Spec, view: View) -> dict[str, str]:
    """Values of the settings that the experiment is about, by key; None is left out.

    Those that levels name; where a policy or irqbalance decides by itself, whatever these may move. Processes come and
    go, so theirs are watched only by name.
    """
    keys = {
        desired_value.key
        for _, level in every_level(spec)
        for desired_value in level.settings
        if NETDEV not in desired_value.key
    }
    if any(level.policy or level.irqbalance for _, level in every_level(spec)):
        keys |= {f"irq/{irq.irq}/affinity" for irq in view.inventory.irqs if irq.movable}
        for netdev in view.inventory.netdevs:
            keys |= {f"netdev/{netdev.name}/{name}" for name in netdev.params if name.startswith(_STEERED)}
            keys |= {f"netdev/{netdev.name}/{queue.name}/rps" for queue in netdev.queues if queue.rps is not None}
        keys |= {f"cgroup/{path}/{name}" for path, weights in view.cgroups.items() for name in weights}
    return values(view, keys)


def values(view: View, keys: set[str] | Mapping[str, str] | list[str]) -> dict[str, str]:
    """What settings are set to, by key in order; what is not known is left out."""
    found: dict[str, str] = {}
    for key in sorted(keys):
        try:
            value = parse_setting(key).current(view)
        except SettingError:  # a name that the kernel allows and no key can have, such as of an alias
            continue
        if value is not None:
            found[key] = value
    return found
