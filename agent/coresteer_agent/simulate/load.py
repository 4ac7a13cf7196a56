"""What a simulated machine does in an interval: which CPUs its packets, interrupts and programs keep busy."""

import math
from array import array

from msgspec import Struct

from coresteer_agent.simulate.coalescing import interrupts_per_s
from coresteer_agent.simulate.machine import Ailment, Machine
from coresteer_agent.simulate.seeded_random import seeded_random
from coresteer_core.node.nic_model import TimerParams
from coresteer_core.node.rates import SHARES_PER_UNIT, NetdevCounts, TcpLatency, encode_irq_id
from coresteer_core.node.tasks import Task

LEVELS = 32
"""Steps of load from idle to full. Intervals are made once for each level and used again."""
VARIANTS = 8
"""Different noise for the same level, so that a steady load does not look frozen."""

_SOFTIRQ_S_PER_PACKET = 1.6e-6
_IRQ_S_PER_INTERRUPT = 1.5e-6
_SYSTEM_S_PER_PACKET = 0.4e-6
_FULL = 0.96  # of a CPU's time that interrupts and softirqs can take
BYTES_PER_PACKET = 700
ANSWERS_PER_PACKET = 0.8
_DAY_S = 86_400
_TASKS = ("nginx", "memcached", "postgres", "envoy", "java", "ksoftirqd", "kubelet", "python3", "sshd", "systemd")


class Interval(Struct, frozen=True):
    """Columns as in model.Rates, ready to send."""

    shares: dict[str, bytes | None]
    counts: dict[str, bytes | None]
    irq_ids: bytes
    irq_cpus: bytes
    irq_counts: bytes
    netdevs: list[NetdevCounts]
    tcp: TcpLatency
    counters: dict[str, int]


class Temper(Struct, frozen=True):
    """How much a node has to do and when. size: its load at its peak, of 1; phase: 0 to 2π."""

    size: float
    phase: float


def temper_of(seed: int, index: int) -> Temper:
    """The temper of the node with that index in the fleet."""
    own = seeded_random("temper", seed, index)
    return Temper(own.uniform(0.35, 1.0), own.uniform(0, 2 * math.pi))


def level_at(time_s: float, temper: Temper, ailment: Ailment) -> int:
    """A node's load at a Unix time: a day's tide, slow waves on it, nodes apart from each other."""
    tide = 0.5 - 0.5 * math.cos(2 * math.pi * (time_s / _DAY_S) + temper.phase / 6)
    waves = 0.08 * math.sin(2 * math.pi * time_s / 300 + temper.phase)
    waves += 0.05 * math.sin(2 * math.pi * time_s / 41 + 2 * temper.phase)
    load = temper.size * (0.15 + 0.75 * tide + waves)
    if ailment is Ailment.HOT_QUEUE:
        load = 0.6 + 0.3 * load
    return min(LEVELS - 1, max(0, int(load * LEVELS)))


def make_interval(
    machine: Machine,
    placement: tuple[int, ...],
    level: int,
    variant: int,
    duration_s: float,
    *,
    wait: TimerParams | None = None,
) -> Interval:
    """One interval. placement: the CPU that each of inventory.irqs is delivered to, in their order.

    wait: of the queues of the first NIC; None where it sets its own pace.
    """
    noise = seeded_random("interval", machine.seed, level, variant)
    load = level / (LEVELS - 1)
    cpus = len(machine.topology.cpus)
    irqs = machine.inventory.irqs
    queue_rows = [row for row, irq in enumerate(irqs) if irq.netdev == machine.nic.netdev and irq.queues]
    weights = _weights(machine, len(queue_rows))
    peak = peak_packets_per_s(machine, len(queue_rows))

    interrupts = [0.0] * len(irqs)
    offered = [0.0] * cpus
    for row, weight in zip(queue_rows, weights, strict=True):
        packets = peak * load * weight * noise.uniform(0.9, 1.1)
        interrupts[row] = interrupts_per_s(wait, packets)
        offered[placement[row]] += packets
    for row, irq in enumerate(irqs):
        if irq.netdev is None:
            interrupts[row] = 400 * load * noise.random() ** 4  # disks: many idle, a few busy
        elif not irq.queues:
            interrupts[row] = noise.uniform(0, 2)
        else:  # the busier its CPU, the more NAPI polls instead of being interrupted
            interrupts[row] *= max(0.02, 1 - offered[placement[row]] * _SOFTIRQ_S_PER_PACKET)

    taken = [0.0] * cpus
    for row, per_s in enumerate(interrupts):
        taken[placement[row]] += per_s
    irq_time = [per_s * _IRQ_S_PER_INTERRUPT + 0.001 for per_s in taken]
    handled = [
        min(packets, (_FULL - own) / _SOFTIRQ_S_PER_PACKET) for packets, own in zip(offered, irq_time, strict=True)
    ]
    softirq = [packets * _SOFTIRQ_S_PER_PACKET + 0.002 for packets in handled]
    kernel = sum(handled) * _SYSTEM_S_PER_PACKET / cpus
    taste = seeded_random("programs", machine.seed)
    user, system, iowait, busy = [], [], [], []
    for cpu in range(cpus):
        left = max(0.0, 1 - softirq[cpu] - irq_time[cpu])
        wanted = (0.03 + 0.5 * load * taste.uniform(0.3, 1.0)) * noise.uniform(0.8, 1.2)
        user.append(min(wanted, 0.7 * left))
        system.append(min(0.3 * wanted + kernel, 0.25 * left))
        busy.append(min(1.0, user[cpu] + system[cpu] + softirq[cpu] + irq_time[cpu]))
        iowait.append(min(1 - busy[cpu], 0.02 * load * noise.random()))

    lost = sum(offered) - sum(handled)
    received = sum(handled) * duration_s
    worst = max(min(1.0, packets * _SOFTIRQ_S_PER_PACKET) for packets in offered)
    ids, at, counted = _cells(machine, placement, interrupts, busy, duration_s)
    netdevs = []
    for place, netdev in enumerate(machine.inventory.netdevs):
        packets = int(received) if place == 0 else int(noise.uniform(20, 60) * duration_s)
        answers = int(packets * ANSWERS_PER_PACKET)
        # dropped at the NIC: its ring overflows when its CPU cannot keep up
        dropped = int(lost * duration_s * 0.1) if place == 0 else 0
        netdevs.append(
            NetdevCounts(
                netdev.name,
                packets * BYTES_PER_PACKET,
                answers * BYTES_PER_PACKET,
                packets,
                answers,
                dropped,
                0,
                0,
                0,
            )
        )
    return Interval(
        shares={
            "busy": _u8(busy),
            "user": _u8(user),
            "system": _u8(system),
            "irq": _u8(irq_time),
            "softirq": _u8(softirq),
            "steal": bytes(cpus),
            "iowait": _u8(iowait),
        },
        counts={
            "net_rx": _u32([(t + p / 64) * duration_s for t, p in zip(taken, handled, strict=True)]),
            "net_tx": _u32([p / 500 * duration_s for p in handled]),
            "softirq_other": _u32([(50 + 600 * b) * duration_s for b in busy]),
            "processed": _u32([p * duration_s for p in handled]),
            "dropped": _u32([0.05 * (o - h) * duration_s for o, h in zip(offered, handled, strict=True)]),
            "time_squeeze": _u32([max(0.0, (s - 0.6) * 300) * duration_s for s in softirq]),
        },
        irq_ids=ids,
        irq_cpus=at,
        irq_counts=counted,
        netdevs=netdevs,
        tcp=_latency(load, worst, noise.uniform(0.9, 1.1), 0 if wait is None else wait.rx_usecs / 2),
        counters={
            "tcp_out_segments": int(received * ANSWERS_PER_PACKET),
            "tcp_retransmits": int(lost * duration_s * 0.05 + received * 1e-6),
            "tcp_listen_overflows": int(lost * duration_s * 0.001),
        },
    )


def busiest_tasks(machine: Machine, level: int) -> list[Task]:
    """The processes at a level of load, heaviest first."""
    own = seeded_random("tasks", machine.seed)
    cpus = len(machine.topology.cpus)
    load = level / (LEVELS - 1)
    tasks = [
        Task(1000 + 37 * place, name, own.randrange(cpus), round(load * own.uniform(0.1, 2.0) / (1 + place / 2), 3))
        for place, name in enumerate(_TASKS)
    ]
    return sorted(tasks, key=lambda task: -task.cpu_share)


def dying(counts: NetdevCounts, age_s: float, duration_s: float) -> NetdevCounts:
    """A NIC's counts while it dies: errors and drops double every 30 s; while its link is down, nothing passes."""
    if link_is_down(age_s):
        return NetdevCounts(counts.name, 0, 0, 0, 0, 0, 0, 0, 0)
    bad = min(counts.rx_packets // 4, int(2 ** min(age_s / 30, 20) * duration_s))
    return NetdevCounts(
        counts.name,
        counts.rx_bytes - bad * BYTES_PER_PACKET,
        counts.tx_bytes,
        counts.rx_packets - bad,
        counts.tx_packets,
        counts.rx_dropped + bad // 3,
        counts.tx_dropped,
        bad,
        0,
    )


def link_is_down(age_s: float) -> bool:
    """After three minutes a dying NIC's link is down for eight seconds of every minute."""
    return age_s > 180 and age_s % 60 < 8


def peak_packets_per_s(machine: Machine, queues: int) -> float:
    """What reaches its first NIC at full load.

    No CPU is overrun when each queue has its own; the hot node has a little too much for one CPU.
    """
    if machine.ailment is Ailment.HOT_QUEUE:
        return 850_000
    return min(machine.nic.max_packets_per_s, queues * 150_000, len(machine.topology.cpus) * 120_000)


def _weights(machine: Machine, queues: int) -> list[float]:
    own = seeded_random("weights", machine.seed)
    raw = [0.5 + own.random() for _ in range(queues)]
    return [weight / sum(raw) for weight in raw]


def _cells(
    machine: Machine, placement: tuple[int, ...], interrupts: list[float], busy: list[float], duration_s: float
) -> tuple[bytes, bytes, bytes]:
    """The IRQ × CPU cells that moved: devices, then the architecture's own rows."""
    cells = [
        (irq.irq, placement[row], int(interrupts[row] * duration_s)) for row, irq in enumerate(machine.inventory.irqs)
    ]
    for label, idle, full in (("LOC", 60, 900), ("RES", 1, 300), ("CAL", 2, 400), ("TLB", 0, 40)):
        irq_id = encode_irq_id(label)
        assert irq_id is not None, label  # noqa: S101 - the four labels above are valid
        cells += [(irq_id, cpu, int((idle + full * share) * duration_s)) for cpu, share in enumerate(busy)]
    moved = [cell for cell in cells if cell[2]]
    return (
        array("I", [cell[0] for cell in moved]).tobytes(),
        array("H", [cell[1] for cell in moved]).tobytes(),
        array("I", [cell[2] for cell in moved]).tobytes(),
    )


def _latency(load: float, worst: float, noise: float, waited_us: float) -> TcpLatency:
    """Round trips wait in the NIC, and in the busiest CPU's queue: 1 / (1 - use), as in an M/M/1 queue."""
    median = 180 * (1 + 0.6 * load) * noise + waited_us
    waiting = 1 / (1 - min(worst, 0.97))
    return TcpLatency(
        5 + int(200 * load), int(median), int(median * (1.5 + 0.3 * waiting)), int(median * (2 + waiting))
    )


def _u8(shares: list[float]) -> bytes:
    return bytes(round(share * SHARES_PER_UNIT) for share in shares)


def _u32(numbers: list[float]) -> bytes:
    return array("I", [int(number) for number in numbers]).tobytes()
