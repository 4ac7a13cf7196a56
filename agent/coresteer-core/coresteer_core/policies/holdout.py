"""Hold a policy out for a comparison: restore the settings that it set, and write the same values again afterwards.

Both directions are one plan. They are not damped: neither dwell time nor flap damping nor the limit of moves applies,
and they leave no trace in them. begin_holdout() and end_holdout() return a plan together with the memory that the
caller saves before it writes, so that an agent killed at any instant knows at its next start what to write again.
"""

from collections.abc import Collection, Iterable, Mapping

from msgspec.structs import replace

from coresteer_core.bounds import MAX_SENTENCE
from coresteer_core.changes.guard import refusals
from coresteer_core.changes.plan import Action, in_write_order
from coresteer_core.node.view import View
from coresteer_core.policies.base import HoldoutReport, HoldoutState, Mode, Skipped
from coresteer_core.policies.engine_state import EngineMemory, Holding, Holdout, PolicyInForce, forget_holding
from coresteer_core.policies.ownership import current_value, has_value
from coresteer_core.settings import parse_setting


def restored_settings(memory: EngineMemory, policy_id: str) -> dict[str, Holding]:
    """Return the settings of a policy that are restored for its holdout, in the order in which it set them."""
    return {key: held for key, held in memory.holdings.items() if held.policy_id == policy_id and held.held_out}


def as_evaluated(policy: PolicyInForce, memory: EngineMemory) -> PolicyInForce:
    """Return a policy with the mode in which it is evaluated now: recommend while it is held out."""
    holdout = memory.holdouts.get(policy.policy_id)
    refused = holdout is not None and holdout.report.state is HoldoutState.REFUSED
    held_out = (policy.holdout and not refused) or restored_settings(memory, policy.policy_id)
    return replace(policy, mode=Mode.RECOMMEND) if held_out and policy.mode is Mode.ENFORCE else policy


def is_due(policy: PolicyInForce, memory: EngineMemory) -> bool | None:
    """Return True if the holdout of an enforced policy has to begin, False if it has to end, else None."""
    holdout = memory.holdouts.get(policy.policy_id)
    state = HoldoutState.IN_FORCE if holdout is None else holdout.report.state
    restored = bool(restored_settings(memory, policy.policy_id))
    current = holdout is not None and holdout.report.version == policy.version
    if (
        policy.holdout
        and current
        and (state is HoldoutState.HELD_OUT or (state is HoldoutState.REFUSED and not restored))
    ):
        return None
    if restored or state is not HoldoutState.IN_FORCE:
        return False
    return True if policy.holdout else None


def begin_holdout(
    view: View, policy: PolicyInForce, memory: EngineMemory, blocked: Mapping[str, str], now_ms: int
) -> tuple[list[Action], EngineMemory]:
    """Return the actions that restore a policy's settings, the latest first, and the memory to save before.

    Settings whose write interrupts traffic or moves memory stay in force, and so do those that something else changed
    and blocked ones (by key, with the reason). Where the policy has set only such ones, the holdout is refused.
    """
    own = {key: held for key, held in memory.holdings.items() if held.policy_id == policy.policy_id}
    moved = {_owner(key) for key in own if parse_setting(key).moves_pages}
    excepted, restored = list[Skipped](), dict[str, Holding]()
    for key, holding in own.items():
        if (why := _why_it_stays(view, key, holding, moved) or blocked.get(key)) is not None:
            excepted.append(Skipped(key, why))
        else:
            restored[key] = replace(holding, held_out=True)
    state, why = HoldoutState.ENTERING, ""
    if excepted and not restored:
        state, why = HoldoutState.REFUSED, f"None of its settings can be restored for a time. {excepted[0].why}"
    report = HoldoutReport(state, policy.version, now_ms, excepted, why[:MAX_SENTENCE])
    holdout = Holdout(report, list(restored), memory.memories.get(policy.policy_id))
    reason = f"{policy.name} is held out for a comparison; afterwards it gets its present value again."
    actions = [
        Action(key, holding.value, holding.original, reason)
        for key, holding in reversed(restored.items())
        if holding.value != holding.original
    ]
    memory = replace(_with_holdout(memory, policy, holdout), holdings={**memory.holdings, **restored})
    return in_write_order(actions), memory


def record_restored(
    memory: EngineMemory, policy: PolicyInForce, failed: Mapping[str, str], gone: Iterable[str], now_ms: int
) -> EngineMemory:
    """Return the memory after the actions of begin_holdout() were done.

    failed: why settings could not be restored, by key; then the holdout is refused, and end_holdout() writes what was
    restored again. gone: settings that no longer exist.
    """
    holdout = memory.holdouts[policy.policy_id]
    for key in gone:
        memory = forget_holding(memory, key)
    for key in failed:
        memory = _with_restored(memory, key, restored=False)
    report = replace(holdout.report, state=HoldoutState.HELD_OUT, since_ms=now_ms)
    if failed:
        why = f"Not every setting could be restored. {next(iter(failed.values()))}"
        report = replace(report, state=HoldoutState.REFUSED, why=why[:MAX_SENTENCE])
    return _with_holdout(memory, policy, replace(holdout, report=report))


def end_holdout(
    view: View, policy: PolicyInForce, memory: EngineMemory, blocked: Mapping[str, str], now_ms: int
) -> tuple[list[Action], EngineMemory]:
    """Return the actions that write the values that were in force before the holdout, and the memory to save before.

    Without actions the policy is in force again. Left out, with the reason in the report, are settings that no longer
    exist, those that something else changed (then the policy's reaction to drift follows), those that the guard refuses
    now, and blocked ones. Another version of the policy starts from the original values; it keeps a setting with the
    value from before, as of an agent that was killed before it restored it, or after it wrote it again.
    """
    holdout = memory.holdouts.get(policy.policy_id) or Holdout(_in_force(policy, now_ms))
    report, outdated = holdout.report, holdout.report.version != policy.version
    excepted = list(report.excepted) if report.state is HoldoutState.LEAVING else []
    excepted += [Skipped(key, "It no longer exists.") for key in holdout.keys if key not in memory.holdings]
    stale = report.state is HoldoutState.REFUSED  # the view is from before its settings were restored
    actions = []
    for key, holding in restored_settings(memory, policy.policy_id).items():
        if outdated and _is_in_force(view, key, holding, report.state):
            memory = record_written_again(memory, key, view.time_s)
        elif outdated:
            memory = forget_holding(memory, key)
        elif not stale and has_value(view, key, holding.value):
            memory = record_written_again(memory, key, view.time_s)
        elif not stale and has_value(view, key, holding.original) is False:
            memory = record_written_again(memory, key, view.time_s)
            found = current_value(view, key)
            excepted.append(Skipped(key, f"Something else changed it to {found} while the policy was held out."))
        elif (why := blocked.get(key) or _refusal(view, policy, key, holding.value)) is not None:
            memory = forget_holding(memory, key)
            excepted.append(Skipped(key, why))
        else:
            reason = f"{policy.name} is in force again; this is the value from before its holdout."
            actions.append(Action(key, holding.original, holding.value, reason))
    refused = policy.holdout and report.state is HoldoutState.REFUSED and not outdated
    if actions:
        state = HoldoutState.REFUSED if refused else HoldoutState.LEAVING
        report = replace(report, state=state, excepted=excepted)
        return actions, _with_holdout(memory, policy, Holdout(report, [], holdout.memory))
    if not outdated and holdout.memory is not None:
        memory = replace(memory, memories={**memory.memories, policy.policy_id: holdout.memory})
    report = report if refused else replace(_in_force(policy, now_ms), excepted=excepted)
    return [], _with_holdout(memory, policy, Holdout(report))


def record_written_again(memory: EngineMemory, key: str, time_s: float) -> EngineMemory:
    """Return the memory after a setting got the value again that was in force before the holdout. time_s: view time."""
    holding = replace(memory.holdings[key], held_out=False, since_s=time_s)
    return replace(memory, holdings={**memory.holdings, key: holding})


def record_reverted(memory: EngineMemory, key: str) -> EngineMemory:
    """Return the memory after a restart of the agent reverted record_written_again(), so that it is written again."""
    return _with_restored(memory, key, restored=True)


def _with_restored(memory: EngineMemory, key: str, *, restored: bool) -> EngineMemory:
    holding = replace(memory.holdings[key], held_out=restored)
    return replace(memory, holdings={**memory.holdings, key: holding})


def _with_holdout(memory: EngineMemory, policy: PolicyInForce, holdout: Holdout) -> EngineMemory:
    return replace(memory, holdouts={**memory.holdouts, policy.policy_id: holdout})


def _in_force(policy: PolicyInForce, now_ms: int) -> HoldoutReport:
    return HoldoutReport(HoldoutState.IN_FORCE, policy.version, now_ms)


def _is_in_force(view: View, key: str, holding: Holding, state: HoldoutState) -> bool:
    """Return whether a setting that is recorded as restored has, or may have, the value that was in force.

    A setting that is not in the view may have it, unless the restoring plan has been carried out.
    """
    found = has_value(view, key, holding.value)
    return found is True or (found is None and state is not HoldoutState.HELD_OUT)


def _owner(key: str) -> str:
    """Return what a setting belongs to; a process's CPUs and memory belong together."""
    return key.rpartition("/")[0]


def _why_it_stays(view: View, key: str, holding: Holding, moved: Collection[str]) -> str | None:
    """Return why a setting stays in force during a holdout, None if it is restored.

    moved: the owners of settings whose write moved memory; without its CPUs, that memory would be remote.
    """
    setting = parse_setting(key)
    if has_value(view, key, holding.value) is False:
        return f"Something else changed it to {current_value(view, key)}."
    if setting.interrupts_traffic:
        return f"{setting.describe(view)} stays in force: changing it interrupts traffic."
    if _owner(key) in moved:
        return f"{setting.describe(view)} stays in force: memory was moved, and moving it back takes too long."
    return None


def _refusal(view: View, policy: PolicyInForce, key: str, value: str) -> str | None:
    """Return why the guard refuses a value, else None. The executor checks a process that is not in the view."""
    if current_value(view, key) is None:
        return None
    found = refusals(view, [(key, value)], allow_isolated=policy.spec.allow_isolated)
    return found[0].sentence if found else None
