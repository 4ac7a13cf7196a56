"""Bounds on everything an agent says: its data is untrusted, and what is accepted here is stored and shown.

Each function returns a sentence that says what is wrong, or None.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable
from ipaddress import ip_address
from uuid import UUID

from coresteer.telemetry.chunks import netdev_values
from coresteer_core import nic
from coresteer_core.attainment import ClassFigures
from coresteer_core.cpuset import MAX_CPUS, CpuListError, parse_cpu_list
from coresteer_core.experiment import METRICS, Measured, RunState
from coresteer_core.model import (
    ABSENT_SHARE,
    CPU_COUNTS,
    CPU_SHARES,
    SHARES_PER_UNIT,
    Inventory,
    Landing,
    NetdevCounts,
    NetTask,
    Rates,
    Task,
    Topology,
)
from coresteer_core.nic import Learned, Point
from coresteer_core.plan import Action
from coresteer_core.policies.base import Conclusion
from coresteer_core.protocol import (
    ChangeMessage,
    ClassesMessage,
    DecisionMessage,
    ExperimentMessage,
    FlowsMessage,
    Hello,
)
from coresteer_core.settings import (
    CgroupWeight,
    Channels,
    NetdevParam,
    RssTable,
    SettingError,
    TaskNice,
    parse_setting,
)
from coresteer_core.settings.cgroup import WEIGHTS
from coresteer_core.settings.params import PARAMS

MAX_CELLS = 262_144
MAX_NETDEVS = 4096
MAX_IRQS = 65_536
MAX_TASKS = 256
MAX_NET_TASKS = 4096
MAX_LANDINGS = 16_384
MAX_REASONS = 4096
MAX_ACTIONS = 256
MAX_CLASSES = 16
MAX_VALUE = 65_536
MAX_NAME = 256
MAX_PATH = 4096
MAX_PORTS = 262_144
MAX_CLIENTS = 16_384
MAX_TEXT = 2000
MAX_DISTURBED = 64
MAX_FIGURES = 256
MAX_CLOCK_ERROR_MS = 24 * 3600 * 1000
_MAX_INT = 2**53
_MAX_MOMENT_MS = 2**47  # the year 6429; a node's clock may have been wrong when it noted something
_LEAST_POINT_S = 1e-3
_MAX_FIGURE = 1e18
_MAX_PERCENT = 101.0  # clock ticks are counted a little early or late
_BAD_SHARE = bytes(set(range(256)) - set(range(SHARES_PER_UNIT + 1)) - {ABSENT_SHARE})
_KEEP_BAD = bytes(set(range(256)) - set(_BAD_SHARE))
_FIGURE = re.compile(r"command\.[A-Za-z0-9_.-]{1,64}\Z", re.ASCII)
_NETDEV = re.compile(r"([A-Za-z0-9_][A-Za-z0-9_.@+-]{0,14})?\Z", re.ASCII)
_KINDS = frozenset(("busy", "user", "system", "irq", "softirq", "steal"))
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def check_hello(hello: Hello) -> str | None:
    """Whether a greeting can be stored and shown."""
    texts: list[str | None] = [
        hello.agent_version,
        hello.hostname,
        hello.kernel,
        hello.machine_id,
        hello.boot_id,
        hello.stream,
    ]
    texts += [*hello.labels, *hello.labels.values()]
    if wrong := _bad_text(texts, MAX_NAME) or _bad_text([hello.observe_reason], MAX_TEXT):
        return f"Hello: {wrong}"
    if not hello.stream or hello.mode not in ("control", "observe"):
        return f"Hello: stream is {hello.stream!r} and mode {hello.mode!r}; a mode is control or observe."
    if len(hello.labels) > 64:
        return f"Hello: {len(hello.labels)} labels are more than 64."
    if not 0.05 <= hello.interval_s <= 3600:
        return f"Hello: interval_s is {hello.interval_s}; it can be 0.05 to 3600."
    if not 0 <= hello.first_seq < _MAX_INT:
        return f"Hello: first_seq is {hello.first_seq}."
    return None


def check_rates(rates: Rates, *, after_seq: int, now_ms: int) -> str | None:
    """Whether rates may follow after_seq on the same connection, at now_ms of the backend's clock."""
    if not after_seq < rates.seq < _MAX_INT:
        return f"Rates {rates.seq} came after {after_seq}; sequence numbers must grow."
    if abs(rates.time_ms - now_ms) > MAX_CLOCK_ERROR_MS:
        return (
            f"Rates {rates.seq} are of {rates.time_ms} ms, more than 24 hours from the backend's {now_ms} ms; "
            "set the node's clock."
        )
    if not 0 < rates.duration_s <= 86_400:
        return f"Rates {rates.seq}: duration_s is {rates.duration_s}; it can be more than 0 up to 86400."
    if not 1 <= rates.cpus <= MAX_CPUS:
        return f"Rates {rates.seq}: cpus is {rates.cpus}; it can be 1 to {MAX_CPUS}."
    wrong = _bad_columns(rates) or _bad_cells(rates) or _bad_netdevs(rates.netdevs) or _bad_scalars(rates)
    return f"Rates {rates.seq}: {wrong}" if wrong else None


def _bad_columns(rates: Rates) -> str | None:
    if len(rates.shares) > 32 or len(rates.counts) > 32:
        return "there are more than 32 shares or counts."
    for name in CPU_SHARES:
        share = rates.shares.get(name)
        if share is None:
            continue
        if len(share) != rates.cpus:
            return f"{name} has {len(share)} bytes for {rates.cpus} CPUs."
        if bad := share.translate(None, _KEEP_BAD):
            return f"{name} holds {bad[0]}; a share is 0 to {SHARES_PER_UNIT}, or {ABSENT_SHARE} for unknown."
    for name in CPU_COUNTS:
        count = rates.counts.get(name)
        if count is not None and len(count) != 4 * rates.cpus:
            return f"{name} has {len(count)} bytes for {rates.cpus} CPUs, four each."
    return None


def _bad_cells(rates: Rates) -> str | None:
    ids, cpus, counts = rates.irq_ids, rates.irq_cpus, rates.irq_counts
    if ids is None or cpus is None or counts is None:
        return None if ids is cpus is counts else "irq_ids, irq_cpus and irq_counts are not all there."
    cells = len(ids) // 4
    if (len(ids), len(cpus), len(counts)) != (4 * cells, 2 * cells, 4 * cells):
        return f"irq_ids, irq_cpus and irq_counts have {len(ids)}, {len(cpus)} and {len(counts)} bytes; cells differ."
    if cells > MAX_CELLS:
        return f"{cells} interrupt cells are more than {MAX_CELLS}."
    return None


def _bad_netdevs(netdevs: list[NetdevCounts] | None) -> str | None:
    if netdevs is None:
        return None
    if len(netdevs) > MAX_NETDEVS:
        return f"{len(netdevs)} netdevs are more than {MAX_NETDEVS}."
    if len({netdev.name for netdev in netdevs}) != len(netdevs):
        return "a netdev is named twice."
    for netdev in netdevs:
        values = netdev_values(netdev)
        if min(values) < 0 or max(values) >= _MAX_INT:
            return f"{netdev.name[:40]!r} counted less than nothing or more than any device can."
    return _bad_text((n.name for n in netdevs), MAX_NAME)


def _bad_scalars(rates: Rates) -> str | None:
    numbers = [rates.tcp_out_segments, rates.tcp_retransmits, rates.agent_rss_bytes]
    if rates.tcp is not None:
        numbers += [rates.tcp.sockets, rates.tcp.rtt_p50_us, rates.tcp.rtt_p95_us, rates.tcp.rtt_p99_us]
    if any(number is not None and not 0 <= number < _MAX_INT for number in numbers):
        return "a TCP figure or the agent's memory is negative or too large."
    if rates.agent_cpu_s is not None and not 0 <= rates.agent_cpu_s <= 1e6:
        return f"agent_cpu_s is {rates.agent_cpu_s}."
    return None


def check_topology(topology: Topology) -> str | None:
    """Whether a topology can be stored and shown."""
    if len(topology.cpus) > MAX_CPUS or len(topology.numa_nodes) > 1024 or len(topology.caches) > 8 * MAX_CPUS:
        return f"Topology: more than {MAX_CPUS} CPUs, 1024 NUMA nodes or {8 * MAX_CPUS} caches."
    numbers = [c.cpu for c in topology.cpus]
    if len(set(numbers)) != len(numbers) or not all(0 <= number < MAX_CPUS for number in numbers):
        return "Topology: a CPU's number is given twice or out of range."
    if any(len(node.distances) > 1024 for node in topology.numa_nodes):
        return "Topology: a NUMA node has more than 1024 distances."
    integers = [n for c in topology.cpus for n in (c.core, c.package, c.numa_node, c.capacity)]
    integers += [n for node in topology.numa_nodes for n in (node.id, node.memory_bytes, *node.distances)]
    integers += [n for cache in topology.caches for n in (cache.level, cache.size_bytes)]
    if wrong := _bad_integers(integers) or _bad_text((c.type for c in topology.caches), MAX_NAME):
        return f"Topology: {wrong}"
    lists = [topology.isolated, topology.nohz_full, *(c.siblings for c in topology.cpus)]
    lists += [*(n.cpus for n in topology.numa_nodes), *(c.cpus for c in topology.caches)]
    return f"Topology: {wrong}" if (wrong := _bad_cpu_lists(lists)) else None


def check_inventory(inventory: Inventory) -> str | None:
    """Whether an inventory can be stored and shown."""
    if len(inventory.netdevs) > MAX_NETDEVS or len(inventory.irqs) > MAX_IRQS or len(inventory.controllers) > 64:
        return f"Inventory: more than {MAX_NETDEVS} netdevs, {MAX_IRQS} IRQs or 64 controllers."
    queues = [queue for netdev in inventory.netdevs for queue in netdev.queues]
    if len(queues) > MAX_IRQS or any(len(irq.queues) > 4096 for irq in inventory.irqs):
        return f"Inventory: more than {MAX_IRQS} queues, or 4096 on one IRQ."
    numbers = [irq.irq for irq in inventory.irqs]
    if len(set(numbers)) != len(numbers):
        return "Inventory: an IRQ is given twice."
    texts: list[str | None] = [text for n in inventory.netdevs for text in (n.name, n.driver)]
    texts += [text for q in queues for text in (q.name, q.source)]
    texts += [text for irq in inventory.irqs for text in (irq.name, irq.chip, irq.netdev, *irq.queues)]
    texts += [*inventory.controllers]
    integers = [i for n in inventory.netdevs for i in (n.speed_bits_per_s, n.mtu, n.numa_node)]
    integers += [i for q in queues for i in (q.irq, q.napi_id)]
    integers += [i for irq in inventory.irqs for i in (irq.irq, irq.numa_node)]
    lists = [text for q in queues for text in (q.rps, q.xps)]
    lists += [text for irq in inventory.irqs for text in (irq.requested, irq.effective)]
    wrong = (
        _bad_text(texts, MAX_NAME)
        or _bad_text((irq.locked_reason for irq in inventory.irqs), MAX_TEXT)
        or _bad_integers(integers)
        or _bad_cpu_lists(lists)
        or _bad_scaling(inventory)
    )
    return f"Inventory: {wrong}" if wrong else None


def _bad_scaling(inventory: Inventory) -> str | None:
    for netdev in inventory.netdevs:
        try:
            for channels in (netdev.channels, netdev.channels_max):
                if channels is not None:
                    Channels(netdev.name).canonical(channels)
            if netdev.speed_bits_per_s == 0:
                return f"{netdev.name[:40]} with a speed of 0 bit/s; what is not known is left out."
            if netdev.rss is not None:
                RssTable(netdev.name).canonical(netdev.rss)
            for params in (netdev.params, netdev.params_max, *(queue.params for queue in netdev.queues)):
                for name, value in params.items():
                    if name not in PARAMS:
                        return f"{name[:40]!r} is not a setting of a network device."
                    NetdevParam(netdev.name, name).canonical(value)
        except SettingError as error:
            return str(error)
    return None


def check_learned(learned: Learned) -> str | None:
    """Whether what an agent learned of its NICs can be stored, shown and decided on."""
    drivers = learned.drivers
    if len(drivers) > nic.MAX_DRIVERS or any(len(record.tried) > nic.MAX_TRIED for record in drivers):
        return f"Learned: more than {nic.MAX_DRIVERS} drivers or {nic.MAX_TRIED} values of one."
    points = Counter(point.netdev for point in learned.points)
    if len(points) > nic.MAX_NETDEVS or any(number > nic.MAX_POINTS for number in points.values()):
        return f"Learned: points of more than {nic.MAX_NETDEVS} netdevs or more than {nic.MAX_POINTS} of one."
    tried = [tried for record in drivers for tried in record.tried]
    texts: list[str | None] = [text for record in drivers for text in (record.driver, record.kernel)]
    texts += [text for each in tried for text in (each.name, each.asked, each.stood)]
    wrong = (
        _bad_text([*texts, *points], MAX_NAME)
        or _bad_text((each.words for each in tried), nic.MAX_WORDS)
        or next((wrong for point in learned.points if (wrong := _bad_point(point))), None)
    )
    moments = [each.time_ms for each in tried] + [point.last_ms for point in learned.points]
    if not all(0 <= moment < _MAX_MOMENT_MS for moment in moments):
        wrong = f"{min(moments)} to {max(moments)} ms are no times."
    return f"Learned: {wrong}" if wrong else None


def _bad_point(point: Point) -> str | None:
    values = [value for value in (point.rx_usecs, point.rx_frames) if value is not None]
    sums = (point.rx_packets, point.rx_bytes, point.interrupts, point.dropped)
    figures = (point.seconds, point.rtt_us_s, point.rtt_s)
    if (
        all(0 <= value < 2**32 for value in values)
        and all(0 <= number < _MAX_INT for number in (*sums, *figures))  # NaN is none of these
        and point.seconds >= _LEAST_POINT_S
    ):
        return None
    return f"a point of {point.netdev[:40]} holds a number that no NIC can have counted."


def check_tasks(tasks: list[Task]) -> str | None:
    """Whether tasks can be kept and shown."""
    if len(tasks) > MAX_TASKS:
        return f"Tasks: {len(tasks)} are more than {MAX_TASKS}."
    for task in tasks:
        if not (0 <= task.pid < 2**31 and 0 <= task.cpu < MAX_CPUS and 0 <= task.cpu_share <= 2**20):
            return f"Tasks: process {task.pid} on CPU {task.cpu} with a share of {task.cpu_share} cannot be."
    return f"Tasks: {wrong}" if (wrong := _bad_text((task.name for task in tasks), MAX_NAME)) else None


def check_change(message: ChangeMessage) -> str | None:
    """Whether word of a change can be stored and shown."""
    if len(message.change_id) > 64 or len(message.results) > 256:
        return "Change: its id is longer than 64 characters or it has more than 256 results."
    texts: list[str | None] = [message.change_id, message.sentence]
    texts += [text for r in message.results for text in (r.key, r.outcome, r.sentence, r.found, r.read_back)]
    for number in (message.deadline_ms, message.remaining_s):
        if number is not None and not (math.isfinite(number) and abs(number) < _MAX_INT):
            return f"Change: {number} is not a time."
    return f"Change: {wrong}" if (wrong := _bad_text(texts, 65_536)) else None


def check_flows(message: FlowsMessage, *, now_ms: int) -> str | None:
    """Whether flows can be kept, shown and decided on."""
    if wrong := _bad_time(message.time_ms, now_ms):
        return f"Flows: {wrong}"
    landings = [landing for task in message.tasks for landing in task.landings]
    if len(message.tasks) > MAX_NET_TASKS or len(landings) > MAX_LANDINGS:
        return f"Flows: more than {MAX_NET_TASKS} processes or {MAX_LANDINGS} landings."
    ports = sum(len(task.listens) for task in message.tasks)
    clients = sum(len(task.clients) for task in message.tasks)
    if ports > MAX_PORTS or clients > MAX_CLIENTS:
        return f"Flows: {ports} ports and {clients} clients are more than {MAX_PORTS} and {MAX_CLIENTS}."
    texts: list[str | None] = [task.name for task in message.tasks]
    texts += [text for landing in landings for text in (landing.netdev, landing.queue, landing.how)]
    wrong = (
        _bad_text(texts, MAX_NAME)
        or _bad_text((path for task in message.tasks for path in (task.cgroup, task.cpu_cgroup)), MAX_PATH)
        or _bad_text((text for task in message.tasks for text in (task.user, task.command, task.unit)), MAX_NAME)
        or _bad_text((client for task in message.tasks for client in task.clients), MAX_NAME)
        or _bad_cpu_lists(text for task in message.tasks for text in (task.affinity, task.allowed))
        or _bad_weights(message)
        or next((wrong for task in message.tasks if (wrong := _bad_net_task(task))), None)
        or next((wrong for landing in landings if (wrong := _bad_landing(landing))), None)
    )
    return f"Flows: {wrong}" if wrong else None


def _bad_weights(message: FlowsMessage) -> str | None:
    if len(message.cgroups) > 2 * MAX_NET_TASKS:
        return f"more than {2 * MAX_NET_TASKS} cgroups have weights."
    try:
        for task in message.tasks:
            for name, value in task.params.items():
                if name != "nice":
                    return f"{name[:40]!r} is not a setting of a process."
                TaskNice(task.pid).canonical(value)
        for path, weights in message.cgroups.items():
            for name, value in weights.items():
                if name not in WEIGHTS:
                    return f"{name[:40]!r} is not a weight of a cgroup."
                CgroupWeight(path, name).canonical(value)
    except SettingError as error:
        return str(error)
    return _bad_text(message.cgroups, MAX_PATH)


def _bad_net_task(task: NetTask) -> str | None:
    numbers = (task.started_ticks, task.threads)
    figures = (task.cpu_share, task.idle_s)
    if not all(0 < port < 65_536 for port in task.listens):
        return f"process {task.pid} listens at a port that is none."
    if not (0 <= task.pid < 2**31 and 0 <= task.cpu < MAX_CPUS and all(0 <= number < _MAX_INT for number in numbers)):
        return f"process {task.pid} on CPU {task.cpu} with {task.threads} threads cannot be."
    if not all(0 <= figure < _MAX_INT for figure in figures):  # NaN is none of these
        return f"process {task.pid} has a share of {task.cpu_share} and is idle for {task.idle_s} s."
    return None


def _bad_landing(landing: Landing) -> str | None:
    if not (landing.cpu is None or 0 <= landing.cpu < MAX_CPUS) or not (
        landing.irq is None or 0 <= landing.irq < 2**31
    ):
        return f"packets of {landing.netdev} cannot arrive by interrupt {landing.irq} on CPU {landing.cpu}."
    figures = (landing.rx_bytes_per_s, landing.tx_bytes_per_s, landing.sockets)
    if not all(0 <= figure < _MAX_INT for figure in figures):
        return f"{landing.sockets} sockets on {landing.netdev} cannot carry {landing.rx_bytes_per_s} bytes/s."
    return None


def check_classes(message: ClassesMessage, *, now_ms: int) -> str | None:
    """Whether figures of service classes can be kept and shown."""
    names = [one.name for one in message.classes]
    wrong = _bad_time(message.time_ms, now_ms) or _bad_policy_id(message.policy_id) or _bad_text(names, MAX_NAME)
    if wrong is None and (len(names) > MAX_CLASSES or len(set(names)) < len(names)):
        wrong = f"there are more than {MAX_CLASSES} classes, or one is named twice."
    wrong = wrong or next((wrong for one in message.classes if (wrong := _bad_class(one))), None)
    return f"Classes: {wrong}" if wrong else None


def _bad_class(one: ClassFigures) -> str | None:
    optional = (one.deadline_us, one.p50_us, one.p95_us, one.p99_us, one.longest_wait_us)
    counts = (one.requests, one.satisfied, one.waiting, one.inside, one.tasks)
    if not all(0 <= number < _MAX_INT for number in (one.f, *counts, *(n for n in optional if n is not None))):
        return f"{one.name[:40]} holds a number that nothing can have counted."  # NaN is none of these either
    if not 0 < one.target_percent <= 100 or one.source not in (None, "gate", "histogram", "tcp"):
        return f"{one.name[:40]} has a target of {one.target_percent} % and its figures from {one.source!r}."
    return None


def check_clock(node_ms: int, *, now_ms: int) -> str | None:
    """Whether the node's clock can be reckoned with."""
    wrong = _bad_time(node_ms, now_ms)
    return f"Clock: {wrong}" if wrong else None


def check_decision(message: DecisionMessage, *, now_ms: int) -> str | None:
    """Whether a conclusion, and the change that carries it out, can be stored and shown."""
    conclusion = message.conclusion
    if wrong := _bad_time(message.time_ms, now_ms):
        return f"Decision: {wrong}"
    if wrong := _bad_policy_id(conclusion.policy_id):
        return f"Decision: {wrong}"
    if not 0 <= conclusion.version < 2**31:
        return f"Decision: {conclusion.version} is not a version."
    wrong = _bad_uuid(message.change_id) or _bad_conclusion(conclusion) or _bad_actions(conclusion.actions)
    return f"Decision: {wrong}" if wrong else None


def check_experiment(message: ExperimentMessage, *, now_ms: int) -> str | None:
    """Whether word of an experiment can be kept, and what it names be passed on to another agent."""
    measured = message.measured
    wrong = _bad_text([message.run_id], MAX_NAME) or _bad_text([message.sentence], MAX_TEXT)
    if wrong is None and not 0 < message.experiment_id < 2**31:
        wrong = f"{message.experiment_id} is not an experiment's number."
    if wrong is None and not _NETDEV.match(message.netdev):
        wrong = f"{message.netdev[:40]!r} is not a netdev's name."
    if wrong is None and not _is_address(message.address):
        wrong = f"{message.address[:40]!r} is not an address."
    if wrong is None and (measured is not None) != (message.state is RunState.MEASURED and message.run_id is not None):
        wrong = "only a run that was measured comes to something."
    if wrong is None and measured is not None:
        wrong = _bad_time(measured.started_ms, now_ms) or _bad_measured(measured)
    return f"Experiment: {wrong}" if wrong else None


def _is_address(text: str) -> bool:
    """HOST:PORT with a number of a host, for a client on another node connects to it."""
    host, _, port = text.rpartition(":")
    try:
        return not text or (bool(ip_address(host)) and 0 < int(port) < 65_536)
    except ValueError:
        return False


def _bad_measured(measured: Measured) -> str | None:  # noqa: PLR0911 - one return a bound
    cells = [cell for column in measured.cpus.values() for cell in column if cell is not None]
    if not 0 < measured.duration_s <= 86_400 or not 0 <= measured.load_before < _MAX_INT:
        return f"it lasted {measured.duration_s} s with {measured.load_before} tasks before it."
    if not (measured.steal_percent is None or 0 <= measured.steal_percent <= 100):
        return f"{measured.steal_percent} % were stolen."
    if unknown := sorted(measured.figures.keys() - METRICS.keys()):
        if len(unknown) > MAX_FIGURES:
            return f"it has {len(measured.figures)} figures, more than {MAX_FIGURES}."
        if not all(map(_FIGURE.match, unknown)):
            return f"{unknown[0][:40]!r} is no figure's name."
    if not all(math.isfinite(figure) and abs(figure) < _MAX_FIGURE for figure in measured.figures.values()):
        return "a figure is not a number that anything can have come to."
    if not measured.cpus.keys() <= _KINDS or any(len(column) > MAX_CPUS for column in measured.cpus.values()):
        return f"its CPUs have times that are none of {', '.join(sorted(_KINDS))}, or are more than {MAX_CPUS}."
    if not all(0 <= cell <= _MAX_PERCENT for cell in cells):  # NaN is none of these
        return "a CPU was busy for less than none or more than all of the time."
    if len(measured.disturbed) > MAX_DISTURBED:
        return f"{len(measured.disturbed)} reasons are more than {MAX_DISTURBED}."
    return _bad_text(measured.disturbed, MAX_TEXT)


def _bad_policy_id(text: str) -> str | None:
    if text.isdecimal() and text.isascii() and len(text) <= 9:
        return None
    return f"{text[:40]!r} is not a policy's number."


def _bad_uuid(text: str | None) -> str | None:
    try:
        UUID(text or "00000000-0000-0000-0000-000000000000")
    except ValueError:
        return f"its change's id {(text or '')[:40]!r} is not a UUID."
    return None


def _bad_conclusion(conclusion: Conclusion) -> str | None:
    if max(len(conclusion.actions), len(conclusion.drifts)) > MAX_ACTIONS:
        return f"more than {MAX_ACTIONS} actions or drifts."
    if max(len(conclusion.held_back), len(conclusion.unmoved)) > MAX_REASONS:
        return f"more than {MAX_REASONS} reasons why something stays."
    proposals = [held.proposal for held in conclusion.held_back]
    texts: list[str | None] = [held.code for held in conclusion.held_back]
    texts += [text for p in proposals for text in (p.key, p.subject)]
    texts += [action.key for action in conclusion.actions]
    texts += [text for drift in conclusion.drifts for text in (drift.key, drift.cause)]
    values: list[str | None] = [text for action in conclusion.actions for text in (action.was, action.becomes)]
    values += [p.value for p in proposals]
    values += [text for drift in conclusion.drifts for text in (drift.expected, drift.found)]
    reasons: list[str | None] = [conclusion.sentence, *(action.reason for action in conclusion.actions)]
    reasons += [p.reason for p in proposals]
    reasons += [held.why for held in conclusion.held_back]
    reasons += [text for unmoved in conclusion.unmoved for text in (unmoved.subject, unmoved.why)]
    return _bad_text(texts, MAX_NAME) or _bad_text(values, MAX_VALUE) or _bad_text(reasons, MAX_VALUE)


def _bad_actions(actions: list[Action]) -> str | None:
    try:
        for action in actions:
            setting = parse_setting(action.key)
            setting.canonical(action.was)
            setting.canonical(action.becomes)
    except SettingError as error:
        return str(error)
    return None


def _bad_time(time_ms: int, now_ms: int) -> str | None:
    if abs(time_ms - now_ms) <= MAX_CLOCK_ERROR_MS:
        return None
    return f"{time_ms} ms is more than 24 hours from the backend's {now_ms} ms; set the node's clock."


def _bad_text(texts: Iterable[str | None], longest: int) -> str | None:
    known = {text for text in texts if text}
    if max(map(len, known), default=0) <= longest and not _CONTROL.search("".join(known)):
        return None  # all at once, for an inventory holds thousands
    for text in known:
        if len(text) > longest:
            return f"a text of {len(text)} characters is longer than {longest}: {text[:40]!r}…"
        if _CONTROL.search(text):
            return f"{text[:40]!r} holds control characters."
    return None


def _bad_integers(numbers: Iterable[int | None]) -> str | None:
    for number in numbers:
        if number is not None and not -1 <= number < _MAX_INT:
            return f"{number} is out of range."
    return None


def _bad_cpu_lists(lists: Iterable[str | None]) -> str | None:
    for text in {text for text in lists if text}:
        if len(text) > 65_536:
            return "a CPU list is longer than 65536 characters."
        try:
            parse_cpu_list(text)
        except CpuListError as error:
            return str(error)
    return None
