"""Bounds on what an agent says of its node: it is untrusted, and what is accepted here is stored and shown.

Of policies and experiments: policies/told.py, experiments/told.py.

Each function returns a sentence that says what is wrong, or None.
"""

import math
from collections import Counter

from coresteer.gateway.bounds import (
    MAX_INT,
    MAX_NAME,
    MAX_TEXT,
    bad_cpu_lists,
    bad_integers,
    bad_policy_id,
    bad_text,
    bad_time,
)
from coresteer.telemetry.chunks import netdev_values
from coresteer_core.cpuset import MAX_CPUS
from coresteer_core.node import nic
from coresteer_core.node.inventory import Inventory
from coresteer_core.node.nic import Learned, Point
from coresteer_core.node.rates import ABSENT_SHARE, CPU_COUNTS, CPU_SHARES, SHARES_PER_UNIT, NetdevCounts, Rates
from coresteer_core.node.service_classes import ClassFigures
from coresteer_core.node.tasks import NetTask, RxPlacement, Task
from coresteer_core.node.topology import Topology
from coresteer_core.protocol import (
    ChangeMessage,
    ClassesMessage,
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
)
from coresteer_core.settings.cgroup import WEIGHTS
from coresteer_core.settings.params import PARAMS

MAX_CELLS = 262_144
MAX_NETDEVS = 4096
MAX_IRQS = 65_536
MAX_TASKS = 256
MAX_NET_TASKS = 4096
MAX_LANDINGS = 16_384
MAX_CLASSES = 16
MAX_PATH = 4096
MAX_PORTS = 262_144
MAX_CLIENTS = 16_384
_MAX_MOMENT_MS = 2**47  # the year 6429; a node's clock may have been wrong when it noted something
_LEAST_POINT_S = 1e-3
_BAD_SHARE = bytes(set(range(256)) - set(range(SHARES_PER_UNIT + 1)) - {ABSENT_SHARE})
_KEEP_BAD = bytes(set(range(256)) - set(_BAD_SHARE))


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
    if wrong := bad_text(texts, MAX_NAME) or bad_text([hello.observe_reason], MAX_TEXT):
        return f"Hello: {wrong}"
    if not hello.stream or hello.mode not in ("control", "observe"):
        return f"Hello: stream is {hello.stream!r} and mode {hello.mode!r}; a mode is control or observe."
    if len(hello.labels) > 64:
        return f"Hello: {len(hello.labels)} labels are more than 64."
    if not 0.05 <= hello.interval_s <= 3600:
        return f"Hello: interval_s is {hello.interval_s}; it can be 0.05 to 3600."
    if not 0 <= hello.first_seq < MAX_INT:
        return f"Hello: first_seq is {hello.first_seq}."
    return None


def check_rates(rates: Rates, *, after_seq: int, now_ms: int) -> str | None:
    """Whether rates may follow after_seq on the same connection, at now_ms of the backend's clock."""
    if not after_seq < rates.seq < MAX_INT:
        return f"Rates {rates.seq} came after {after_seq}; sequence numbers must grow."
    if wrong := bad_time(rates.time_ms, now_ms):
        return f"Rates {rates.seq}: {wrong}"
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
        if min(values) < 0 or max(values) >= MAX_INT:
            return f"{netdev.name[:40]!r} counted less than nothing or more than any device can."
    return bad_text((n.name for n in netdevs), MAX_NAME)


def _bad_scalars(rates: Rates) -> str | None:
    numbers = [rates.tcp_out_segments, rates.tcp_retransmits, rates.agent_rss_bytes]
    if rates.tcp is not None:
        numbers += [rates.tcp.sockets, rates.tcp.rtt_p50_us, rates.tcp.rtt_p95_us, rates.tcp.rtt_p99_us]
    if any(number is not None and not 0 <= number < MAX_INT for number in numbers):
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
    if wrong := bad_integers(integers) or bad_text((c.type for c in topology.caches), MAX_NAME):
        return f"Topology: {wrong}"
    lists = [topology.isolated, topology.nohz_full, *(c.siblings for c in topology.cpus)]
    lists += [*(n.cpus for n in topology.numa_nodes), *(c.cpus for c in topology.caches)]
    return f"Topology: {wrong}" if (wrong := bad_cpu_lists(lists)) else None


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
        bad_text(texts, MAX_NAME)
        or bad_text((irq.locked_reason for irq in inventory.irqs), MAX_TEXT)
        or bad_integers(integers)
        or bad_cpu_lists(lists)
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
        bad_text([*texts, *points], MAX_NAME)
        or bad_text((each.words for each in tried), nic.MAX_WORDS)
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
        and all(0 <= number < MAX_INT for number in (*sums, *figures))  # NaN is none of these
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
    return f"Tasks: {wrong}" if (wrong := bad_text((task.name for task in tasks), MAX_NAME)) else None


def check_change(message: ChangeMessage) -> str | None:
    """Whether word of a change can be stored and shown."""
    if len(message.change_id) > 64 or len(message.results) > 256:
        return "Change: its id is longer than 64 characters or it has more than 256 results."
    texts: list[str | None] = [message.change_id, message.sentence]
    texts += [text for r in message.results for text in (r.key, r.outcome, r.sentence, r.found, r.read_back)]
    for number in (message.deadline_ms, message.remaining_s):
        if number is not None and not (math.isfinite(number) and abs(number) < MAX_INT):
            return f"Change: {number} is not a time."
    return f"Change: {wrong}" if (wrong := bad_text(texts, 65_536)) else None


def check_flows(message: FlowsMessage, *, now_ms: int) -> str | None:
    """Whether flows can be kept, shown and decided on."""
    if wrong := bad_time(message.time_ms, now_ms):
        return f"Flows: {wrong}"
    rx_placements = [rx_placement for task in message.tasks for rx_placement in task.rx_placements]
    if len(message.tasks) > MAX_NET_TASKS or len(rx_placements) > MAX_LANDINGS:
        return f"Flows: more than {MAX_NET_TASKS} processes or {MAX_LANDINGS} rx_placements."
    ports = sum(len(task.listens) for task in message.tasks)
    clients = sum(len(task.clients) for task in message.tasks)
    if ports > MAX_PORTS or clients > MAX_CLIENTS:
        return f"Flows: {ports} ports and {clients} clients are more than {MAX_PORTS} and {MAX_CLIENTS}."
    texts: list[str | None] = [task.name for task in message.tasks]
    texts += [
        text for rx_placement in rx_placements for text in (rx_placement.netdev, rx_placement.queue, rx_placement.how)
    ]
    wrong = (
        bad_text(texts, MAX_NAME)
        or bad_text((path for task in message.tasks for path in (task.cgroup, task.cpu_cgroup)), MAX_PATH)
        or bad_text((text for task in message.tasks for text in (task.user, task.command, task.unit)), MAX_NAME)
        or bad_text((client for task in message.tasks for client in task.clients), MAX_NAME)
        or bad_cpu_lists(text for task in message.tasks for text in (task.affinity, task.allowed))
        or _bad_weights(message)
        or next((wrong for task in message.tasks if (wrong := _bad_net_task(task))), None)
        or next((wrong for rx_placement in rx_placements if (wrong := _bad_rx_placement(rx_placement))), None)
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
    return bad_text(message.cgroups, MAX_PATH)


def _bad_net_task(task: NetTask) -> str | None:
    numbers = (task.started_ticks, task.threads)
    figures = (task.cpu_share, task.idle_s)
    if not all(0 < port < 65_536 for port in task.listens):
        return f"process {task.pid} listens at a port that is none."
    if not (0 <= task.pid < 2**31 and 0 <= task.cpu < MAX_CPUS and all(0 <= number < MAX_INT for number in numbers)):
        return f"process {task.pid} on CPU {task.cpu} with {task.threads} threads cannot be."
    if not all(0 <= figure < MAX_INT for figure in figures):  # NaN is none of these
        return f"process {task.pid} has a share of {task.cpu_share} and is idle for {task.idle_s} s."
    return None


def _bad_rx_placement(rx_placement: RxPlacement) -> str | None:
    if not (rx_placement.cpu is None or 0 <= rx_placement.cpu < MAX_CPUS) or not (
        rx_placement.irq is None or 0 <= rx_placement.irq < 2**31
    ):
        return (
            f"packets of {rx_placement.netdev} cannot arrive by interrupt {rx_placement.irq} on CPU {rx_placement.cpu}."
        )
    figures = (rx_placement.rx_bytes_per_s, rx_placement.tx_bytes_per_s, rx_placement.sockets)
    if not all(0 <= figure < MAX_INT for figure in figures):
        carried = f"{rx_placement.rx_bytes_per_s} bytes/s"
        return f"{rx_placement.sockets} sockets on {rx_placement.netdev} cannot carry {carried}."
    return None


def check_classes(message: ClassesMessage, *, now_ms: int) -> str | None:
    """Whether figures of service classes can be kept and shown."""
    names = [one.name for one in message.classes]
    wrong = bad_time(message.time_ms, now_ms) or bad_policy_id(message.policy_id) or bad_text(names, MAX_NAME)
    if wrong is None and (len(names) > MAX_CLASSES or len(set(names)) < len(names)):
        wrong = f"there are more than {MAX_CLASSES} classes, or one is named twice."
    wrong = wrong or next((wrong for one in message.classes if (wrong := _bad_class(one))), None)
    return f"Classes: {wrong}" if wrong else None


def _bad_class(one: ClassFigures) -> str | None:
    optional = (one.deadline_us, one.p50_us, one.p95_us, one.p99_us, one.longest_wait_us)
    counts = (one.requests, one.satisfied, one.waiting, one.inside, one.tasks)
    if not all(0 <= number < MAX_INT for number in (one.f, *counts, *(n for n in optional if n is not None))):
        return f"{one.name[:40]} holds a number that nothing can have counted."  # NaN is none of these either
    if not 0 < one.target_percent <= 100 or one.source not in (None, "gate", "histogram", "tcp"):
        return f"{one.name[:40]} has a target of {one.target_percent} % and its figures from {one.source!r}."
    return None


def check_clock(node_ms: int, *, now_ms: int) -> str | None:
    """Whether the node's clock can be reckoned with."""
    wrong = bad_time(node_ms, now_ms)
    return f"Clock: {wrong}" if wrong else None
