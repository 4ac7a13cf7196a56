"""What an agent's message says about the present: at the backend of its connection, and at those that need the node."""

from coresteer.bus import InventoryEvent, PoliciesEvent
from coresteer.gateway.context import GatewayContext
from coresteer.gateway.validation import Arrival, validate
from coresteer.presence.registry import NodeState
from coresteer.telemetry.service import now_ms
from coresteer_core.protocol import (
    ClassesMessage,
    ExperimentMessage,
    FlowsMessage,
    RatesMessage,
    SummaryMessage,
    TasksMessage,
    ToBackend,
)

_LIVE_WITHIN_MS = 15_000


def is_present(state: NodeState, time_ms: int) -> bool:
    """Return whether what the node measured then is for the present: resent samples are for the history only."""
    age_ms = now_ms() + (state.clock_skew_ms or 0) - time_ms
    return age_ms <= _LIVE_WITHIN_MS + 3000 * state.interval_s


def show(context: GatewayContext, node_id: int, state: NodeState, message: ToBackend, size: int) -> None:
    """Take a validated message into the node's state, and show it to browsers and experiments. size: bytes of it."""
    match message:
        case SummaryMessage(summary) if is_present(state, summary.time_ms):
            if state.add_summary(summary):  # after a Watch the agent repeats it
                context.runner.handle_summary(node_id, summary)
        case RatesMessage(rates) if is_present(state, rates.time_ms):
            state.add_rates(rates, size)
            context.live.publish_rates(node_id, rates)
            if not state.sends_columns and (newest := state.latest_summary()) is not None:
                context.runner.handle_summary(node_id, newest)
        case TasksMessage(_, tasks):
            state.tasks = tasks
            context.bus.deliver(InventoryEvent(node_id))
        case FlowsMessage():
            state.flows = message
            context.bus.deliver(PoliciesEvent(node_id))
        case ClassesMessage():
            state.add_classes(message)
            context.live.publish_classes(node_id, message)


def show_forwarded(context: GatewayContext, node_id: int, state: NodeState, message: ToBackend, size: int) -> None:
    """Show a message of a node that is connected to another backend, which stores it. Raises ValueError."""
    if not isinstance(message, FORWARDED):
        raise ValueError(f"{type(message).__name__} is not forwarded.")
    if wrong := validate(message, Arrival(now_ms())):
        raise ValueError(wrong)
    if isinstance(message, ExperimentMessage):
        context.runner.pass_on(node_id, message)
    else:
        show(context, node_id, state, message, size)


FORWARDED = (SummaryMessage, RatesMessage, TasksMessage, FlowsMessage, ClassesMessage, ExperimentMessage)
"""Messages that other backends need of a node; they read the others from the database."""
