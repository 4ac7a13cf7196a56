"""Ownership of settings: other controllers, drift, reused PIDs, and settings of ended policies to restore."""

from collections.abc import Collection, Mapping, Sequence

from msgspec.structs import replace

from coresteer_core.changes.plan import Action
from coresteer_core.node.view import View
from coresteer_core.policies.base import Drift, Mode, Ownership
from coresteer_core.policies.engine_state import EngineMemory, Holding, PolicyInForce, forget_holding
from coresteer_core.settings import SettingError, TaskAffinity, parse_setting

RESTORE_REASON = "The policy that set this is no longer enforced here; its value from before the policy is restored."
"""Reason of an action that restores a setting; the backend finds by it which settings are restored."""


def current_value(view: View, key: str) -> str | None:
    """Return a setting's present value from a view of the node; None where it is unknown."""
    try:
        return parse_setting(key).current(view)
    except SettingError:
        return None


def has_value(view: View, key: str, value: str) -> bool | None:
    """Return whether a setting has this value, ignoring offline CPUs; None where its value is unknown."""
    current = current_value(view, key)
    if current is None or current == value:
        return None if current is None else True
    setting = parse_setting(key)
    cpus = setting.cpus(value)
    return setting.equal(current, setting.value_in_view(value)) or (
        bool(cpus) and setting.cpus(current) == cpus & view.topology.online()
    )


def controllers_of(view: View, key: str) -> list[str]:
    """Return the names of running programs, such as irqbalance, that may also write a setting."""
    return parse_setting(key).controllers(view)


def drift_cause(view: View, key: str) -> str | None:
    """Return the program or driver that may have changed a setting; None where the view shows none."""
    return parse_setting(key).drift_cause(view)


def describe_running(names: Sequence[str]) -> str:
    """Return the start of a sentence on running programs: ``irqbalance and tuned run``."""
    return f"{' and '.join(names)} {'runs' if len(names) == 1 else 'run'}"


def process_start_ticks(view: View, key: str, memory: EngineMemory) -> int | None:
    """Return the start time in ticks of the process that a setting belongs to; None for settings of no process."""
    pid = parse_setting(key).process
    if pid is None:
        return None
    task = view.task(pid)
    return memory.processes.get(key) if task is None else task.started_ticks


def interrupt_name(view: View, key: str) -> str | None:
    """Return the name of the interrupt that a setting belongs to; None for other settings, and where it is gone."""
    number = parse_setting(key).interrupt
    irq = view.inventory.irq(number) if number is not None else None
    return None if irq is None else irq.name


def unbound_view(view: View, holdings: Mapping[str, Holding], policy_ids: Collection[str]) -> View:
    """Return a view in which processes that these policies bound have their affinity from before; all else is as it is.

    Not an overlay: a process stays where it runs. A process that something else bound since stays bound.
    """
    originals = {
        setting.pid: holding.original
        for key, holding in holdings.items()
        if holding.policy_id in policy_ids
        and isinstance(setting := parse_setting(key), TaskAffinity)
        and ";" not in holding.original  # its threads were bound to different CPUs before, which no policy does
        and has_value(view, key, holding.value)
    }
    if not originals:
        return view
    tasks = [replace(task, affinity=originals.get(task.pid, task.affinity)) for task in view.tasks]
    numa = view.numa
    if numa is not None:
        places = [replace(task, affinity=originals.get(task.pid, task.affinity)) for task in numa.tasks]
        numa = replace(numa, tasks=places)
    return replace(view, tasks=tasks, numa=numa)


def holding_view(view: View, holdings: Mapping[str, Holding], policy_id: str) -> View:
    """Return a view that names the settings which still have the value that a policy gave them."""
    own = {key: holding.value for key, holding in holdings.items() if holding.policy_id == policy_id}
    held = frozenset(key for key, value in own.items() if has_value(view, key, value))
    return replace(view, held=held) if held else view


def find_drifts(view: View, policy: PolicyInForce, holdings: dict[str, Holding]) -> list[Drift]:
    """Return the settings of an enforced policy whose value is no longer the one that the policy wrote."""
    found: list[Drift] = []
    if policy.mode is not Mode.ENFORCE:
        return found
    for key, holding in holdings.items():
        if holding.policy_id != policy.policy_id or holding.held_out or view.time_s <= holding.since_s:
            continue  # not its own, restored for a holdout, or a view from before the write
        if has_value(view, key, holding.value) is False:
            current = current_value(view, key) or ""
            found.append(Drift(key, holding.value, current, drift_cause(view, key), policy.on_drift))
    return found


def restore_actions(
    view: View, policies: list[PolicyInForce], memory: EngineMemory
) -> tuple[list[tuple[str, Action]], EngineMemory]:
    """Return (policy id, action) pairs that restore settings of policies no longer enforced, and the new memory.

    policies: all that are in force. A setting that something else has changed since, or that has its original value
    again, is not written but removed from the memory returned; each of the others is removed by record_write() once it
    is restored, or by forget() when it no longer exists. In reverse order of writing: some drivers refuse rx-usecs
    while adaptive-rx is on. A policy that is held out still has its settings: an agent may have been killed between
    saving that they are restored and restoring them, so the view decides for these, too.
    """
    enforcing = {policy.policy_id for policy in policies if policy.mode is Mode.ENFORCE}
    memory = replace(memory, holdings=_without_reused_pids(view, memory))
    actions = []
    for key, holding in reversed(memory.holdings.items()):
        if holding.policy_id in enforcing:
            continue
        if has_value(view, key, holding.value) is False:
            memory = forget_holding(memory, key)
            continue
        actions.append((holding.policy_id, Action(key, holding.value, holding.original, RESTORE_REASON)))
    actions.sort(key=lambda each: parse_setting(each[1].key).write_order(each[1].becomes))
    holdouts = {policy_id: holdout for policy_id, holdout in memory.holdouts.items() if policy_id in enforcing}
    return actions, replace(memory, holdouts=holdouts)


def prune_memory(view: View, policies: list[PolicyInForce], memory: EngineMemory) -> EngineMemory:
    """Return the engine's memory without settings that no longer exist and without expired flap damping.

    A process without traffic, and its cgroup, is absent from the view although it exists, so its holdings stay.
    Devices are all in the view, unless it has none at all because they could not be read. A setting that was yielded is
    free again once its PID or interrupt number belongs to another process or interrupt. A setting that the kernel has
    set anew is not held any more, and no drift, as nobody else wants it: all CPUs of its value have gone offline, or
    another interrupt has the number of one that was freed.
    """
    online = view.topology.online()
    min_revert_s = max((policy.damping.min_revert_s for policy in policies), default=0.0)
    yielding = {policy.policy_id for policy in policies if policy.on_drift is Ownership.YIELD}

    def retention_s(key: str) -> float:
        """Return twice the minimum time before reverting: a return to the value soon after it counts as a flap, too."""
        return 2 * min_revert_s * (1 << memory.flaps.get(key, 0))

    def exists(key: str) -> bool:
        complete = parse_setting(key).complete_in_view and view.inventory.irqs
        return not complete or current_value(view, key) is not None

    def is_new(key: str, held: Holding) -> bool:
        cpus, name = parse_setting(key).cpus(held.value), interrupt_name(view, key)
        offline = bool(cpus) and bool(online) and not cpus & online
        if held.held_out or not (offline or memory.interrupts.get(key, name) != name):
            return False
        return has_value(view, key, held.value) is False

    recent_values = {
        key: recent
        for key, values in memory.recent_values.items()
        if (recent := [(value, at_s) for value, at_s in values if 0 <= view.time_s - at_s < retention_s(key)])
    }
    return replace(
        memory,
        holdings={
            key: held
            for key, held in _without_reused_pids(view, memory).items()
            if exists(key) and not is_new(key, held)
        },
        recent_values=recent_values,
        flaps={key: count for key, count in memory.flaps.items() if key in recent_values},
        yielded={
            key: policy
            for key, policy in memory.yielded.items()
            if policy in yielding and exists(key) and _has_same_owner(view, key, memory)
        },
    )


def _without_reused_pids(view: View, memory: EngineMemory) -> dict[str, Holding]:
    """Return the settings that policies have set, without those of processes whose PID was reused."""
    return {key: holding for key, holding in memory.holdings.items() if _has_same_process(view, key, memory)}


def _has_same_process(view: View, key: str, memory: EngineMemory) -> bool:
    return key not in memory.processes or memory.processes[key] == process_start_ticks(view, key, memory)


def _has_same_owner(view: View, key: str, memory: EngineMemory) -> bool:
    """Return whether a setting belongs to the same process or interrupt as before, as far as that is known."""
    name = interrupt_name(view, key)
    return _has_same_process(view, key, memory) and (name is None or memory.interrupts.get(key, name) == name)
