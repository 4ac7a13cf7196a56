"""Load of a simulated node over a day, its processes, and the error counts of a failing NIC."""

import math

from msgspec import Struct

from coresteer_agent.simulate.machine import Fault, Machine
from coresteer_agent.simulate.seeded_random import seeded_random
from coresteer_core.node.rates import NetdevCounts
from coresteer_core.node.tasks import Task

LOAD_LEVELS = 32
"""Steps of load from idle to full. Intervals are generated once per level and shared."""
NOISE_VARIANTS = 8
"""Number of variants of the random noise at one load level, so that a steady load varies."""

BYTES_PER_PACKET = 700
ANSWERS_PER_PACKET = 0.8
_DAY_S = 86_400
_TASKS = ("nginx", "memcached", "postgres", "envoy", "java", "ksoftirqd", "kubelet", "python3", "sshd", "systemd")


class LoadProfile(Struct, frozen=True):
    """Daily load of a simulated node. size: its peak load, 0 to 1; phase: of the daily cycle, 0 to 2π."""

    size: float
    phase: float


def load_profile(seed: int, index: int) -> LoadProfile:
    """Return the load profile of a node by its index in the fleet."""
    random = seeded_random("load profile", seed, index)
    return LoadProfile(random.uniform(0.35, 1.0), random.uniform(0, 2 * math.pi))


def load_level(time_s: float, profile: LoadProfile, fault: Fault) -> int:
    """Return the load level at a Unix time: a daily cycle with slower and faster waves, shifted per node."""
    tide = 0.5 - 0.5 * math.cos(2 * math.pi * (time_s / _DAY_S) + profile.phase / 6)
    waves = 0.08 * math.sin(2 * math.pi * time_s / 300 + profile.phase)
    waves += 0.05 * math.sin(2 * math.pi * time_s / 41 + 2 * profile.phase)
    load = profile.size * (0.15 + 0.75 * tide + waves)
    if fault is Fault.HOT_QUEUE:
        load = 0.6 + 0.3 * load
    return min(LOAD_LEVELS - 1, max(0, int(load * LOAD_LEVELS)))


def busiest_tasks(machine: Machine, level: int) -> list[Task]:
    """Return the processes with the most CPU time at a load level, the busiest first."""
    own = seeded_random("tasks", machine.seed)
    cpus = len(machine.topology.cpus)
    load = level / (LOAD_LEVELS - 1)
    tasks = [
        Task(1000 + 37 * place, name, own.randrange(cpus), round(load * own.uniform(0.1, 2.0) / (1 + place / 2), 3))
        for place, name in enumerate(_TASKS)
    ]
    return sorted(tasks, key=lambda task: -task.cpu_share)


def failing_nic_counts(counts: NetdevCounts, age_s: float, duration_s: float) -> NetdevCounts:
    """Return a failing NIC's counts: errors and drops double every 30 s; all 0 while its link is down."""
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
    """Return whether a failing NIC's link is down: 8 s of every minute, from the third minute on."""
    return age_s > 180 and age_s % 60 < 8


def peak_packets_per_s(machine: Machine, queues: int) -> float:
    """Return the packets per second that a machine's first NIC receives at full load.

    A CPU per queue is enough for it; a hot queue receives slightly more than one CPU can process.
    """
    if machine.fault is Fault.HOT_QUEUE:
        return 850_000
    return min(machine.nic.max_packets_per_s, queues * 150_000, len(machine.topology.cpus) * 120_000)
