"""Predict how near to each process its packets will be handled after a plan."""

from coresteer_core.changes.plan import Plan
from coresteer_core.node.locality import ByDistance, bytes_by_distance
from coresteer_core.node.tasks import NetTask
from coresteer_core.node.view import View
from coresteer_core.settings.overlay import overlay

_MOST_SENTENCES = 8


def predict_distance(plan: Plan, view: View) -> list[str]:
    """Return a sentence for each process whose received bytes a plan brings nearer or farther, the heaviest first.

    It has the shares of the bytes of protocol work and of polling on a core or L2 of the process, of those whose CPU
    is known.
    """
    after = overlay(view, {action.key: action.becomes for action in plan.actions})
    changed = [(was, now) for was, now in zip(view.tasks, after.tasks, strict=True) if was != now]
    heaviest = sorted(changed, key=lambda pair: -sum(each.rx_bytes_per_s for each in pair[0].rx_placements))
    found = [sentence for was, now in heaviest if (sentence := _sentence(was, now, view, after))]
    more = len(found) - _MOST_SENTENCES
    return [*found[:_MOST_SENTENCES], f"And {more} more processes."] if more > 0 else found


def _sentence(was: NetTask, now: NetTask, view: View, after: View) -> str:
    before = bytes_by_distance([was], view.topology, view.inventory, sent=False)
    later = bytes_by_distance([now], after.topology, after.inventory, sent=False)
    if before == later:
        return ""
    work, polling = (
        f"{_percent(old)} → {_percent(new)}"
        for old, new in ((before.protocol, later.protocol), (before.polling, later.polling))
    )
    return (
        f"{was.name} ({was.pid}): {work} of its received bytes get their protocol work on a core or L2 that it shares; "
        f"polling {polling}."
    )


def _percent(sums: ByDistance) -> str:
    return "unknown" if sums.shared_l2 is None else f"{100 * sums.shared_l2:.0f} %"
