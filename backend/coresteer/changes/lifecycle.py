"""A change's life as the backend keeps it: what an agent's report means for what is known so far. Pure."""

import math
from datetime import datetime, timedelta

from coresteer_core.protocol import ChangeMessage, ChangeState, EndedBy

ANSWER_S = 15
"""An agent that is there answers within this time."""
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
    # an undo that failed halfway can be asked for again
    ChangeState.FAILED: {ChangeState.FAILED, ChangeState.ROLLED_BACK},
    ChangeState.ROLLED_BACK: {ChangeState.ROLLED_BACK},
}
"""Forward only: a late or repeated report never takes a change back. A skipped state means a lost report."""


def deadline(message: ChangeMessage, now: datetime) -> datetime | None:
    """When an unconfirmed change returns, on the backend's clock: the node's own may be wrong."""
    left = message.remaining_s
    if message.state is not ChangeState.UNCONFIRMED or left is None or not math.isfinite(left):
        return None
    return now + timedelta(seconds=min(max(left, 0.0), _MAX_WAIT_S))


def state_after(known: ChangeState, told: ChangeMessage) -> ChangeState | None:
    """The state after a report, None when it says nothing new about the state and is to be left aside.

    An agent that has forgotten a change calls it failed by error; a change that was kept stays kept then.
    """
    if told.state not in _NEXT[known]:
        return None
    if known is ChangeState.CONFIRMED and told.state is ChangeState.FAILED and told.ended_by is EndedBy.ERROR:
        return ChangeState.CONFIRMED
    return told.state


def doubt(
    state: ChangeState, *, created_at: datetime, deadline_at: datetime | None, now: datetime
) -> tuple[datetime, str] | None:
    """Since when and why it is not known how an open change stands; None while there is no doubt."""
    if state is ChangeState.APPLYING:
        since = created_at + timedelta(seconds=ANSWER_S)
        sentence = (
            f"The agent has not answered for {ANSWER_S} s: whether the change was carried out is not known. "
            "It is asked again when it connects; if it was carried out, it undoes itself unless it is kept."
        )
    elif state is ChangeState.UNCONFIRMED and deadline_at is not None:
        since = deadline_at + timedelta(seconds=ANSWER_S)
        sentence = (
            "The time to keep it is over and the agent has not reported since: by its rules it has undone the change, "
            "but that is not known before it connects again."
        )
    else:
        return None
    return (since, sentence) if now >= since else None
