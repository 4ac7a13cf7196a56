"""Simulated rates of one interval: CPU time, interrupts, network counters and TCP latency of a machine."""

import random
from array import array

from msgspec import Struct

from coresteer_agent.simulate.coalescing import interrupts_per_s
from coresteer_agent.simulate.load import ANSWERS_PER_PACKET, BYTES_PER_PACKET, LOAD_LEVELS, peak_packets_per_s
from coresteer_agent.simulate.machine import Machine
from coresteer_agent.simulate.seeded_random import seeded_random
from coresteer_core.node.nic_model import TimerParams
from coresteer_core.node.rates import SHARES_PER_UNIT, NetdevCounts, TcpLatency, encode_irq_id

_SOFTIRQ_S_PER_PACKET = 1.6e-6
_IRQ_S_PER_INTERRUPT = 1.5e-6
_SYSTEM_S_PER_PACKET = 0.4e-6
_MAX_SHARE = 0.96  # of a CPU's time for interrupts and softirqs


class Interval(Struct, frozen=True):
    """Columns of Rates that depend on a simulated machine's load."""

    shares: dict[str, bytes | None]
    counts: dict[str, bytes | None]
    irq_ids: bytes
    irq_cpus: bytes
    irq_counts: bytes
    netdevs: list[NetdevCounts]
    tcp: TcpLatency
    counters: dict[str, int]


class _CpuShares(Struct):
    """Shares of each CPU's time by kind, 0 to 1."""

    irq: list[float]
    softirq: list[float]
    user: list[float]
    system: list[float]
    busy: list[float]
    iowait: list[float]


def make_interval(
    machine: Machine,
    placement: tuple[int, ...],
    level: int,
    variant: int,
    duration_s: float,
    *,
    wait: TimerParams | None = None,
    cpu_factor: float = 1.0,
) -> Interval:
    """Return a machine's simulated rates in one interval of duration_s.

    placement: the CPU of each of inventory.irqs, in their order. wait: coalescing of the queues of the first NIC; None
    where the NIC adapts it. cpu_factor: by which a planted effect multiplies the CPU time.
    """
    noise = seeded_random("interval", machine.seed, level, variant)
    load = level / (LOAD_LEVELS - 1)
    interrupts, offered = _interrupts(machine, placement, load, noise, wait)
    per_cpu = [0.0] * len(offered)
    for row, per_s in enumerate(interrupts):
        per_cpu[placement[row]] += per_s
    irq_time = [per_s * _IRQ_S_PER_INTERRUPT + 0.001 for per_s in per_cpu]
    handled = [
        min(packets, (_MAX_SHARE - own) / _SOFTIRQ_S_PER_PACKET) for packets, own in zip(offered, irq_time, strict=True)
    ]
    shares = _scaled(_cpu_shares(machine, load, irq_time, handled, noise), cpu_factor)
    lost = sum(offered) - sum(handled)
    received = sum(handled) * duration_s
    worst = max(min(1.0, packets * _SOFTIRQ_S_PER_PACKET) for packets in offered)
    irq_ids, irq_cpus, irq_counts = _cells(machine, placement, interrupts, shares.busy, duration_s)
    netdevs = _netdevs(machine, received, lost, duration_s, noise)
    return Interval(
        shares=_share_columns(shares),
        counts=_count_columns(shares, per_cpu, offered, handled, duration_s),
        irq_ids=irq_ids,
        irq_cpus=irq_cpus,
        irq_counts=irq_counts,
        netdevs=netdevs,
        tcp=_latency(load, worst, noise.uniform(0.9, 1.1), 0 if wait is None else wait.rx_usecs / 2),
        counters={
            "tcp_out_segments": int(received * ANSWERS_PER_PACKET),
            "tcp_retransmits": int(lost * duration_s * 0.05 + received * 1e-6),
            "tcp_listen_overflows": int(lost * duration_s * 0.001),
        },
    )


def _interrupts(
    machine: Machine, placement: tuple[int, ...], load: float, noise: random.Random, wait: TimerParams | None
) -> tuple[list[float], list[float]]:
    """Return interrupts per second by row of inventory.irqs, and packets per second that arrive at each CPU."""
    irqs = machine.inventory.irqs
    queue_rows = [row for row, irq in enumerate(irqs) if irq.netdev == machine.nic.netdev and irq.queues]
    weights = _weights(machine, len(queue_rows))
    peak = peak_packets_per_s(machine, len(queue_rows))
    interrupts = [0.0] * len(irqs)
    offered = [0.0] * len(machine.topology.cpus)
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
    return interrupts, offered


def _cpu_shares(
    machine: Machine, load: float, irq_time: list[float], handled: list[float], noise: random.Random
) -> _CpuShares:
    """Return the shares of each CPU's time. handled: packets per second that it processes."""
    softirq = [packets * _SOFTIRQ_S_PER_PACKET + 0.002 for packets in handled]
    kernel = sum(handled) * _SYSTEM_S_PER_PACKET / len(handled)
    programs = seeded_random("programs", machine.seed)
    shares = _CpuShares(irq_time, softirq, [], [], [], [])
    for cpu in range(len(handled)):
        left = max(0.0, 1 - softirq[cpu] - irq_time[cpu])
        demand = (0.03 + 0.5 * load * programs.uniform(0.3, 1.0)) * noise.uniform(0.8, 1.2)
        shares.user.append(min(demand, 0.7 * left))
        shares.system.append(min(0.3 * demand + kernel, 0.25 * left))
        shares.busy.append(min(1.0, shares.user[cpu] + shares.system[cpu] + softirq[cpu] + irq_time[cpu]))
        shares.iowait.append(min(1 - shares.busy[cpu], 0.02 * load * noise.random()))
    return shares


def _scaled(shares: _CpuShares, factor: float) -> _CpuShares:
    """Return the shares with all kinds of CPU time multiplied, to at most the whole CPU."""
    if factor == 1:
        return shares
    factors = [min(factor, 1 / busy) if busy > 0 else factor for busy in shares.busy]

    def times(column: list[float]) -> list[float]:
        return [share * own for share, own in zip(column, factors, strict=True)]

    busy = times(shares.busy)
    iowait = [min(wait, 1 - share) for wait, share in zip(shares.iowait, busy, strict=True)]
    return _CpuShares(times(shares.irq), times(shares.softirq), times(shares.user), times(shares.system), busy, iowait)


def _netdevs(
    machine: Machine, received: float, lost: float, duration_s: float, noise: random.Random
) -> list[NetdevCounts]:
    """Return each netdev's counts. received: packets of the first one; lost: packets per second dropped at its ring."""
    netdevs = []
    for place, netdev in enumerate(machine.inventory.netdevs):
        packets = int(received) if place == 0 else int(noise.uniform(20, 60) * duration_s)
        answers = int(packets * ANSWERS_PER_PACKET)
        # dropped at the NIC: its ring overflows when its CPU is too slow
        dropped = int(lost * duration_s * 0.1) if place == 0 else 0
        rx_bytes, tx_bytes = packets * BYTES_PER_PACKET, answers * BYTES_PER_PACKET
        netdevs.append(NetdevCounts(netdev.name, rx_bytes, tx_bytes, packets, answers, dropped, 0, 0, 0))
    return netdevs


def _share_columns(shares: _CpuShares) -> dict[str, bytes | None]:
    return {
        "busy": _u8(shares.busy),
        "user": _u8(shares.user),
        "system": _u8(shares.system),
        "irq": _u8(shares.irq),
        "softirq": _u8(shares.softirq),
        "steal": bytes(len(shares.busy)),
        "iowait": _u8(shares.iowait),
    }


def _count_columns(
    shares: _CpuShares, interrupts: list[float], offered: list[float], handled: list[float], duration_s: float
) -> dict[str, bytes | None]:
    """Return each CPU's counts of packets and interrupts. interrupts: delivered to it per second."""
    return {
        "net_rx": _u32([(i + p / 64) * duration_s for i, p in zip(interrupts, handled, strict=True)]),
        "net_tx": _u32([p / 500 * duration_s for p in handled]),
        "softirq_other": _u32([(50 + 600 * b) * duration_s for b in shares.busy]),
        "processed": _u32([p * duration_s for p in handled]),
        "dropped": _u32([0.05 * (o - h) * duration_s for o, h in zip(offered, handled, strict=True)]),
        "time_squeeze": _u32([max(0.0, (s - 0.6) * 300) * duration_s for s in shares.softirq]),
    }


def _weights(machine: Machine, queues: int) -> list[float]:
    own = seeded_random("weights", machine.seed)
    raw = [0.5 + own.random() for _ in range(queues)]
    return [weight / sum(raw) for weight in raw]


def _cells(
    machine: Machine, placement: tuple[int, ...], interrupts: list[float], busy: list[float], duration_s: float
) -> tuple[bytes, bytes, bytes]:
    """Return the nonzero IRQ × CPU counts as columns irq_ids, irq_cpus, irq_counts; devices, then rows such as LOC."""
    cells = [
        (irq.irq, placement[row], int(interrupts[row] * duration_s)) for row, irq in enumerate(machine.inventory.irqs)
    ]
    for label, idle, full in (("LOC", 60, 900), ("RES", 1, 300), ("CAL", 2, 400), ("TLB", 0, 40)):
        irq_id = encode_irq_id(label)
        assert irq_id is not None, label  # noqa: S101 - the four labels above are valid
        cells += [(irq_id, cpu, int((idle + full * share) * duration_s)) for cpu, share in enumerate(busy)]
    counted = [cell for cell in cells if cell[2]]
    return (
        array("I", [cell[0] for cell in counted]).tobytes(),
        array("H", [cell[1] for cell in counted]).tobytes(),
        array("I", [cell[2] for cell in counted]).tobytes(),
    )


def _latency(load: float, worst: float, noise: float, wait_us: float) -> TcpLatency:
    """Return round-trip times that include the NIC's coalescing delay and the queue of the busiest CPU.

    The queue adds 1 / (1 - utilization), as in M/M/1.
    """
    median = 180 * (1 + 0.6 * load) * noise + wait_us
    waiting = 1 / (1 - min(worst, 0.97))
    return TcpLatency(
        5 + int(200 * load), int(median), int(median * (1.5 + 0.3 * waiting)), int(median * (2 + waiting))
    )


def _u8(shares: list[float]) -> bytes:
    return bytes(round(share * SHARES_PER_UNIT) for share in shares)


def _u32(numbers: list[float]) -> bytes:
    return array("I", [int(number) for number in numbers]).tobytes()
