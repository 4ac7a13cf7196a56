"""Why an episode does not count, and for which block. Pure.

The reasons are symmetric in both blocks, so that they do not depend on the coin.
But a version that disconnects nodes, or stops what is measured, while it is in force excludes episodes for what happens
in their enforced blocks. So the block is recorded with the reason. Without such an effect the two kinds are equally
likely, whatever the reasons are, because a coin decides which block is the holdout.
"""

import math
from enum import StrEnum


class Exclusion(StrEnum):
    """Reason for which an episode is left out."""

    DISCONNECTED = "disconnected"
    INTERRUPTED = "interrupted"
    LATE = "late"
    PAUSED = "paused"
    ROLLOUT = "rollout"
    VERSION = "version"
    STOPPED = "stopped"
    EXPERIMENT = "experiment"
    CHANGE = "change"
    NOT_SWITCHED = "not_switched"
    MISSING_DATA = "missing_data"
    LITTLE_TRAFFIC = "little_traffic"
    FAILED = "failed"


class Block(StrEnum):
    """The two blocks of an episode."""

    ENFORCED = "enforced"
    HOLDOUT = "holdout"


SENTENCES = {
    Exclusion.DISCONNECTED: "The node's agent was disconnected.",
    Exclusion.INTERRUPTED: "The backend restarted.",
    Exclusion.LATE: "The backend was busy when a block began or ended.",
    Exclusion.PAUSED: "All proofs were paused.",
    Exclusion.ROLLOUT: "A rollout that has the node in one of its stages began.",
    Exclusion.VERSION: "Another version of the policy, or none, came into force on the node.",
    Exclusion.STOPPED: "Enforcement was stopped on the node.",
    Exclusion.EXPERIMENT: "An experiment ran on the node.",
    Exclusion.CHANGE: "Somebody changed settings of the node.",
    Exclusion.NOT_SWITCHED: "The agent did not report that it held the policy out, and enforced it, in time.",
    Exclusion.MISSING_DATA: "The samples of a block are incomplete.",
    Exclusion.LITTLE_TRAFFIC: "There was less than the minimum traffic before the first block.",
    Exclusion.FAILED: "The analysis failed; the backend's log says why.",
}
"""Each reason as a sentence."""

BIASED = "more than chance explains, so that the effect may be biased"

_BIASED_FROM = 20.0


def is_biased(enforced: int, holdout: int) -> bool:
    """Return whether more episodes were excluded for one of their blocks than chance explains.

    Under a fair coin 2ⁿ ∫ pᵃ (1 − p)ᵇ dp is a martingale with the mean 1, so it ever reaches 20 with a probability
    below 5 %, however often one looks.
    """
    n = enforced + holdout
    log = n * math.log(2) + math.lgamma(enforced + 1) + math.lgamma(holdout + 1) - math.lgamma(n + 2)
    return log >= math.log(_BIASED_FROM)


def missing_in(metric: str, block: Block) -> str:
    """Return the name under which episodes that count, but lack a guardrail in this block only, are summed as zeros."""
    return f"{metric} missing in {block}"
