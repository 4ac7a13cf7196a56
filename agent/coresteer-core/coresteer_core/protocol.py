"""The messages between an agent and the backend: msgpack maps with a ``type`` field, one a WebSocket frame.

The agent speaks first (Hello), the backend answers (Welcome) or closes with a reason. Every Rates
carries a sequence number that grows by one within a stream; the backend acknowledges a number only
after all up to it are committed, and after a reconnect tells in Welcome from where to go on. So
nothing acknowledged is lost and nothing is stored twice.
"""

from enum import StrEnum
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct

from coresteer_core.bounds import (
    MAX_INTEGER,
    CgroupPath,
    Count,
    Name,
    PolicyId,
    Sentence,
)
from coresteer_core.changes.guardrail import Guardrail
from coresteer_core.changes.plan import Plan
from coresteer_core.experiments.model import Measured, Role, Run, RunState, Workload
from coresteer_core.node.inventory import Inventory
from coresteer_core.node.nic import Learned
from coresteer_core.node.rates import Rates
from coresteer_core.node.service_classes import MAX_CLASSES, ClassFigures
from coresteer_core.node.tasks import MAX_NET_TASKS, MAX_TASKS, NetTask, Task
from coresteer_core.node.topology import Topology
from coresteer_core.policies.base import Evaluation
from coresteer_core.policies.engine_state import PolicyInForce

PROTOCOL = 5
"""Grows when an older peer could misunderstand. Peers must agree; unknown fields are ignored."""

MAX_FRAME_BYTES = 4 * 1024 * 1024
"""Larger than any honest message (a topology and inventory of 8,192 CPUs), small enough to refuse the rest."""


class ChangeState(StrEnum):
    """A change's life: previewed → applying → unconfirmed → confirmed | rolled_back | failed.

    A preview is a plan that nobody has applied yet: it is not kept, so it has no state here.
    """

    APPLYING = "applying"
    UNCONFIRMED = "unconfirmed"
    CONFIRMED = "confirmed"
    ROLLED_BACK = "rolled_back"
    FAILED = "failed"


class EndedBy(StrEnum):
    """What ended a change."""

    USER = "user"
    TIMEOUT = "timeout"
    GUARDRAIL = "guardrail"
    LOST_BACKEND = "lost_backend"
    AGENT_RESTART = "agent_restart"
    ERROR = "error"


class Outcome(StrEnum):
    """What became of one action. unsupported: the node has no such setting (any more)."""

    APPLIED = "applied"
    UNCHANGED = "unchanged"
    UNSUPPORTED = "unsupported"
    REFUSED = "refused"
    FAILED = "failed"


class Result(Struct, frozen=True):
    """An action's outcome, with a sentence for a person.

    found: the value that stood there before the write, read_back: the one after; None if unread.
    """

    key: str
    outcome: Outcome
    sentence: str
    found: str | None = None
    read_back: str | None = None

    @property
    def done(self) -> bool:
        """The setting stands as the action wanted it."""
        return self.outcome in (Outcome.APPLIED, Outcome.UNCHANGED)

    @property
    def stuck(self) -> bool:
        """The setting is there and does not stand as the action wanted it."""
        return self.outcome in (Outcome.REFUSED, Outcome.FAILED)


# Agent to backend


class Hello(Struct, frozen=True, tag="hello"):
    """Who speaks. stream: random, new for each agent process. mode: control or observe, with the reason for observe."""

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
    """Sent after Welcome and whenever it changed."""

    inventory: Inventory


class RatesMessage(Struct, frozen=True, tag="rates"):
    """One interval."""

    rates: Rates


class TasksMessage(Struct, frozen=True, tag="tasks"):
    """The busiest processes, every few seconds; not kept."""

    time_ms: int
    tasks: Annotated[list[Task], Meta(max_length=MAX_TASKS)]


class FlowsMessage(Struct, frozen=True, tag="flows"):
    """The processes that talk over the network and where their packets arrive, every few seconds; kept for replay.

    exact: bytes come from eBPF and include UDP; otherwise from TCP sockets only, and UDP is not known. cgroups: as
    View has them.
    """

    time_ms: int
    tasks: Annotated[list[NetTask], Meta(max_length=MAX_NET_TASKS)]
    exact: bool = False
    cgroups: Annotated[dict[CgroupPath, dict[Name, Name]], Meta(max_length=2 * MAX_NET_TASKS)] = {}


class LearnedMessage(Struct, frozen=True, tag="learned"):
    """What the agent has learned of its NICs: after Welcome, and at most every 10 s when it has changed."""

    learned: Learned


class ClassesMessage(Struct, frozen=True, tag="classes"):
    """How far the service classes of one policy get what they were promised; every second while it is in force."""

    time_ms: int
    policy_id: PolicyId
    classes: Annotated[list[ClassFigures], Meta(max_length=MAX_CLASSES)]


class DecisionMessage(Struct, frozen=True, tag="decision"):
    """What a policy's round came to. Sent when it differs from what was told of the policy last.

    change_id: of the change that carries its actions out; None where nothing is written.
    """

    time_ms: int
    evaluation: Evaluation
    change_id: str | None = None


class ChangeMessage(Struct, frozen=True, tag="change"):
    """Where a change stands. Sent at every step; the last one again after each Welcome until ChangeAck.

    deadline_ms: when an unconfirmed change returns (node's clock, Unix); remaining_s the same as a duration.
    results: of the plan or, once rolled back, of its inverse.
    """

    change_id: Annotated[str, Meta(max_length=64)]
    state: ChangeState
    sentence: str
    results: Annotated[list[Result], Meta(max_length=256)]
    ended_by: EndedBy | None = None
    deadline_ms: Annotated[int, Meta(gt=-MAX_INTEGER, lt=MAX_INTEGER)] | None = None
    remaining_s: Annotated[float, Meta(gt=-MAX_INTEGER, lt=MAX_INTEGER)] | None = None


class ExperimentMessage(Struct, frozen=True, tag="experiment"):
    """Word of the experiment that this agent has begun.

    ready: its namespaces or server are there, with the address and the netdev under which the server can be reached;
    loaded: the run's load is on and its warm-up begins; measured: with what it came to; failed: why, in the sentence.
    run_id: None of the experiment as a whole.
    """

    experiment_id: Annotated[int, Meta(gt=0, lt=2**31)]
    state: RunState
    run_id: Name | None = None
    sentence: Sentence = ""
    address: Name = ""
    netdev: Annotated[str, Meta(pattern=r"\A([A-Za-z0-9_][A-Za-z0-9_.@+-]{0,14})?\Z")] = ""
    measured: Measured | None = None


class Clock(Struct, frozen=True, tag="clock"):
    """Answer to Ping: the node's Unix time when it answered."""

    ping_ms: int
    node_ms: int


# Backend to agent


class Welcome(Struct, frozen=True, tag="welcome"):
    """acked_seq: the last stored sequence number of this stream, 0 for none."""

    protocol: int
    node_id: int
    acked_seq: int


class Ack(Struct, frozen=True, tag="ack"):
    """Everything up to seq is on disk."""

    seq: int


class Apply(Struct, frozen=True, tag="apply"):
    """Carry a plan out and wait confirm_timeout_s (30 to 600) for Confirm."""

    change_id: str
    plan: Plan
    confirm_timeout_s: float
    guardrails: list[Guardrail] = []


class Confirm(Struct, frozen=True, tag="confirm"):
    """Keep the change."""

    change_id: str


class Rollback(Struct, frozen=True, tag="rollback"):
    """Undo the change now, confirmed or not."""

    change_id: str


class Extend(Struct, frozen=True, tag="extend"):
    """Wait that much longer for Confirm, 600 s from now at the most."""

    change_id: str
    seconds: float


class Policies(Struct, frozen=True, tag="policies"):
    """Every policy in force on the node, in the place of those told before. The agent keeps them over a restart."""

    policies: list[PolicyInForce]


class BeginExperiment(Struct, frozen=True, tag="begin_experiment"):
    """Prepare what its runs share, such as network namespaces. One at a time: another one that was open is ended.

    All of it ends with EndExperiment, when the backend stays away or connects again, and with the agent.
    """

    experiment_id: int
    workload: Workload
    role: Role


class RunExperiment(Struct, frozen=True, tag="run_experiment"):
    """Do one run now; the settings it is about stand already."""

    experiment_id: int
    run: Run


class EndExperiment(Struct, frozen=True, tag="end_experiment"):
    """End its load at once and take away what was prepared."""

    experiment_id: int


class Ping(Struct, frozen=True, tag="ping"):
    """Asks for Clock."""

    ping_ms: int


class ChangeAck(Struct, frozen=True, tag="change_ack"):
    """That a change stands so is stored; the agent need not tell it again unless it has gone on since."""

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
    """A frame that is not a message of this protocol; the message says where."""


class Close:
    """WebSocket close codes the backend uses, each with a reason text."""

    BAD_FRAME = 4400
    BAD_KEY = 4401
    VERSION = 4406
    REPLACED = 4409
    TOO_LARGE = 1009


def encode(message: ToBackend | ToAgent) -> bytes:
    """One WebSocket frame."""
    return _encoder.encode(message)


def decode_to_backend(frame: bytes) -> ToBackend:
    """What an agent said. Raises ProtocolError; contents are still to be checked (ingest.check_rates)."""
    try:
        message: ToBackend = _to_backend.decode(frame)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"Invalid message of protocol {PROTOCOL}: {error}") from None
    return message


def decode_to_agent(frame: bytes) -> ToAgent:
    """What the backend said. Raises ProtocolError."""
    try:
        message: ToAgent = _to_agent.decode(frame)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"Invalid message of protocol {PROTOCOL}: {error}") from None
    return message
