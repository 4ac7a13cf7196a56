"""State machine of a change in the backend, driven by its agent's reports. Pure."""

import math
from datetime import datetime, timedelta

from coresteer_core.changes.report import ChangeMessage, ChangeState, EndedBy

REPORT_TIMEOUT_S = 15
"""A connected agent answers within this time."""
_MAX_WAIT_S = 600.0

_NEXT = {
    ChangeState.APPLYING: {
        ChangeState.APPLYING,
        ChangeState.UNCONFIRMED,
        ChangeState.CONFIRMED,
        ChangeState.ROLLED_BACK,
        ChangeState.FAILED,
    },
    ChangeState.UNCONFIRMED: {
        ChangeState.UNCONFIRMED,
        ChangeState.CONFIRMED,
        ChangeState.ROLLED_BACK,
        ChangeState.FAILED,
    },
    ChangeState.CONFIRMED: {ChangeState.CONFIRMED, ChangeState.ROLLED_BACK, ChangeState.FAILED},
    # a roll back that failed can be requested again
    ChangeState.FAILED: {ChangeState.FAILED, ChangeState.ROLLED_BACK},
    ChangeState.ROLLED_BACK: {ChangeState.ROLLED_BACK},
}
"""Possible states after each state: late or repeated reports have no effect; a skipped state is a lost report."""


def confirm_deadline(message: ChangeMessage, now: datetime) -> datetime | None:
    """Return when an unconfirmed change will be rolled back, by the backend's clock; None in other states."""
    left = message.remaining_s
    if message.state is not ChangeState.UNCONFIRMED or left is None or not math.isfinite(left):
        return None
    return now + timedelta(seconds=min(max(left, 0.0), _MAX_WAIT_S))


def state_after(before: ChangeState, report: ChangeMessage) -> ChangeState | None:
    """Return a change's state after a report of its agent, None when the report must be ignored.

    An agent that no longer knows a change reports it as failed by error; a confirmed change stays confirmed then.
    """
    if report.state not in _NEXT[before]:
        return None
    if before is ChangeState.CONFIRMED and report.state is ChangeState.FAILED and report.ended_by is EndedBy.ERROR:
        return ChangeState.CONFIRMED
    return report.state


def unknown_state(
    state: ChangeState, *, created_at: datetime, deadline_at: datetime | None, now: datetime
) -> tuple[datetime, str] | None:
    """Return since when and why the state of an open change is unknown to the backend, None while it is known."""
    if state is ChangeState.APPLYING:
        since = created_at + timedelta(seconds=REPORT_TIMEOUT_S)
        sentence = (
            f"The agent has not answered for {REPORT_TIMEOUT_S} s: it is not known whether the change was applied. "
            "While it is connected, it is asked again; an applied change is rolled back unless it is confirmed."
        )
    elif state is ChangeState.UNCONFIRMED and deadline_at is not None:
        since = deadline_at + timedelta(seconds=REPORT_TIMEOUT_S)
        sentence = (
            "The confirmation timeout is over and the agent has not reported since. The agent rolls the change back by "
            "itself; the result is not known until it reconnects."
        )
    else:
        return None
    return (since, sentence) if now >= since else None
