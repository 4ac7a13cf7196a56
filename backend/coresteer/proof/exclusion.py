"""Why an episode does not count. The reasons are symmetric in both blocks, so that they do not depend on the coin."""

from enum import StrEnum


class Exclusion(StrEnum):
    """Reason for which an episode is left out."""

    DISCONNECTED = "disconnected"
    INTERRUPTED = "interrupted"
    PAUSED = "paused"
    VERSION = "version"
    EXPERIMENT = "experiment"
    CHANGE = "change"
    NOT_SWITCHED = "not_switched"
    MISSING_DATA = "missing_data"
    LITTLE_TRAFFIC = "little_traffic"


SENTENCES = {
    Exclusion.DISCONNECTED: "The node's agent was disconnected.",
    Exclusion.INTERRUPTED: "The backend restarted.",
    Exclusion.PAUSED: "All proofs were paused.",
    Exclusion.VERSION: "Another version of the policy, or none, came into force on the node.",
    Exclusion.EXPERIMENT: "An experiment ran on the node.",
    Exclusion.CHANGE: "Somebody changed settings of the node.",
    Exclusion.NOT_SWITCHED: "The agent did not report that it held the policy out, and enforced it, in time.",
    Exclusion.MISSING_DATA: "The samples of a block are incomplete.",
    Exclusion.LITTLE_TRAFFIC: "A block had less than the minimum traffic.",
}
"""Each reason as a sentence."""
