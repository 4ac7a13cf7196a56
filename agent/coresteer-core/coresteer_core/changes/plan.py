"""Plans: ordered writes of settings with reasons, their previews, and the inverse plans that undo them."""

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from coresteer_core.changes.guard import PlanWarning, Refusal, combined_refusals, refusals, warnings
from coresteer_core.changes.report import MAX_REPORTED_CHARACTERS
from coresteer_core.node.view import View
from coresteer_core.settings import SettingError, parse_setting


class Action(Struct, frozen=True):
    """One write of a plan: a setting's key, its value before (was), the desired value (becomes) and the reason."""

    key: str
    was: str
    becomes: str
    reason: str


class Plan(Struct, frozen=True):
    """Actions in the order in which they are written. allow_isolated: isolated CPUs may be used."""

    actions: list[Action]
    allow_isolated: bool = False


class DesiredValue(Struct, frozen=True):
    """A setting's key and the value that an operator, a policy or an experiment wants it to have."""

    key: str
    value: str


class Preview(Struct, frozen=True):
    """A plan with its refusals and warnings. It can be applied when refused is empty and the plan has actions.

    sentence: a summary, or that the plan is refused and why. commands: equivalent shell commands in order; empty when
    something is refused.
    """

    plan: Plan
    sentence: str
    commands: list[str]
    warnings: list[PlanWarning]
    refused: list[Refusal]


def inverse(plan: Plan) -> Plan:
    """Return the inverse plan, which undoes a plan by setting each previous value, in reverse order."""
    return Plan(
        [Action(a.key, a.becomes, a.was, f"Undo: {a.reason}") for a in reversed(plan.actions)],
        allow_isolated=True,  # originals are restored even where the guard would refuse them
    )


def as_reported(action: Action) -> Action:
    """Return an action for a report: a long value, such as one that names many threads, is as a View shows it."""
    was, becomes = (
        value if len(value) <= MAX_REPORTED_CHARACTERS else parse_setting(action.key).value_in_view(value)
        for value in (action.was, action.becomes)
    )
    return replace(action, was=was, becomes=becomes)


def in_write_order(actions: Iterable[Action]) -> list[Action]:
    """Return actions in their order, except that what settings refer to is created first and deleted last."""
    return sorted(actions, key=lambda action: parse_setting(action.key).write_order(action.becomes))


def preview(view: View, desired: list[DesiredValue], *, reason: str, allow_isolated: bool = False) -> Preview:
    """Return the plan that sets the desired values on a node, with its refusals and warnings.

    A desired value that is already set makes no action. Never raises: an invalid desired value is a Refusal with a
    sentence.
    """
    actions: list[Action] = []
    refused: list[Refusal] = []
    seen: set[str] = set()
    for desired_value in desired:
        try:
            setting = parse_setting(desired_value.key)
            value = setting.canonical(desired_value.value)
        except SettingError as error:
            refused.append(Refusal("invalid", desired_value.key, str(error)))
            continue
        if desired_value.key in seen:
            refused.append(Refusal("invalid", desired_value.key, f"{desired_value.key} is named twice; name it once."))
        elif (why := setting.missing_reason(view)) is not None:
            refused.append(Refusal("unknown", desired_value.key, why))
        elif (was := setting.current(view)) is None:
            sentence = f"The current value of {setting.describe(view)} is unknown, so it cannot be changed."
            refused.append(Refusal("unsupported", desired_value.key, sentence))
        elif not setting.equal(was, value):
            actions.append(Action(setting.key, was, value, reason))
        seen.add(desired_value.key)
    actions = in_write_order(actions)
    plan = Plan(actions, allow_isolated)
    refused += refusals(view, [(a.key, a.becomes) for a in actions], allow_isolated=allow_isolated)
    refused += combined_refusals(view, {action.key: action.becomes for action in actions})
    return Preview(
        plan=plan,
        sentence=_refused(refused) if refused else summarize_plan(view, plan),
        commands=[] if refused else [parse_setting(a.key).shell_command(a.becomes) for a in actions],
        warnings=warnings(view, [(a.key, a.becomes) for a in actions], allow_isolated=allow_isolated),
        refused=refused,
    )


def _refused(refused: list[Refusal]) -> str:
    first = refused[0].sentence
    return f"Refused: {first}" if len(refused) == 1 else f"Refused for {len(refused)} reasons, the first: {first}"


def summarize_plan(view: View, plan: Plan) -> str:
    """Return a sentence with every change of a plan: setting, old and new value. Keys and values must be valid."""
    if not plan.actions:
        return "Nothing would change: every setting already has the desired value."
    parts = []
    for action in plan.actions:
        setting = parse_setting(action.key)
        was, becomes = setting.format_value(action.was), setting.format_value(action.becomes)
        parts.append(f"{setting.describe(view)} changes from {was} to {becomes}")
    return "; ".join(parts) + "."
