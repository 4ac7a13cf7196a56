"""Messages between an agent and the backend: msgpack maps with a ``type`` field, one per WebSocket frame.

The agent sends Hello first; the backend answers with Welcome or closes the connection with a reason. Both name the
features that they understand beyond the oldest protocol: a peer sends a message of a feature only to a peer that names
it, and ignores messages and fields that it does not know.

Samples are numbered from 1 within a stream, without gaps. The backend acknowledges a number only after all samples up
to it are committed, and after a reconnect Welcome has the last one acknowledged. So nothing acknowledged is lost and
nothing is stored twice. Samples that can never be stored are named by Rejected. Decoding enforces the bounds of fields
(coresteer_core.bounds).

With the feature columns, samples are stored from ColumnsMessage. A SummaryMessage is sent with each of them and every
SUMMARY_S, and one of every sample only after Watch, as is RatesMessage. Both are for the present only and not stored.
Without the feature, every sample is sent and stored as a RatesMessage.
"""

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, Literal, NamedTuple, TypeAlias, TypeVar, get_args

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from coresteer_core.bounds import CgroupPath, ConfirmTimeout, Count, Name, PolicyId, Sentence, UnixMs
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
from coresteer_core.node.summary import Summary
from coresteer_core.node.tasks import MAX_NET_TASKS, MAX_TASKS, NetTask, Task
from coresteer_core.node.topology import Topology
from coresteer_core.policies.base import Evaluation, HoldoutReport
from coresteer_core.policies.engine_state import MAX_STOPS, EnforcementStop, PolicyInForce, StopId

T = TypeVar("T")
ChangeId: TypeAlias = Annotated[str, Meta(max_length=64)]
"""The id of a change, which the backend chooses."""

PROTOCOL_VERSION = 6
"""Protocol version; incremented when an older peer could misinterpret a message, which a feature usually avoids.

6: the field names of docs/GLOSSARY.md (rx_placements, evaluation, deferred, skipped).
"""

COMPATIBLE_PROTOCOLS = range(6, PROTOCOL_VERSION + 2)
"""Versions of the other peer: those of the previous and the next release."""

COLUMNS = "columns"
"""The feature of ColumnsMessage, SummaryMessage and Watch."""
LONG_BLOCKS = "long_blocks"
"""The feature of blocks that last longer than SUMMARY_S: without it, summaries are sent only with blocks."""
RSS_CONTEXTS = "rss_contexts"
"""The feature of actions on RSS contexts and on flow rules that name one. A backend without it refuses them."""
FEATURES: Mapping[str, str] = MappingProxyType(
    {
        COLUMNS: "samples in blocks of columns",
        LONG_BLOCKS: "summaries between blocks",
        RSS_CONTEXTS: "RSS contexts",
    }
)
"""The features of this version, each with its name for a sentence."""

BLOCK_S = 30.0
"""How long the samples of a block last, unless the backend's chunks are shorter or the agent lacks LONG_BLOCKS."""
SUMMARY_S = 10.0
"""How often a summary is sent while nobody needs more."""
MAX_FRAME_BYTES = 4 * 1024 * 1024
"""Maximum size of a WebSocket frame: more than the topology and inventory of 8,192 CPUs need."""

MAX_POLICIES_IN_FORCE = 1000
"""Maximum number of policies in force on one node; an agent evaluates that many within a fraction of a second."""


Features: TypeAlias = Annotated[list[Name], Meta(max_length=64)]
"""Names of features, also those that only the other peer knows."""


# Agent to backend


class Hello(Struct, frozen=True, tag="hello"):
    """First message of an agent on a connection: its identity, versions and mode.

    stream: random, new for each agent process. first_seq: of the agent's oldest unacknowledged sample, or of the next.
    observe_reason: why the mode is observe; None otherwise. emulated: the machine's CPUs are emulated in software.
    time_ms: the node's Unix time when it connected. rotates_keys: the agent understands NewKey.
    obeys_stops: the agent understands the stops in Policies.
    capabilities: that the agent's process has, such as CAP_NET_ADMIN; None from an agent that does not report them.
    features: FEATURES that the agent understands.
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
    time_ms: UnixMs | None = None
    rotates_keys: bool = False
    obeys_stops: bool = False
    capabilities: Annotated[list[Name], Meta(max_length=64)] | None = None
    features: Features = []


class TopologyMessage(Struct, frozen=True, tag="topology"):
    """Message with the node's topology (CPUs, caches, NUMA nodes), sent after Welcome and after each hot-plug."""

    topology: Topology


class InventoryMessage(Struct, frozen=True, tag="inventory"):
    """Message with the node's inventory (netdevs, interrupts), sent after Welcome and after each change of it."""

    inventory: Inventory


class RatesMessage(Struct, frozen=True, tag="rates"):
    """Message with the increments of a node's counters over one interval."""

    rates: Rates


class ColumnsMessage(Struct, frozen=True, tag="columns"):
    """Message with the samples first_seq to last_seq as a block, about every BLOCK_S.

    packed: a RatesBlock, from coresteer_core.node.rates_block.compress_block.
    """

    first_seq: Count
    last_seq: Count
    packed: Annotated[bytes, Meta(max_length=MAX_FRAME_BYTES)]


class SummaryMessage(Struct, frozen=True, tag="summary"):
    """Message with the figures of one interval that the fleet page, guardrails and health need.

    Sent of the first interval of a connection, of the newest one with each ColumnsMessage and every SUMMARY_S, and as
    Watch says.
    """

    summary: Summary


class TasksMessage(Struct, frozen=True, tag="tasks"):
    """Message with the busiest processes, every few seconds; not stored."""

    time_ms: int
    tasks: Annotated[list[Task], Meta(max_length=MAX_TASKS)]


class FlowsMessage(Struct, frozen=True, tag="flows"):
    """Message with the processes that use the network and their RX placements; stored for backtests.

    Sent every 5 s while somebody needs the present of the node, else every 10 s and with a decision.

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


class StoppedMessage(Struct, frozen=True, tag="stopped"):
    """Message that no policy writes on the node any more because of these stops, and that it is restored if asked.

    Sent for each Policies with stops once they are carried out. stuck: settings that could not be restored.
    """

    stop_ids: Annotated[list[StopId], Meta(max_length=MAX_STOPS)]
    stuck: Count = 0


class ExperimentMessage(Struct, frozen=True, tag="experiment"):
    """Message with the state of an experiment on this node, or of one of its runs.

    ready: namespaces or server exist; address and netdev are those at which the server can be reached, receipts_port
    that at which it will prove to a client on another node that it receives, 0 for none. loaded: the run's workload has
    started and its warm-up begins. measured: with the result. failed: the sentence says why. run_id: None for the
    experiment as a whole.
    """

    experiment_id: Annotated[int, Meta(gt=0, lt=2**31)]
    state: RunState
    run_id: Name | None = None
    sentence: Sentence = ""
    address: Name = ""
    netdev: Annotated[str, Meta(pattern=r"\A([A-Za-z0-9_][A-Za-z0-9_.@+-]{0,14})?\Z")] = ""
    measured: RunResult | None = None
    receipts_port: Annotated[int, Meta(ge=0, le=65_535)] = 0


class Clock(Struct, frozen=True, tag="clock"):
    """Reply to Ping with the node's Unix time in ms, to estimate the offset of its clock."""

    ping_ms: int
    node_ms: UnixMs


class KeyStored(Struct, frozen=True, tag="key_stored"):
    """Reply to NewKey: the key with this SHA-256, in hexadecimal, is on disk and will be used from now on."""

    sha256: Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]


# Backend to agent


class Welcome(Struct, frozen=True, tag="welcome"):
    """Reply to Hello: the backend accepts the connection.

    acked_seq: all samples of this stream up to it are stored, except rejected ones; 0 for none. rejected: their number.
    features: FEATURES that the backend understands. block_s: how long the samples of a block last.
    """

    protocol: int
    node_id: int
    acked_seq: int
    rejected: int = 0
    features: Features = []
    block_s: Annotated[float, Meta(gt=0, le=60)] = SUMMARY_S


class Ack(Struct, frozen=True, tag="ack"):
    """Acknowledgement that all samples up to this sequence number are stored, except those that Rejected has named."""

    seq: int


class Rejected(Struct, frozen=True, tag="rejected"):
    """Rejection of the samples first_seq to last_seq: they are not stored, and the agent does not send them again."""

    first_seq: int
    last_seq: int
    reason: Sentence


class Apply(Struct, frozen=True, tag="apply"):
    """Command: apply a plan, and roll it back unless Confirm arrives within confirm_timeout_s."""

    change_id: ChangeId
    plan: Plan
    confirm_timeout_s: ConfirmTimeout
    guardrails: Annotated[list[Guardrail], Meta(max_length=64)] = []


class Confirm(Struct, frozen=True, tag="confirm"):
    """Command: confirm a change, which makes it permanent."""

    change_id: ChangeId


class Rollback(Struct, frozen=True, tag="rollback"):
    """Command: roll a change back now, whether it is confirmed or not."""

    change_id: ChangeId


class Extend(Struct, frozen=True, tag="extend"):
    """Command: extend a change's confirmation timeout by some seconds, to at most 600 s from now."""

    change_id: ChangeId
    seconds: float


class Policies(Struct, frozen=True, tag="policies"):
    """Command: put these policies in force on the node instead of those sent before. The agent stores them.

    Sent after each Welcome; until it arrives, no policy writes. leave_pages: ids of policies whose memory moves are not
    undone once they are no longer enforced. stops: of enforcement, that apply to the node now; the agent answers with
    StoppedMessage. hold_from_ms: when the node's change window closes (Unix time by the node's clock); from then on no
    policy writes, also without the backend, until the next message. None where no window closes; older agents ignore
    it.
    """

    policies: Annotated[list[PolicyInForce], Meta(max_length=MAX_POLICIES_IN_FORCE)]
    leave_pages: list[PolicyId] = []
    stops: Annotated[list[EnforcementStop], Meta(max_length=MAX_STOPS)] = []
    hold_from_ms: Annotated[int, Meta(ge=0, lt=2**53)] | None = None


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
    """Request for the node's time; the agent replies with Clock.

    reconnect_spread_s: if the connection is lost, all agents of this backend return within that time.
    """

    ping_ms: int
    reconnect_spread_s: Annotated[float, Meta(ge=0, le=60)] = 0


class NewKey(Struct, frozen=True, tag="new_key"):
    """Command: store this key in place of the present one, which stays valid for a day; the agent replies KeyStored.

    Sent only to agents whose Hello says rotates_keys.
    """

    key: Annotated[str, Meta(pattern=r"\A[A-Za-z0-9_-]{40,200}\Z")]


class Detail(StrEnum):
    """How much an agent sends of the present.

    blocks: a summary every SUMMARY_S. summaries: one of every sample. samples: every sample as well, and tasks.
    """

    BLOCKS = "blocks"
    SUMMARIES = "summaries"
    SAMPLES = "samples"


class Watch(Struct, frozen=True, tag="watch"):
    """Command: send this much of the present from now on. After Welcome, it is blocks.

    The agent answers summaries and samples with the newest summary, and samples also with what it has collected for the
    next block and then the newest sample.
    """

    detail: Detail


class ChangeAck(Struct, frozen=True, tag="change_ack"):
    """Acknowledgement that the backend stored this state of a change; the agent does not send it again."""

    change_id: ChangeId
    state: ChangeState


ToBackend: TypeAlias = (
    Hello
    | TopologyMessage
    | InventoryMessage
    | RatesMessage
    | ColumnsMessage
    | SummaryMessage
    | TasksMessage
    | FlowsMessage
    | LearnedMessage
    | ClassesMessage
    | DecisionMessage
    | ChangeMessage
    | StoppedMessage
    | ExperimentMessage
    | Clock
    | KeyStored
)
ToAgent: TypeAlias = (
    Welcome
    | Ack
    | Rejected
    | Watch
    | Apply
    | Confirm
    | Rollback
    | Extend
    | Ping
    | NewKey
    | ChangeAck
    | Policies
    | BeginExperiment
    | RunExperiment
    | EndExperiment
)


class _Numbered(Struct):
    seq: Count


class _NumberedRates(Struct, tag="rates"):
    rates: _Numbered


class _NumberedColumns(Struct, tag="columns"):
    first_seq: Count
    last_seq: Count


class _AnyMessage(Struct):
    type: Name = ""


_numbers: msgspec.msgpack.Decoder[_NumberedRates | _NumberedColumns] = msgspec.msgpack.Decoder(
    _NumberedRates | _NumberedColumns
)
_type = msgspec.msgpack.Decoder(_AnyMessage)
_encoder = msgspec.msgpack.Encoder()
_to_backend: msgspec.msgpack.Decoder[ToBackend] = msgspec.msgpack.Decoder(ToBackend)
_to_agent: msgspec.msgpack.Decoder[ToAgent] = msgspec.msgpack.Decoder(ToAgent)
_decision: msgspec.msgpack.Decoder[DecisionMessage] = msgspec.msgpack.Decoder(DecisionMessage)
_TAGS = frozenset(str(kind.__struct_config__.tag) for union in (ToBackend, ToAgent) for kind in get_args(union))


class ProtocolError(ValueError):
    """A frame that is not a valid message of this protocol; the text names the field that is wrong or out of bounds."""


class UnknownMessageError(ProtocolError):
    """A message of a type that only the other peer knows, which is ignored."""


class CloseCode:
    """WebSocket close codes with which a peer ends an agent's connection, each sent with a reason.

    FLOOD: the other peer sends more than it may, or requests answers that it does not read. TRY_AGAIN_LATER: the
    reason may begin with a delay, see reason_with_delay.
    """

    BAD_FRAME = 4400
    BAD_KEY = 4401
    VERSION = 4406
    REPLACED = 4409
    FLOOD = 4429
    TOO_LARGE = 1009
    TRY_AGAIN_LATER = 1013


_DELAY = re.compile(r"Retry in ([0-9]{1,6}) s\.", re.ASCII)


def reason_with_delay(delay_s: int, reason: str) -> str:
    """Return a reason of TRY_AGAIN_LATER that asks the agent not to reconnect within delay_s seconds."""
    return f"Retry in {delay_s} s. {reason}"


def requested_delay_s(reason: str) -> int | None:
    """Return the delay that a reason asks for, in seconds; None if it asks for none."""
    match = _DELAY.match(reason)
    return None if match is None else int(match[1])


def encode(message: ToBackend | ToAgent) -> bytes:
    """Return a message encoded in msgpack, as the content of one WebSocket frame."""
    return _encoder.encode(message)


def decode_to_backend(frame: bytes) -> ToBackend:
    """Return the message in a frame that an agent sent. Raises ProtocolError; relations of fields are not checked."""
    return _decode(_to_backend, frame)


def decode_to_agent(frame: bytes) -> ToAgent:
    """Return the message in a frame that the backend sent. Raises ProtocolError."""
    return _decode(_to_agent, frame)


class SampleNumbers(NamedTuple):
    """The first and last sequence number of samples. in_block: whether they are a block's."""

    first: int
    last: int
    in_block: bool


def decode_numbers(frame: bytes) -> SampleNumbers | None:
    """Return the numbers of samples that may be invalid otherwise; None for other frames."""
    try:
        message = _numbers.decode(frame)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if isinstance(message, _NumberedRates):
        return SampleNumbers(message.rates.seq, message.rates.seq, in_block=False)
    return SampleNumbers(message.first_seq, message.last_seq, in_block=True)


def without_rss_contexts(frame: bytes) -> bytes:
    """Return the frame of a decision without the actions that a peer without RSS_CONTEXTS refuses."""
    message = _decode(_decision, frame)
    actions = [
        action
        for action in message.evaluation.actions
        if "/rss-context/" not in action.key and " context " not in f"{action.was} {action.becomes}"
    ]
    return encode(replace(message, evaluation=replace(message.evaluation, actions=actions)))


def lacking(features: Iterable[str]) -> list[str]:
    """Return the names for a sentence of the FEATURES that a peer with these ones lacks."""
    return [FEATURES[feature] for feature in FEATURES if feature not in frozenset(features)]


def _decode(decoder: msgspec.msgpack.Decoder[T], frame: bytes) -> T:
    try:
        return decoder.decode(frame)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        if (kind := _type_of(frame)) and kind not in _TAGS:
            raise UnknownMessageError(f"Messages of the type {kind[:40]!r} are unknown to this version.") from None
        raise ProtocolError(f"Invalid message of protocol {PROTOCOL_VERSION}: {error}") from None


def _type_of(frame: bytes) -> str:
    try:
        return _type.decode(frame).type
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""
