"""Validation of plans for previews and requests alike: whether one may be applied to a node now. Pure."""

from collections.abc import Sequence

import msgspec

from coresteer.auth.dependencies import Identity
from coresteer.auth.schemas import Role
from coresteer.changes.tables import ChangeRow
from coresteer.errors import Conflict, Invalid
from coresteer.nodes.service import reported_state
from coresteer.nodes.tables import NodeRow, effective_labels
from coresteer_core.changes.plan import DesiredValue, Plan, Preview, preview
from coresteer_core.node.view import View
from coresteer_core.protocol import FlowsMessage, Hello
from coresteer_core.settings import SettingError, parse_setting


def view_of_node(node: NodeRow, flows: FlowsMessage | None = None) -> View:
    """Return the node's view from its latest reports. Raises Conflict until it has reported topology and inventory."""
    topology, inventory, learned = reported_state(node)
    if topology is None or inventory is None:
        raise Conflict(
            f"{node.name} has not reported its topology and interrupts yet; try again once it has connected."
        )
    if flows is None:
        return View(topology, inventory, learned=learned)
    return View(
        topology,
        inventory,
        tasks=flows.tasks,
        learned=learned,
        cgroups=flows.cgroups,
        numa=flows.numa,
        cpusets=flows.cpusets,
    )


def blocked_because(
    node: NodeRow,
    plan: Plan,
    *,
    identity: Identity,
    connected: bool,
    others: Sequence[ChangeRow],
    elsewhere: str | None = None,
) -> str | None:
    """Return why a valid plan cannot be applied now, None if it can.

    others: the node's open changes. elsewhere: why its agent, which is connected, cannot be reached.
    """
    if identity.role_on(effective_labels(node.hello, node.token_labels, node.labels)) is Role.VIEWER:
        return f"Changing a node needs the role operator; yours is viewer on {node.name}."
    if not plan.actions:
        return "There is nothing to do: every setting already has the desired value."
    if elsewhere is not None or not connected:
        return elsewhere or f"{node.name} is disconnected; a change needs its agent connected."
    hello = msgspec.convert(node.hello, Hello) if node.hello is not None else None
    if hello is None or hello.mode != "control":
        reason = hello.observe_reason if hello is not None else None
        return f"The agent on {node.name} only observes. {reason or 'It reported no reason.'}"
    planned = {action.key for action in plan.actions}
    for other in others:
        keys = {action.key for action in msgspec.convert(other.plan, Plan).actions}
        if shared := sorted(keys & planned):
            return f"{shared[0]} is part of an open change by {other.created_by}; confirm it or roll it back first."
    return None


def check_plan(plan: Plan) -> None:
    """Check the form of a plan sent by a client. Raises Invalid with the field and the key."""
    seen: set[str] = set()
    for place, action in enumerate(plan.actions):
        at = f"plan.actions[{place}]"
        try:
            setting = parse_setting(action.key)
        except SettingError as error:
            raise Invalid(str(error), field=f"{at}.key") from None
        if action.key in seen:
            raise Invalid(f"{action.key} is in the plan twice.", field=f"{at}.key")
        seen.add(action.key)
        for name, value in (("was", action.was), ("becomes", action.becomes)):
            try:
                canonical = setting.canonical(value)
            except SettingError as error:
                raise Invalid(f"{action.key}: {error}", field=f"{at}.{name}") from None
            if canonical != value:
                raise Invalid(f"{action.key}: write {canonical} instead of {value}.", field=f"{at}.{name}")


def check_against_node(view: View, plan: Plan) -> Preview:
    """Return the preview of a plan on the node as it is now. Raises Conflict when it is refused or outdated."""
    desired = [DesiredValue(action.key, action.becomes) for action in plan.actions]
    now = preview(view, desired, reason="", allow_isolated=plan.allow_isolated)
    if now.refused:
        raise Conflict(" ".join(f"{refusal.key}: {refusal.sentence}" for refusal in now.refused))
    is_now = {action.key: action.was for action in now.plan.actions}
    for action in plan.actions:
        if action.key not in is_now:
            raise Conflict(f"{action.key} is already {action.becomes}; preview it again.")
        if not parse_setting(action.key).equal(is_now[action.key], action.was):
            raise Conflict(f"{action.key} is {is_now[action.key]} now, no longer {action.was}; preview it again.")
    return now
