"""The blocks of an episode: what runs when, and whether the agent switched in time. Pure."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from coresteer.proof.exclusion import Block, Exclusion
from coresteer.proof.schedule import BLOCKS_PER_EPISODE, Design, in_holdout
from coresteer.proof.tables import ProofEpisodeRow
from coresteer.telemetry.repository import from_unix_ms
from coresteer_core.policies.base import HoldoutReport, HoldoutState

TOLERANCE = timedelta(seconds=2)
"""Error of the estimated clock skew, and latency of messages."""


def has_switched(row: ProofEpisodeRow, reports: Iterable[HoldoutReport], skew: timedelta) -> bool:
    """Return whether the agent began and ended the holdout within a wash-out. skew: of the node's clock.

    Both switches count whichever block came first, also the one after the episode: with one in one order and two in the
    other, an agent that is often late would exclude more episodes of one order.
    """
    block, washout = timedelta(seconds=row.block_s), timedelta(seconds=row.washout_s)
    begins = row.started_at if row.holdout_first else row.started_at + block
    known = [one for one in reports if one.version == row.version]
    if any(one.state is HoldoutState.REFUSED for one in known):
        return False

    def reached(state: HoldoutState, at: datetime) -> bool:
        since = (from_unix_ms(one.since_ms) - skew for one in known if one.state is state)
        return any(at - TOLERANCE <= one <= at + washout + TOLERANCE for one in since)

    return reached(HoldoutState.HELD_OUT, begins) and reached(HoldoutState.IN_FORCE, begins + block)


def excepted_settings(reports: Iterable[HoldoutReport]) -> list[str]:
    """Return the settings that stayed in force during a holdout, such as rings, whose write interrupts traffic."""
    held_out = (one for one in reports if one.state is HoldoutState.HELD_OUT)
    return sorted({skipped.subject for one in held_out for skipped in one.excepted})


def was_late(row: ProofEpisodeRow, last: datetime, now: datetime) -> bool:
    """Return whether the first block ended, or the second one, too long before now, and after the last check.

    Then the agent may have received the switch too late. Both moments count whichever block came first.
    """
    late = timedelta(seconds=Design(row.block_s, 0.0, 0.0).late_s)
    ends = (row.started_at + timedelta(seconds=block * row.block_s) for block in (1, BLOCKS_PER_EPISODE))
    return any(last < end < now - late for end in ends)


def block_at(row: ProofEpisodeRow, at: datetime) -> Block | None:
    """Return in which of its blocks an episode is at a time; None before and after them."""
    if not row.started_at <= at < end_of(row):
        return None
    held_out = in_holdout(row.started_at.timestamp(), row.block_s, row.holdout_first, at.timestamp())
    return Block.HOLDOUT if held_out else Block.ENFORCED


def exclude(row: ProofEpisodeRow, reason: Exclusion, at: datetime, block: Block | None = None) -> None:
    """Leave an episode out. block: for what happened in it; None for both, or for what has nothing to do with them."""
    row.state, row.reason, row.block, row.ended_at = "excluded", reason, block, at


def end_of(row: ProofEpisodeRow) -> datetime:
    """Return when an episode's second block ends."""
    return row.started_at + timedelta(seconds=BLOCKS_PER_EPISODE * row.block_s)
