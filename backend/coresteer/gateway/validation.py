"""Validation of messages from agents after decoding: untrusted, and what is accepted is stored and shown.

The wire types bound each field (coresteer_core.bounds); RULES adds what decoding cannot express, by type of message.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from coresteer.gateway import decision_validation, experiment_validation, node_validation
from coresteer.text_validation import control_characters, invalid_cpu_list
from coresteer_core.changes.report import ChangeMessage
from coresteer_core.protocol import (
    ClassesMessage,
    Clock,
    ColumnsMessage,
    DecisionMessage,
    ExperimentMessage,
    FlowsMessage,
    Hello,
    InventoryMessage,
    KeyStored,
    LearnedMessage,
    RatesMessage,
    StoppedMessage,
    SummaryMessage,
    TasksMessage,
    ToBackend,
    TopologyMessage,
)

MAX_CLOCK_ERROR_MS = 24 * 3600 * 1000
MAX_PING_AGE_MS = 30_000

M = TypeVar("M")


@dataclass(frozen=True)
class Arrival:
    """When a message arrived. now_ms: the backend's Unix time.

    after_seq: of the samples before it on the same connection.
    """

    now_ms: int
    after_seq: int = 0


@dataclass(frozen=True)
class MessageRules(Generic[M]):
    """Validation rules for one type of message, applied after decoding.

    texts: the part that is searched for control characters. cpu_lists: texts that are CPU lists. time_ms: the node's
    Unix time, after its correction, which may differ by 24 h from the backend's. relations: of several fields, each
    returns a sentence or None. context: the same, given the circumstances of the message's arrival.
    """

    texts: Callable[[M], object] = lambda message: message
    cpu_lists: Callable[[M], Iterable[str | None]] | None = None
    time_ms: Callable[[M], int | None] | None = None
    relations: tuple[Callable[[M], str | None], ...] = ()
    context: Callable[[M, Arrival], str | None] | None = None


def validate(message: ToBackend, arrival: Arrival) -> str | None:
    """Return a sentence that says what is wrong with an agent's message, None if it is valid."""
    rules = RULES[type(message)]
    wrong = _invalid(message, rules, arrival)
    return f"{type(message).__name__.removesuffix('Message')}: {wrong}" if wrong else None


def _invalid(message: M, rules: MessageRules[M], arrival: Arrival) -> str | None:
    if rules.context and (wrong := rules.context(message, arrival)):
        return wrong
    now_ms, time_ms = arrival.now_ms, rules.time_ms(message) if rules.time_ms else None
    if time_ms is not None and abs(time_ms - now_ms) > MAX_CLOCK_ERROR_MS:
        return f"{time_ms} ms is more than 24 hours from the backend's {now_ms} ms; set the node's clock."
    for relation in rules.relations:
        if wrong := relation(message):
            return wrong
    if rules.cpu_lists and (wrong := invalid_cpu_list(rules.cpu_lists(message))):
        return wrong
    return control_characters(rules.texts(message))


def _out_of_sequence(message: RatesMessage | ColumnsMessage, arrival: Arrival) -> str | None:
    seq = message.rates.seq if isinstance(message, RatesMessage) else message.first_seq
    if seq > arrival.after_seq:
        return None
    return f"sequence number {seq} does not exceed the previous one, {arrival.after_seq}."


def _unexpected_clock(message: Clock, arrival: Arrival) -> str | None:
    if 0 <= arrival.now_ms - message.ping_ms < MAX_PING_AGE_MS:
        return None
    return f"there was no Ping at {message.ping_ms} ms, in the last {MAX_PING_AGE_MS // 1000} s."


def _impossible_time(message: DecisionMessage, arrival: Arrival) -> str | None:
    # of any age: an agent keeps decisions while no backend is there, and repeats the last ones when it connects
    if 0 <= message.time_ms <= arrival.now_ms + MAX_CLOCK_ERROR_MS:
        return None
    return f"{message.time_ms} ms is more than 24 hours after the backend's {arrival.now_ms}; set the node's clock."


def _topology_cpu_lists(message: TopologyMessage) -> Iterable[str | None]:
    topology = message.topology
    yield topology.isolated
    yield topology.nohz_full
    yield from (cpu.siblings for cpu in topology.cpus)
    yield from (node.cpus for node in topology.numa_nodes)
    yield from (cache.cpus for cache in topology.caches)


def _inventory_cpu_lists(message: InventoryMessage) -> Iterable[str | None]:
    inventory = message.inventory
    yield from (text for netdev in inventory.netdevs for queue in netdev.queues for text in (queue.rps, queue.xps))
    yield from (text for irq in inventory.irqs for text in (irq.requested, irq.effective))
    yield from (reserved.cpus for reserved in inventory.reserved)
    yield inventory.limits.settings.cpus_off_limits


def _flows_cpu_lists(message: FlowsMessage) -> Iterable[str | None]:
    yield from (text for task in message.tasks for text in (task.affinity, task.allowed))
    if message.numa is not None:
        yield from (text for task in message.numa.tasks for text in (task.affinity, task.allowed, task.mems_allowed))
    for each in message.cpusets.values():
        yield from (each.cpus, each.mems, each.effective_cpus, each.effective_mems)


RULES: Mapping[type, MessageRules[Any]] = {
    Hello: MessageRules[Hello](),
    RatesMessage: MessageRules[RatesMessage](
        texts=lambda message: message.rates.netdevs,
        time_ms=lambda message: message.rates.time_ms,
        relations=(
            node_validation.invalid_columns,
            node_validation.invalid_cells,
            node_validation.duplicate_netdev,
        ),
        context=_out_of_sequence,
    ),
    # the block in it is validated when it is decoded, see coresteer.telemetry.sample_buffer
    ColumnsMessage: MessageRules[ColumnsMessage](texts=lambda _: None, context=_out_of_sequence),
    SummaryMessage: MessageRules[SummaryMessage](
        texts=lambda message: list(message.summary.metrics), time_ms=lambda message: message.summary.time_ms
    ),
    TopologyMessage: MessageRules[TopologyMessage](
        cpu_lists=_topology_cpu_lists,
        relations=(node_validation.duplicate_cpu,),
    ),
    InventoryMessage: MessageRules[InventoryMessage](
        cpu_lists=_inventory_cpu_lists,
        relations=(
            node_validation.too_many_queues,
            node_validation.duplicate_irq,
            node_validation.invalid_netdev_settings,
            node_validation.invalid_machine_settings,
            node_validation.invalid_addresses,
        ),
    ),
    LearnedMessage: MessageRules[LearnedMessage](relations=(node_validation.too_many_points,)),
    TasksMessage: MessageRules[TasksMessage](),
    FlowsMessage: MessageRules[FlowsMessage](
        cpu_lists=_flows_cpu_lists,
        time_ms=lambda message: message.time_ms,
        relations=(
            node_validation.too_many_flows,
            node_validation.invalid_flow_addresses,
            node_validation.invalid_task_settings,
        ),
    ),
    ClassesMessage: MessageRules[ClassesMessage](
        time_ms=lambda message: message.time_ms, relations=(node_validation.duplicate_class,)
    ),
    DecisionMessage: MessageRules[DecisionMessage](
        relations=(decision_validation.invalid_change_id, decision_validation.invalid_actions),
        context=_impossible_time,
    ),
    ChangeMessage: MessageRules[ChangeMessage](relations=(decision_validation.too_long_results,)),
    ExperimentMessage: MessageRules[ExperimentMessage](
        time_ms=lambda message: message.measured.started_ms if message.measured is not None else None,
        relations=(
            experiment_validation.invalid_address,
            experiment_validation.unexpected_result,
            experiment_validation.invalid_figures,
            experiment_validation.invalid_cpu_times,
        ),
    ),
    StoppedMessage: MessageRules[StoppedMessage](),
    KeyStored: MessageRules[KeyStored](),
    Clock: MessageRules[Clock](context=_unexpected_clock),
}
"""The rules of each type that an agent may send."""
