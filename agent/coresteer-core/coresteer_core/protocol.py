"""Messages between an agent and the backend: msgpack maps with a ``type`` field, one per WebSocket frame.

The agent sends Hello first; the backend answers with Welcome or closes the connection with a reason. Every RatesMessage
has a sequence number that grows by one within a stream. The backend acknowledges a number only after all samples up to
it are committed, and after a reconnect Welcome has the last one acknowledged. So nothing acknowledged is lost and
nothing is stored twice. Decoding enforces the bounds of fields (coresteer_core.bounds).
"""

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct

from coresteer_core.bounds import (
    CgroupPath,
    Count,
    Name,
    PolicyId,
    Sentence,
)
from coresteer_core.changes.guardrail import Guardrail
from coresteer_core.changes.plan import Plan
from coresteer_core.changes.report import ChangeMessage, ChangeState
from coresteer_core.experiments.model import Measured, Role, Run, RunState, Workload
from coresteer_core.node.inventory import Inventory
from coresteer_core.node.nic import Learned
from coresteer_core.node.rates import Rates
from coresteer_core.node.service_classes import MAX_CLASSES, ClassFigures
from coresteer_core.node.tasks import MAX_NET_TASKS, MAX_TASKS, NetTask, Task
from coresteer_core.node.topology import Topology
from coresteer_core.policies.base import Evaluation
from coresteer_core.policies.engine_state import PolicyInForce

PROTOCOL = 6
"""Version, incremented when an older peer could misinterpret a message. Peers must agree; unknown fields are ignored.

6: the field names of docs/GLOSSARY.md (rx_placements, evaluation, deferred, skipped).
"""

MAX_FRAME_BYTES = 4 * 1024 * 1024
"""Larger than any valid message (topology and inventory of 8,192 CPUs)."""


# Agent to backend


class Hello(Struct, frozen=True, tag="hello"):
    """Identity of the agent. stream: random, new for each agent process. observe_reason: why the mode is observe."""

    protocol: int
    agent_version: Name
    hostname: Name
    kernel: Name
    machine_id: Name
    boot_id: Name
    stream: Annotated[str, Meta(min_length=1, max_length=256)]
    first_seq: Count
    interval_s: Annotated[float, Meta(ge=0.05, le=3600)]
    mode: Literal["control", "observe"]
    observe_reason: Sentence | None = None
    simulated: bool = False
    labels: Annotated[dict[Name, Name], Meta(max_length=64)] = {}


class TopologyMessage(Struct, frozen=True, tag="topology"):
    """Sent after Welcome and after each hot-plug."""

    topology: Topology


class InventoryMessage(Struct, frozen=True, tag="inventory"):
    """Sent after Welcome and after each change of the inventory."""

    inventory: Inventory


class RatesMessage(Struct, frozen=True, tag="rates"):
    """Rates of one interval."""

    rates: Rates


class TasksMessage(Struct, frozen=True, tag="tasks"):
    """The busiest processes, every few seconds; not stored."""

    time_ms: int
    tasks: Annotated[list[Task], Meta(max_length=MAX_TASKS)]


class FlowsMessage(Struct, frozen=True, tag="flows"):
    """Processes that communicate over the network and their RX placements, every few seconds; stored for backtests.

    exact: bytes are counted by eBPF and include UDP; otherwise by TCP sockets, and UDP is unknown. cgroups: as in
    View.
    """

    time_ms: int
    tasks: Annotated[list[NetTask], Meta(max_length=MAX_NET_TASKS)]
    exact: bool = False
    cgroups: Annotated[dict[CgroupPath, dict[Name, Name]], Meta(max_length=2 * MAX_NET_TASKS)] = {}


class LearnedMessage(Struct, frozen=True, tag="learned"):
    """Knowledge of the agent about its NICs: after Welcome, and at most every 10 s when it has changed."""

    learned: Learned


class ClassesMessage(Struct, frozen=True, tag="classes"):
    """Attainment of the service classes of one policy, every second while it is in force."""

    time_ms: int
    policy_id: PolicyId
    classes: Annotated[list[ClassFigures], Meta(max_length=MAX_CLASSES)]


class DecisionMessage(Struct, frozen=True, tag="decision"):
    """Evaluation of a policy, sent when it differs from the last one sent for that policy.

    change_id: of the change that applies its actions; None where nothing is written.
    """

    time_ms: int
    evaluation: Evaluation
    change_id: str | None = None


class ExperimentMessage(Struct, frozen=True, tag="experiment"):
    """State of the experiment that this agent has begun, or of one of its runs.

    ready: namespaces or server exist; address and netdev are those at which the server can be reached. loaded: the
    run's workload has started and its warm-up begins. measured: with the result. failed: the sentence says why.
    run_id: None for the experiment as a whole.
    """

    experiment_id: Annotated[int, Meta(gt=0, lt=2**31)]
    state: RunState
    run_id: Name | None = None
    sentence: Sentence = ""
    address: Name = ""
    netdev: Annotated[str, Meta(pattern=r"\A([A-Za-z0-9_][A-Za-z0-9_.@+-]{0,14})?\Z")] = ""
    measured: Measured | None = None


class Clock(Struct, frozen=True, tag="clock"):
    """Answer to Ping with the node's Unix time."""

    ping_ms: int
    node_ms: int


# Backend to agent


class Welcome(Struct, frozen=True, tag="welcome"):
    """Acceptance of a connection. acked_seq: the last stored sequence number of this stream, 0 for none."""

    protocol: int
    node_id: int
    acked_seq: int


class Ack(Struct, frozen=True, tag="ack"):
    """Acknowledgement that everything up to seq is on disk."""

    seq: int


class Apply(Struct, frozen=True, tag="apply"):
    """Apply a plan and wait confirm_timeout_s (30 to 600) for Confirm."""

    change_id: str
    plan: Plan
    confirm_timeout_s: float
    guardrails: list[Guardrail] = []


class Confirm(Struct, frozen=True, tag="confirm"):
    """Confirm the change."""

    change_id: str


class Rollback(Struct, frozen=True, tag="rollback"):
    """Roll the change back now, confirmed or not."""

    change_id: str


class Extend(Struct, frozen=True, tag="extend"):
    """Wait longer for Confirm, at most 600 s from now."""

    change_id: str
    seconds: float


class Policies(Struct, frozen=True, tag="policies"):
    """Every policy in force on the node, replacing those sent before. The agent stores them."""

    policies: list[PolicyInForce]


class BeginExperiment(Struct, frozen=True, tag="begin_experiment"):
    """Prepare what the runs of an experiment share, such as network namespaces. This ends an experiment still open.

    The agent removes it at EndExperiment, when the backend stays away or connects again, and when the agent ends.
    """

    experiment_id: int
    workload: Workload
    role: Role


class RunExperiment(Struct, frozen=True, tag="run_experiment"):
    """Execute one run now; its settings are already applied."""

    experiment_id: int
    run: Run


class EndExperiment(Struct, frozen=True, tag="end_experiment"):
    """Stop the workload at once and remove what was prepared."""

    experiment_id: int


class Ping(Struct, frozen=True, tag="ping"):
    """Request for Clock."""

    ping_ms: int


class ChangeAck(Struct, frozen=True, tag="change_ack"):
    """Acknowledgement that this state of a change is stored; the agent does not send it again."""

    change_id: str
    state: ChangeState


ToBackend: TypeAlias = (
    Hello
    | TopologyMessage
    | InventoryMessage
    | RatesMessage
    | TasksMessage
    | FlowsMessage
    | LearnedMessage
    | ClassesMessage
    | DecisionMessage
    | ChangeMessage
    | ExperimentMessage
    | Clock
)
ToAgent: TypeAlias = (
    Welcome
    | Ack
    | Apply
    | Confirm
    | Rollback
    | Extend
    | Ping
    | ChangeAck
    | Policies
    | BeginExperiment
    | RunExperiment
    | EndExperiment
)

_encoder = msgspec.msgpack.Encoder()
_to_backend: msgspec.msgpack.Decoder[ToBackend] = msgspec.msgpack.Decoder(ToBackend)
_to_agent: msgspec.msgpack.Decoder[ToAgent] = msgspec.msgpack.Decoder(ToAgent)


class ProtocolError(ValueError):
    """A frame is not a message of this protocol or out of bounds; the text names the field's path."""


class Close:
    """WebSocket close codes of the backend, each sent with a reason."""

    BAD_FRAME = 4400
    BAD_KEY = 4401
    VERSION = 4406
    REPLACED = 4409
    TOO_LARGE = 1009


def encode(message: ToBackend | ToAgent) -> bytes:
    """Return a message as a WebSocket frame."""
    return _encoder.encode(message)


def decode_to_backend(frame: bytes) -> ToBackend:
    """Decode a frame from an agent. Raises ProtocolError; coresteer.gateway.validation checks how fields relate."""
    try:
        message: ToBackend = _to_backend.decode(frame)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"Invalid message of protocol {PROTOCOL}: {error}") from None
    return message


def decode_to_agent(frame: bytes) -> ToAgent:
    """Decode a frame from the backend. Raises ProtocolError."""
    try:
        message: ToAgent = _to_agent.decode(frame)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"Invalid message of protocol {PROTOCOL}: {error}") from None
    return message
