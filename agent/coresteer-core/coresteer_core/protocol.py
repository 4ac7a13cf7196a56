"""Messages between an agent and the backend: msgpack maps with a ``type`` field, one per WebSocket frame.

The agent sends Hello first; the backend answers with Welcome or closes the connection with a reason. Every RatesMessage
has a sequence number that grows by one within a stream. The backend acknowledges a number only after all samples up to
it are committed, and after a reconnect Welcome has the last one acknowledged. So nothing acknowledged is lost and
nothing is stored twice. Decoding enforces the bounds of fields (coresteer_core.bounds).
"""

from typing import Annotated, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Meta, Struct

from coresteer_core.bounds import (
    CgroupPath,
    ConfirmTimeout,
    Count,
    Name,
    PolicyId,
    Sentence,
)
from coresteer_core.changes.guardrail import Guardrail
from coresteer_core.changes.plan import Plan
from coresteer_core.changes.report import ChangeMessage, ChangeState
from coresteer_core.experiments.model import Role, Run, RunResult, RunState, Workload
from coresteer_core.node.cpusets import MAX_CPUSETS, Cpuset
from coresteer_core.node.inventory import Inventory
from coresteer_core.node.nic import NicKnowledge
from coresteer_core.node.numa import NumaState
from coresteer_core.node.rates import Rates
from coresteer_core.node.service_classes import MAX_CLASSES, ClassFigures
from coresteer_core.node.tasks import MAX_NET_TASKS, MAX_TASKS, NetTask, Task
from coresteer_core.node.topology import Topology
from coresteer_core.policies.base import Evaluation, HoldoutReport
from coresteer_core.policies.engine_state import PolicyInForce

T = TypeVar("T")

PROTOCOL_VERSION = 6
"""Protocol version, which both peers must share; incremented when an older peer could misinterpret a message.

6: the field names of docs/GLOSSARY.md (rx_placements, evaluation, deferred, skipped).
"""

MAX_FRAME_BYTES = 4 * 1024 * 1024
"""Maximum size of a WebSocket frame: more than the topology and inventory of 8,192 CPUs need."""


# Agent to backend


class Hello(Struct, frozen=True, tag="hello"):
    """First message of an agent on a connection: its identity, versions and mode.

    stream: random, new for each agent process. first_seq: of the agent's oldest unacknowledged sample, or of the next.
    observe_reason: why the mode is observe; None otherwise. emulated: the machine's CPUs are emulated in software.
    """

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
    emulated: bool = False


class TopologyMessage(Struct, frozen=True, tag="topology"):
    """Message with the node's topology (CPUs, caches, NUMA nodes), sent after Welcome and after each hot-plug."""

    topology: Topology


class InventoryMessage(Struct, frozen=True, tag="inventory"):
    """Message with the node's inventory (netdevs, interrupts), sent after Welcome and after each change of it."""

    inventory: Inventory


class RatesMessage(Struct, frozen=True, tag="rates"):
    """Message with the increments of a node's counters over one interval."""

    rates: Rates


class TasksMessage(Struct, frozen=True, tag="tasks"):
    """Message with the busiest processes, every few seconds; not stored."""

    time_ms: int
    tasks: Annotated[list[Task], Meta(max_length=MAX_TASKS)]


class FlowsMessage(Struct, frozen=True, tag="flows"):
    """Message with the processes that use the network and their RX placements, every few seconds; stored for backtests.

    exact: bytes are counted by eBPF and include UDP; otherwise by TCP sockets, and UDP is unknown. cgroups,
    cpusets: as in View. numa: None on a machine with a single NUMA node.
    """

    time_ms: int
    tasks: Annotated[list[NetTask], Meta(max_length=MAX_NET_TASKS)]
    exact: bool = False
    cgroups: Annotated[dict[CgroupPath, dict[Name, Name]], Meta(max_length=2 * MAX_NET_TASKS)] = {}
    numa: NumaState | None = None
    cpusets: Annotated[dict[CgroupPath, Cpuset], Meta(max_length=MAX_CPUSETS)] = {}


class LearnedMessage(Struct, frozen=True, tag="learned"):
    """Message with what the agent has learned about its NICs: after Welcome, then at most every 10 s on a change."""

    learned: NicKnowledge


class ClassesMessage(Struct, frozen=True, tag="classes"):
    """Message with the attainment of one policy's service classes, sent every second while the policy is in force."""

    time_ms: int
    policy_id: PolicyId
    classes: Annotated[list[ClassFigures], Meta(max_length=MAX_CLASSES)]


class DecisionMessage(Struct, frozen=True, tag="decision"):
    """Message with the evaluation of a policy, sent when it differs from the last one sent for that policy.

    change_id: of the change that applies its actions; None where nothing is written. holdout: the state of its holdout;
    None for a policy that was not held out since the agent started. It is sent again when the state changes.
    """

    time_ms: int
    evaluation: Evaluation
    change_id: str | None = None
    holdout: HoldoutReport | None = None


class ExperimentMessage(Struct, frozen=True, tag="experiment"):
    """Message with the state of an experiment on this node, or of one of its runs.

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
    measured: RunResult | None = None


class Clock(Struct, frozen=True, tag="clock"):
    """Reply to Ping with the node's Unix time in ms, to estimate the offset of its clock."""

    ping_ms: int
    node_ms: int


# Backend to agent


class Welcome(Struct, frozen=True, tag="welcome"):
    """Reply to Hello: the backend accepts the connection. acked_seq: last stored sample of this stream, 0 for none."""

    protocol: int
    node_id: int
    acked_seq: int


class Ack(Struct, frozen=True, tag="ack"):
    """Acknowledgement that all samples up to this sequence number are stored."""

    seq: int


class Apply(Struct, frozen=True, tag="apply"):
    """Command: apply a plan, and roll it back unless Confirm arrives within confirm_timeout_s."""

    change_id: str
    plan: Plan
    confirm_timeout_s: ConfirmTimeout
    guardrails: list[Guardrail] = []


class Confirm(Struct, frozen=True, tag="confirm"):
    """Command: confirm a change, which makes it permanent."""

    change_id: str


class Rollback(Struct, frozen=True, tag="rollback"):
    """Command: roll a change back now, whether it is confirmed or not."""

    change_id: str


class Extend(Struct, frozen=True, tag="extend"):
    """Command: extend a change's confirmation timeout by some seconds, to at most 600 s from now."""

    change_id: str
    seconds: float


class Policies(Struct, frozen=True, tag="policies"):
    """Command: put these policies in force on the node instead of those sent before. The agent stores them.

    leave_pages: ids of policies whose memory moves are not undone once they are no longer enforced.
    """

    policies: list[PolicyInForce]
    leave_pages: list[PolicyId] = []


class BeginExperiment(Struct, frozen=True, tag="begin_experiment"):
    """Command: prepare what the runs of an experiment share (network namespaces); ends any earlier experiment.

    The agent removes it at EndExperiment, when the backend stays away or connects again, and when the agent ends.
    """

    experiment_id: int
    workload: Workload
    role: Role


class RunExperiment(Struct, frozen=True, tag="run_experiment"):
    """Command: execute one run of an experiment now; its settings are already applied."""

    experiment_id: int
    run: Run


class EndExperiment(Struct, frozen=True, tag="end_experiment"):
    """Command: stop the experiment's workload at once and remove what BeginExperiment prepared."""

    experiment_id: int


class Ping(Struct, frozen=True, tag="ping"):
    """Request for the node's time; the agent replies with Clock."""

    ping_ms: int


class ChangeAck(Struct, frozen=True, tag="change_ack"):
    """Acknowledgement that the backend stored this state of a change; the agent does not send it again."""

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
    """A frame that is not a valid message of this protocol; the text names the field that is wrong or out of bounds."""


class CloseCode:
    """WebSocket close codes with which the backend ends an agent's connection, each sent with a reason."""

    BAD_FRAME = 4400
    BAD_KEY = 4401
    VERSION = 4406
    REPLACED = 4409
    TOO_LARGE = 1009


def encode(message: ToBackend | ToAgent) -> bytes:
    """Return a message encoded in msgpack, as the content of one WebSocket frame."""
    return _encoder.encode(message)


def decode_to_backend(frame: bytes) -> ToBackend:
    """Return the message in a frame that an agent sent. Raises ProtocolError; relations of fields are not checked."""
    return _decode(_to_backend, frame)


def decode_to_agent(frame: bytes) -> ToAgent:
    """Return the message in a frame that the backend sent. Raises ProtocolError."""
    return _decode(_to_agent, frame)


def _decode(decoder: msgspec.msgpack.Decoder[T], frame: bytes) -> T:
    try:
        return decoder.decode(frame)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"Invalid message of protocol {PROTOCOL_VERSION}: {error}") from None
