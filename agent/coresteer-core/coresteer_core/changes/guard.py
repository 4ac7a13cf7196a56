"""The guard: refusals and warnings of a plan, checked in its preview and again before each write."""

from collections.abc import Mapping
from fnmatch import fnmatchcase

from msgspec import Struct

from coresteer_core.changes.boot_warnings import boot_warnings
from coresteer_core.cpuset import parse_cpu_list
from coresteer_core.node.inventory import Inventory, Netdev
from coresteer_core.node.limits import LIMITS_FILE
from coresteer_core.node.view import View
from coresteer_core.settings import Setting, TaskAffinity, TaskNice, parse_setting
from coresteer_core.settings.base import format_cpus
from coresteer_core.settings.location import (
    FlowRuleLocation,
    IrqLocation,
    ParamsLocation,
    QueueCpusLocation,
    QueuesLocation,
)

MAX_PLAN_ACTIONS = 64
"""Maximum number of actions in a plan: enough for every queue of a large NIC, too few for a runaway program."""


class Refusal(Struct, frozen=True):
    """A reason why the guard refuses to write a setting.

    code: invalid, unknown, unsupported, offline, isolated, reserved, managed, cpuset, bound, kernel, realtime, queue,
    channels, bounds, learned, mems, memory, agent, limits, too_many, foreign, fields, rules, context, in_use.
    """

    code: str
    key: str
    sentence: str


class PlanWarning(Struct, frozen=True):
    """A side effect or risk that a person should know before a plan is applied.

    code: other_numa_node, smt_sibling, isolated, management, one_core, restart, latency, adaptive, pages, inherited,
    affinities, controller, vectors, boot, queue, children.
    """

    code: str
    key: str
    sentence: str


def refusals(view: View, desired: list[tuple[str, str]], *, allow_isolated: bool) -> list[Refusal]:
    """Return why settings must not get these (key, canonical value) pairs on a node; empty when all may be written."""
    found: list[Refusal] = []
    if len(desired) > MAX_PLAN_ACTIONS:
        found.append(
            Refusal(
                "too_many",
                "",
                f"The plan has {len(desired)} actions; a plan may have at most {MAX_PLAN_ACTIONS}.",
            )
        )
    online = view.topology.online()
    isolated = view.topology.isolated_cpus
    for key, value in desired:
        setting = parse_setting(key)
        cpus = setting.cpus_on(view, value)
        if (limited := limits_refusal(view.inventory, setting, cpus)) is not None:
            found.append(Refusal("limits", key, limited))
        found += [Refusal(code, key, sentence) for code, sentence in setting.refusals(view, value)]
        if (used := use_refusal(view.inventory, setting)) is not None:
            found.append(Refusal("in_use", key, used))
        if away := cpus - online:
            found.append(
                Refusal(
                    "offline",
                    key,
                    f"{format_cpus(away)} {_is(away)} not online on this node; "
                    + (f"it has {format_cpus(online)}." if online else "which CPUs it has could not be read."),
                )
            )
        if not setting.places_work:
            continue
        for reserved in view.inventory.reserved:
            if (touched := cpus & reserved.numbers) and not setting.belongs_to(view, reserved):
                sentence = f"{format_cpus(touched)} {_is(touched)} reserved for {reserved.holder}."
                found.append(Refusal("reserved", key, sentence))
        if (touched := cpus & isolated) and not allow_isolated:
            found.append(
                Refusal(
                    "isolated",
                    key,
                    f"{format_cpus(touched)} {_is(touched)} reserved by isolcpus or nohz_full; "
                    "allow isolated CPUs in this plan if that is intended.",
                )
            )
    return found


def combined_refusals(view: View, values: Mapping[str, str]) -> list[Refusal]:
    """Return why a plan must not set these canonical values by key together, whatever each of them alone may be."""
    return [
        Refusal(code, key, sentence)
        for key, value in values.items()
        for code, sentence in parse_setting(key).combined_refusals(view, value, values)
    ]


def limits_refusal(inventory: Inventory, setting: Setting, cpus: frozenset[int] = frozenset()) -> str | None:
    """Return why a node's limits forbid to change a setting, as a sentence; None if they allow it.

    cpus: those of its new value.
    """
    limits, allowed = inventory.limits, inventory.limits.settings
    if limits.unusable is not None:
        return f"The limits of this node cannot be read, so no setting may be changed. {limits.unusable}"
    if allowed.allow is not None and not any(fnmatchcase(setting.key, pattern) for pattern in allowed.allow):
        patterns = ", ".join(allowed.allow) or "none"
        return f"{LIMITS_FILE} on this node does not allow to change {setting.key}; settings.allow is: {patterns}."
    if closed := cpus & allowed.closed_cpus:
        return f"{format_cpus(closed)} {_is(closed)} off limits on this node: see cpus_off_limits in {LIMITS_FILE}."
    if setting.interrupt is None:
        return None
    irq = inventory.irq(setting.interrupt)
    names = (str(setting.interrupt), "" if irq is None else irq.name)
    pattern = next((each for each in allowed.interrupts_off_limits for name in names if fnmatchcase(name, each)), None)
    if pattern is None:
        return None
    return f"{setting.subject} is off limits on this node: see “{pattern}” in interrupts_off_limits of {LIMITS_FILE}."


def use_refusal(inventory: Inventory, setting: Setting) -> str | None:
    """Return why a setting must not change because a program uses the queues that it is about; None without one.

    Which queues a device has, which packets they get, and which CPUs handle them and their interrupts stays as their
    user found it. Parameters that move nothing, such as coalescing, may change.
    """
    match setting.location:
        case IrqLocation(number) if (irq := inventory.irq(number)) is not None:
            user = inventory.user_of_irq(irq)
        case QueueCpusLocation(netdev, queue):
            user = inventory.user_of(netdev, queue)
        case QueuesLocation(netdev) | FlowRuleLocation(netdev) | ParamsLocation(netdev, None, "threaded" | "ntuple"):
            user = inventory.user_of(netdev)
        case _:
            return None
    return None if user is None else f"{setting.describe()} cannot be changed. {user.sentence}"


def warnings(view: View, desired: list[tuple[str, str]], *, allow_isolated: bool) -> list[PlanWarning]:
    """Return side effects and risks of writing these (key, canonical value) pairs of settings on a node."""
    found: list[PlanWarning] = []
    isolated = view.topology.isolated_cpus
    known = [(s, value) for key, value in desired if (s := parse_setting(key)).missing_reason(view) is None]
    after = {setting.interrupt: setting.cpus(value) for setting, value in known if setting.interrupt is not None}
    for setting, value in known:
        cpus = setting.cpus_on(view, value)
        if allow_isolated and setting.places_work and (touched := cpus & isolated):
            sentence = f"{format_cpus(touched)} {_is(touched)} reserved by isolcpus or nohz_full."
            found.append(PlanWarning("isolated", setting.key, sentence))
        found += _placement(view, setting, cpus, after)
        found += [PlanWarning(code, setting.key, sentence) for code, sentence in setting.warnings(view, value)]
    found += _vectors(view, known)
    found += [PlanWarning("boot", key, sentence) for key, sentence in boot_warnings(view, known)]
    found += _combined(view, known)
    seen: set[str] = set()
    for setting, _ in known:
        netdev = _netdev_of(view, setting)
        if netdev is not None and netdev.name not in seen:
            seen.add(netdev.name)
            found += _netdev(view, setting.key, netdev, after)
    interrupts = [setting for setting, _ in known if setting.interrupt is not None]
    processes = [setting for setting, _ in known if setting.process is not None]
    found += _controllers(view, interrupts, "interrupt") + _controllers(view, processes, "process")
    return found + _children(view, processes)


def _vectors(view: View, desired: list[tuple[Setting, str]]) -> list[PlanWarning]:
    """Return for which interrupts none of the new CPUs has a free vector; none where the kernel does not show them.

    An interrupt that is on one of its new CPUs keeps its vector. A vector that a move frees is free only after the next
    interrupt, so it does not count.
    """
    found: list[PlanWarning] = []
    free = {each.cpu: each.count for each in view.inventory.free_vectors}
    for setting, value in desired:
        irq = view.inventory.irq(setting.interrupt) if setting.interrupt is not None else None
        cpus = setting.cpus(value) & view.topology.online()
        if irq is None or not cpus <= free.keys() or parse_cpu_list(irq.effective or "") & cpus or not cpus:
            continue
        target = max(sorted(cpus), key=lambda cpu: free[cpu])
        if free[target] > 0:
            free[target] -= 1
        else:
            sentence = (
                f"{format_cpus(cpus)} {'has' if len(cpus) == 1 else 'have'} no free interrupt vector for "
                f"{setting.describe()}: the kernel will refuse the move unless one becomes free."
            )
            found.append(PlanWarning("vectors", setting.key, sentence))
    return found


def _combined(view: View, desired: list[tuple[Setting, str]]) -> list[PlanWarning]:
    """Return what follows from all values set for one netdev or queue, once each."""
    found: dict[tuple[str, str], PlanWarning] = {}
    after: dict[str, dict[str, str]] = {}
    for setting, value in desired:
        after.setdefault(setting.subject, {})[setting.name] = value
    for setting, _ in desired:
        for code, sentence in setting.combined_warnings(view, after[setting.subject]):
            found.setdefault((code, sentence), PlanWarning(code, setting.key, sentence))
    return list(found.values())


def _controllers(view: View, settings: list[Setting], noun: str) -> list[PlanWarning]:
    """Return the warning that another controller may move what the settings are about. noun: interrupt or process."""
    names = sorted({name for setting in settings for name in setting.controllers(view)})
    if not names:
        return []
    runs = "runs" if len(names) == 1 else "run"
    plural = {"interrupt": "interrupts", "process": "processes"}[noun]
    what = noun if len({setting.subject for setting in settings}) == 1 else plural
    sentence = f"{' and '.join(names)} {runs} on this node and may move the {what} again."
    return [PlanWarning("controller", settings[0].key, sentence)]


def _children(view: View, settings: list[Setting]) -> list[PlanWarning]:
    """Return the warning that an undo does not reach the processes to which the plan's processes hand a value down."""
    inherited = [setting for setting in settings if isinstance(setting, TaskAffinity | TaskNice)]
    if not inherited:
        return []
    one = len({setting.process for setting in inherited}) == 1
    who = f"{inherited[0].describe(view)} starts" if one else "these processes start"
    sentence = f"A process that {who} meanwhile inherits this, and an undo does not change it there."
    return [PlanWarning("children", inherited[0].key, sentence)]


def _placement(
    view: View, setting: Setting, cpus: frozenset[int], after: dict[int, frozenset[int]]
) -> list[PlanWarning]:
    """Return warnings about the CPUs of one setting: another NUMA node, a shared core."""
    found: list[PlanWarning] = []
    netdev = _netdev_of(view, setting)
    irq = view.inventory.irq(setting.interrupt) if setting.interrupt is not None else None
    home = netdev.numa_node if netdev is not None else None
    if home is None and irq is not None:
        home = irq.numa_node
    if home is not None and len(view.topology.numa_nodes) > 1:
        foreign = {c.cpu for c in view.topology.cpus if c.cpu in cpus and c.numa_node not in (None, home)}
        if foreign:
            device = setting.affected_netdev(view) or f"{setting.describe()}'s device"
            found.append(
                PlanWarning(
                    "other_numa_node",
                    setting.key,
                    f"{format_cpus(foreign)} {_is(foreign)} on another NUMA node than {device} (node {home}).",
                )
            )
    if netdev is None or irq is None:
        return found
    others = _irq_cpus(view, netdev.name, after, but=irq.irq)
    if shared := {cpu for cpu in _siblings(view, cpus) - cpus if any(cpu in o for o in others)}:
        one = len(shared) == 1
        taken = {cpu for cpu in cpus if any(cpu in other for other in others)}
        too = (
            f"; {format_cpus(taken)} already {'serves one' if len(taken) == 1 else 'serve some'}, too" if taken else ""
        )
        found.append(
            PlanWarning(
                "smt_sibling",
                setting.key,
                f"{format_cpus(shared)} {'shares a core' if one else 'share cores'} with {format_cpus(cpus)} "
                f"and {'serves another queue' if one else 'serve other queues'} of {netdev.name}{too}.",
            )
        )
    return found


def _netdev_of(view: View, setting: Setting) -> Netdev | None:
    return view.inventory.netdev(setting.affected_netdev(view))


def _netdev(view: View, key: str, netdev: Netdev, after: dict[int, frozenset[int]]) -> list[PlanWarning]:
    """Return warnings about a netdev, once however many of its settings a plan changes."""
    found: list[PlanWarning] = []
    if netdev.management:
        found.append(
            PlanWarning(
                "management",
                key,
                f"{netdev.name} carries this node's management connection; "
                "the change is rolled back if the connection is lost.",
            )
        )
    moves = any(irq.netdev == netdev.name and irq.irq in after for irq in view.inventory.irqs)
    placed = _irq_cpus(view, netdev.name, after) if moves else []
    cpus = frozenset[int]().union(*placed)
    core = min(cpus, default=-1)
    if len(placed) > 1 and cpus <= _siblings(view, frozenset([core])) | {core}:
        served_by = f"{format_cpus(cpus)} alone" if len(cpus) == 1 else f"{format_cpus(cpus)}, which are one core,"
        sentence = f"All {len(placed)} interrupts of {netdev.name} would be served by {served_by}"
        found.append(PlanWarning("one_core", key, sentence.rstrip(",") + "."))
    return found


def _irq_cpus(
    view: View, netdev: str, after: dict[int, frozenset[int]], *, but: int | None = None
) -> list[frozenset[int]]:
    """Return the CPUs of each of the netdev's queue interrupts, and of those that a plan moves, once it is applied."""
    placed = []
    for irq in view.inventory.irqs:
        if irq.netdev != netdev or irq.irq == but:
            continue
        if irq.irq in after:
            placed.append(after[irq.irq])
        elif irq.queues and (where := irq.effective or irq.requested):
            placed.append(parse_cpu_list(where))
    return placed


def _siblings(view: View, cpus: frozenset[int]) -> frozenset[int]:
    return frozenset().union(*(parse_cpu_list(c.siblings) for c in view.topology.cpus if c.cpu in cpus))


def _is(cpus: frozenset[int] | set[int]) -> str:
    return "are" if len(cpus) > 1 else "is"
