"""Stores what an agent reports, up to its node's quota."""

from coresteer.gateway.context import GatewayContext
from coresteer.gateway.presented_key import Refused
from coresteer.quotas import Peer, Stored, stored_size
from coresteer_core.changes.report import ChangeMessage
from coresteer_core.protocol import (
    CloseCode,
    DecisionMessage,
    ExperimentMessage,
    InventoryMessage,
    LearnedMessage,
    StoppedMessage,
    ToBackend,
    TopologyMessage,
)

MAX_REPORT_BYTES = 1024**2
"""Of a decision, or a report about a change or experiment, which takes ten times as much while it is stored."""


def may_store(context: GatewayContext, node_id: int, frame: bytes) -> bool:
    """Return whether the node's quota has room for a report, and count it."""
    return context.quotas.admit(Peer("node", node_id), Stored.REPORTS, stored_size(frame))


async def store_report(context: GatewayContext, node_id: int, epoch: int, message: ToBackend, frame: bytes) -> None:
    """Store a validated report that came by the connection with this epoch, or drop it if it exceeds the node's quota.

    Raises Refused for one that is too large.
    """
    if len(frame) > MAX_REPORT_BYTES and isinstance(message, ChangeMessage | DecisionMessage | ExperimentMessage):
        kind = type(message).__name__.removesuffix("Message")
        raise Refused(CloseCode.TOO_LARGE, f"{kind}: {len(frame)} bytes exceed the limit of {MAX_REPORT_BYTES}.")
    if not may_store(context, node_id, frame):
        return
    match message:
        case TopologyMessage(state) | InventoryMessage(state):
            context.recorder.record(node_id, epoch, state)
            context.snapshots.add_snapshot(node_id, state)
        case LearnedMessage(learned):
            context.recorder.record(node_id, epoch, learned)
        case ChangeMessage():
            await context.record_change_report(node_id, message)
        case StoppedMessage():
            await context.record_stopped(node_id, message)
        case DecisionMessage():
            await context.record_decision(node_id, message)
        case ExperimentMessage():
            await context.runner.handle_message(node_id, message)
