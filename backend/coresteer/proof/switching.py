"""Whether an agent held a policy out, and put it in force again, when an episode's blocks began. Pure."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from coresteer.proof.schedule import BLOCKS_PER_EPISODE
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


def end_of(row: ProofEpisodeRow) -> datetime:
    """Return when an episode's second block ends."""
    return row.started_at + timedelta(seconds=BLOCKS_PER_EPISODE * row.block_s)
