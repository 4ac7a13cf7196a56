"""Times of nodes whose clock is wrong: moved by the offset that was measured when the agent connected.

Times of a clock that is off by up to MAX_CLOCK_ERROR_MS are stored uncorrected, next to its skew.
"""

from typing import TypeVar

from msgspec.structs import replace

from coresteer.gateway.validation import MAX_CLOCK_ERROR_MS
from coresteer_core.node.rates import Rates
from coresteer_core.node.summary import Summary
from coresteer_core.protocol import (
    ClassesMessage,
    DecisionMessage,
    ExperimentMessage,
    FlowsMessage,
    RatesMessage,
    SummaryMessage,
    TasksMessage,
    ToBackend,
)

T = TypeVar("T", bound=ClassesMessage | FlowsMessage | TasksMessage | Rates | Summary)


def correction_of(node_ms: int | None, now_ms: int) -> int:
    """Return how many ms to add to the times of a node that says node_ms now; 0 unless its clock is wrong."""
    offset_ms = 0 if node_ms is None else node_ms - now_ms
    return -offset_ms if is_wrong(offset_ms) else 0


def is_wrong(offset_ms: float) -> bool:
    """Return whether a clock with this offset is too far from the backend's for its times to be stored."""
    return abs(offset_ms) > MAX_CLOCK_ERROR_MS


def corrected(message: ToBackend, by_ms: int) -> ToBackend:
    """Return a message with its times of the node's clock moved by a number of ms; those of a block are in it."""
    match message:
        case _ if by_ms == 0:
            pass
        case RatesMessage(rates):
            return RatesMessage(_moved(rates, by_ms))
        case SummaryMessage(summary):
            return SummaryMessage(_moved(summary, by_ms))
        case FlowsMessage() | ClassesMessage() | TasksMessage():
            return _moved(message, by_ms)
        case DecisionMessage(holdout=holdout):
            if holdout is not None:
                holdout = replace(holdout, since_ms=max(0, holdout.since_ms + by_ms))
            return replace(message, time_ms=message.time_ms + by_ms, holdout=holdout)
        case ExperimentMessage(measured=measured) if measured is not None:
            return replace(message, measured=replace(measured, started_ms=measured.started_ms + by_ms))
    return message


def _moved(message: T, by_ms: int) -> T:
    return replace(message, time_ms=message.time_ms + by_ms)
