"""Validation of an experiment's spec against a node, and description of what it would do there.

Pure; raises Invalid.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import count

import msgspec

from coresteer.application_metrics.reading import PREFIX, DeclaredMetric
from coresteer.errors import Invalid
from coresteer.experiments import schedule
from coresteer.experiments.arm_config import (
    NETDEV_PLACEHOLDER,
    all_levels,
    changes_nothing,
    desired_of,
    irqbalance_cpus,
    levels_of,
    policies_of,
    runs_irqbalance,
    runs_on_both_nodes,
    workload_of,
)
from coresteer.experiments.schemas import ArmPreview
from coresteer.experiments.spec import Arm, Spec
from coresteer.experiments.statistics import MIN_BLOCKS_OF_TWO_ARMS, min_blocks_of_many_arms
from coresteer.structs import reason_and_path
from coresteer_core.changes.plan import DesiredValue, preview
from coresteer_core.cpuset import CpuListError, parse_cpu_list
from coresteer_core.experiments.load_limits import load_refusal
from coresteer_core.experiments.model import VETH_PREFIX, Classes, Workload, has_client
from coresteer_core.experiments.parallel_jobs import Bsp
from coresteer_core.metrics import EXPERIMENT_METRICS, GUARDRAIL_METRICS
from coresteer_core.node.inventory import Inventory
from coresteer_core.node.topology import Topology
from coresteer_core.node.view import View
from coresteer_core.settings import SettingError, parse_setting

_STAND_IN = "NETDEV"
"""Name of a netdev in keys that are only checked."""


def check_on_node(spec: Spec, view: View, peer: Topology | None) -> None:
    """Raise Invalid, naming the field, if this spec cannot run on the node. peer: topology of the client's node."""
    for path, text in (("spec.name", spec.name), ("spec.template", spec.template), *_names(spec)):
        if not text.isprintable():
            raise Invalid("Names must not contain control characters.", field=path)
    if (wrong := schedule.check_spec(spec)) is not None:
        raise Invalid(wrong, field="spec")
    _check_peer(spec)
    _check_guardrails(spec)
    _check_workload(spec.workload, "spec.workload", view.topology, peer)
    _check_limits(spec.workload, "spec.workload", view.inventory)
    _check_levels(spec, view)
    if spec.kind == "tune":
        _check_apart(spec)
    for arm in _described_arms(spec):
        try:
            workload = workload_of(spec, arm)
        except msgspec.ValidationError as error:
            reason, where = reason_and_path(error)
            raise Invalid(reason, field=f"{_workload_path(spec, arm)}{where}") from None
        _check_workload(workload, _workload_path(spec, arm), view.topology, peer)
        _check_limits(workload, _workload_path(spec, arm), view.inventory)
        if has_client(workload) != has_client(spec.workload):
            raise Invalid("All levels must have the same number of machines.", field=_workload_path(spec, arm))
        if refused := preview(view, _known(desired_of(spec, arm, NETDEV_PLACEHOLDER)), reason="").refused:
            raise Invalid(f"{schedule.arm_name(spec, arm)}: {refused[0].sentence}", field="spec.factors")
        ids = [level.policy_id for level in policies_of(spec, arm)]
        if len(set(ids)) < len(ids):
            raise Invalid(
                "The same policy is in levels of both factors; use it in one factor only.", field="spec.factors"
            )


def _check_peer(spec: Spec) -> None:
    if spec.peer_node_id is not None and not has_client(spec.workload):
        sentence = "This workload has no client that could run on another node."
        if isinstance(spec.workload, Bsp):
            sentence = "Parallel jobs on one machine have no processes on another node; set Machines to 2."
        raise Invalid(sentence, field="spec.peer_node_id")
    if spec.peer_node_id == spec.node_id:
        raise Invalid(
            "The peer must be another node; without a peer the client runs on the node itself.",
            field="spec.peer_node_id",
        )


def _check_guardrails(spec: Spec) -> None:
    for place, guardrail in enumerate(spec.guardrails):
        applications = [f"{PREFIX}{name}" for name in spec.application_metrics]
        if guardrail.metric not in GUARDRAIL_METRICS and guardrail.metric not in applications:
            choices = ", ".join([*GUARDRAIL_METRICS, *applications])
            sentence = f"There is no guardrail metric “{guardrail.metric[:40]}”; choose one of {choices}."
            raise Invalid(sentence, field=f"spec.guardrails[{place}].metric")
        if not 0 <= guardrail.max < math.inf:
            raise Invalid(
                "The maximum of a guardrail must be a number of at least 0.", field=f"spec.guardrails[{place}].max"
            )


def _described_arms(spec: Spec) -> list[Arm]:
    """Return the arms that are validated and described one by one; a tune has too many combinations for that."""
    return schedule.single_changes(spec) if spec.kind == "tune" else schedule.all_arms(spec)


def _check_apart(spec: Spec) -> None:
    """Raise Invalid if two factors change the same setting, so that a combination would not be both levels."""
    owners: dict[str, str] = {}
    for factor in spec.factors:
        for key in {desired_value.key for level in factor.levels for desired_value in level.settings}:
            if owners.setdefault(key, factor.name) != factor.name:
                sentence = f"The factors {owners[key]} and {factor.name} both change {key}; use one factor for it."
                raise Invalid(sentence, field="spec.factors")


def _names(spec: Spec) -> list[tuple[str, str]]:
    named = [(f"spec.factors[{place}].name", factor.name) for place, factor in enumerate(spec.factors)]
    named += [(f"spec.factors[{place}].unit", factor.unit) for place, factor in enumerate(spec.factors)]
    return named + [(f"{path}.name", level.name) for path, level in all_levels(spec)]


def _check_levels(spec: Spec, view: View) -> None:
    kind = type(spec.workload).__struct_config__.tag
    for path, level in all_levels(spec):
        _check_cpus(level.irqbalance_cpus, f"{path}.irqbalance_cpus", view.topology)
        if level.irqbalance_cpus and not level.irqbalance:
            raise Invalid("CPUs of irqbalance have no effect without it.", field=f"{path}.irqbalance_cpus")
        for place, desired_value in enumerate(level.settings):
            _check_desired_value(desired_value, f"{path}.settings[{place}]", view, traffic=has_client(spec.workload))
        known = {field.encode_name for field in msgspec.structs.fields(spec.workload)}
        if unknown := sorted(level.workload.keys() - known):
            sentence = f"{kind} has no field {unknown[0]}; choose one of {', '.join(sorted(known))}."
            raise Invalid(sentence, field=f"{path}.workload.{unknown[0]}")


def _check_desired_value(desired_value: DesiredValue, path: str, view: View, *, traffic: bool) -> None:
    if NETDEV_PLACEHOLDER in desired_value.key and not traffic:
        raise Invalid(
            f"{NETDEV_PLACEHOLDER} is the netdev by which generated traffic arrives; this workload generates none.",
            field=f"{path}.key",
        )
    try:
        setting = parse_setting(desired_value.key.replace(NETDEV_PLACEHOLDER, _STAND_IN))
    except SettingError as error:
        raise Invalid(str(error), field=f"{path}.key") from None
    try:
        setting.canonical(desired_value.value)
    except SettingError as error:
        raise Invalid(f"{desired_value.key}: {error}", field=f"{path}.value") from None
    if NETDEV_PLACEHOLDER not in desired_value.key and (refused := preview(view, [desired_value], reason="").refused):
        field = "key" if refused[0].code == "unknown" else "value"
        raise Invalid(refused[0].sentence, field=f"{path}.{field}")


def _workload_path(spec: Spec, arm: Arm) -> str:
    """Return the field that overrides the workload of an arm, spec.workload where none does."""
    for place, (factor, level) in enumerate(zip(spec.factors, arm, strict=True)):
        if factor.levels[level].workload:
            return f"spec.factors[{place}].levels[{level}].workload"
    return "spec.workload"


def _check_workload(workload: Workload, path: str, topology: Topology, peer: Topology | None) -> None:
    ends = [(name, topology) for name in ("server_cpus", "compute_cpus", "memory_cpus", "cpus")]
    ends += [(name, peer or topology) for name in ("client_cpus", "cpus")]
    for name, where in ends:
        _check_cpus(getattr(workload, name, ""), f"{path}.{name}", where)


def _check_limits(workload: Workload, path: str, inventory: Inventory) -> None:
    if (refused := load_refusal(inventory.limits, workload)) is not None:
        raise Invalid(refused, field=path)


def _check_cpus(cpus: str, path: str, topology: Topology) -> None:
    try:
        offline = parse_cpu_list(cpus) - topology.online() if cpus else frozenset()
    except CpuListError as error:
        raise Invalid(str(error), field=path) from None
    if offline:
        raise Invalid(f"CPU {min(offline)} is not online.", field=path)


def _known(desired: Sequence[DesiredValue]) -> list[DesiredValue]:
    return [desired_value for desired_value in desired if NETDEV_PLACEHOLDER not in desired_value.key]


def arm_previews(spec: Spec, view: View, policies: Mapping[int, str], netdev: str) -> list[ArmPreview]:
    """Return what each arm changes on the node. policies: names by id. netdev: by which the load will arrive."""
    return [_arm_preview(spec, arm, view, policies, netdev) for arm in _described_arms(spec)]


def expected_netdev(spec: Spec, inventory: Inventory, *, simulated: bool) -> str:
    """Return the name of the netdev by which the load will arrive, as the agent chooses it; empty where unknown.

    simulated: a simulated node has no network namespaces, so the load arrives by its first NIC.
    """
    if simulated:
        return next((netdev.name for netdev in inventory.netdevs), "")
    if spec.peer_node_id is not None:
        return next((netdev.name for netdev in inventory.active_nics()), "")
    taken = {netdev.name for netdev in inventory.netdevs}
    return next(name for number in count() if (name := f"{VETH_PREFIX}{number}") not in taken)


def _arm_preview(spec: Spec, arm: Arm, view: View, policies: Mapping[int, str], netdev: str) -> ArmPreview:
    parts: list[str] = []
    commands: list[str] = []
    desired = desired_of(spec, arm, NETDEV_PLACEHOLDER)
    if known := _known(desired):
        found = preview(view, known, reason="")
        parts.append(found.sentence)
        commands += found.commands
    for desired_value in desired:
        if NETDEV_PLACEHOLDER in desired_value.key:
            key = desired_value.key.replace(NETDEV_PLACEHOLDER, netdev or _STAND_IN)
            setting = parse_setting(key)
            value = setting.canonical(desired_value.value)
            parts.append(f"{key} becomes {value}; {netdev or _STAND_IN} is the netdev by which the load arrives.")
            commands.append(setting.shell_command(value))
    where = ", on both nodes" if spec.peer_node_id is not None and runs_on_both_nodes(spec) else ""
    parts += [
        f"Policy “{policies[policy.policy_id]}”, version {policy.version}, in the mode {policy.mode}{where}."
        for policy in policies_of(spec, arm)
    ]
    if runs_irqbalance(spec, arm):
        only = f" on CPU {cpus} only" if (cpus := irqbalance_cpus(spec, arm)) else ""
        parts.append(f"irqbalance runs{only}; the affinities that it changes are restored afterwards.")
    for level in levels_of(spec, arm):
        parts += [f"Workload: {name.replace('_', ' ')} {value}." for name, value in level.workload.items()]
    if changes_nothing(spec, arm):
        parts.insert(0, "The node as it is, without enforced policies.")
    return ArmPreview(name=schedule.arm_name(spec, arm), sentence=" ".join(parts), commands=commands)


def summary_sentence(
    spec: Spec, node_name: str, peer_name: str | None, applications: Mapping[str, DeclaredMetric]
) -> str:
    """Return a summary of the experiment in one or two sentences. applications: its application metrics, by name."""
    metric = EXPERIMENT_METRICS[spec.primary].label if spec.primary in EXPERIMENT_METRICS else spec.primary
    if (application := applications.get(spec.primary.removeprefix(PREFIX))) is not None:
        metric = application.label
    runs, first = schedule.run_count(spec), 4 * spec.aa_blocks
    load = type(spec.workload).__struct_config__.tag
    where = node_name
    if peer_name is not None:
        where += f" and {peer_name}" if runs_on_both_nodes(spec) else f", with load from {peer_name}"
    what = f"{runs} runs ({load}) on {where}, about {format_duration(schedule.estimate_duration_s(spec))}"
    if spec.kind == "tune":
        combinations = math.prod(len(factor.levels) for factor in spec.factors)
        return f"At most {what}: searches {combinations:,} combinations of levels. Primary metric: {metric}."
    if spec.kind == "aa":
        return f"{what}: A/A, the node is compared with itself. Primary metric: {metric}."
    baseline, *others = (schedule.arm_name(spec, arm) for arm in schedule.all_arms(spec))
    compared = f"“{others[0]}”" if len(others) == 1 else f"{len(others)} other levels"
    return f"{what}: {first} A/A runs, then “{baseline}” against {compared}. Primary metric: {metric}."


def block_warnings(spec: Spec) -> list[str]:
    """Return warnings about blocks that are too few for a result, and about runs that may be too long."""
    warnings: list[str] = []
    if spec.kind == "tune":
        return warnings
    minimum = MIN_BLOCKS_OF_TWO_ARMS
    fewest = min_blocks_of_many_arms(len(schedule.all_arms(spec))) if spec.kind == "sweep" else minimum
    if spec.blocks < fewest:
        warnings.append(f"With {spec.blocks} blocks no difference can be significant, however large; use {fewest}.")
    if spec.kind != "aa" and spec.aa_blocks < minimum:
        warnings.append(
            f"With {spec.aa_blocks} A/A blocks the node's own variation cannot be determined; use {minimum}."
        )
    if isinstance(spec.workload, Classes) and spec.workload.work_s > spec.workload.limit_s / 2:
        warnings.append(
            f"A run of {spec.workload.total_requests:,} requests takes about {format_duration(spec.workload.work_s)}; "
            f"one that takes longer than {format_duration(spec.workload.limit_s)} is discarded."
        )
    return warnings


def format_duration(seconds: float) -> str:
    """Format a duration in seconds as minutes or hours for a sentence."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
