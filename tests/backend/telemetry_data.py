"""Rates of a plausible machine, seeded, for the telemetry tests and the bench."""

import numpy as np

from coresteer_core.metrics import COUNTER_SOURCES
from coresteer_core.node.locality import ByDistance, TrafficDistance, distance_counters
from coresteer_core.node.rates import CPU_COUNTS, CPU_SHARES, NetdevCounts, Rates, TcpLatency, encode_irq_id

_COUNTS = {"tcp_out_segments": 9000, "numa_local": 9000, "numa_other": 0, "pages_moved": 0}
_LABELS = [number for label in ("LOC", "RES", "CAL", "TLB") if (number := encode_irq_id(label)) is not None]


def machine(
    seconds: int,
    *,
    cpus: int = 64,
    irqs: int = 150,
    busy_cpus: int | None = None,
    seed: int = 1,
    start_ms: int = 1_800_000_000_000,
    first_seq: int = 1,
) -> list[Rates]:
    """One Rates a second: busy cores, NIC queues, timers, mostly quiet interrupts; all CPUs but busy_cpus are idle."""
    rng = np.random.default_rng(seed)
    level = rng.gamma(1.2, 8, cpus).clip(0, 180)
    level[cpus if busy_cpus is None else busy_cpus :] = 0
    homes = rng.integers(0, busy_cpus or cpus, irqs)
    per_s = np.where(np.arange(irqs) < min(32, cpus), rng.gamma(2, 400, irqs), rng.gamma(0.3, 2, irqs))
    made = []
    for second in range(seconds):
        softirq = (rng.poisson(level * 0.1)).clip(0, 60).astype(np.uint8)
        user = rng.poisson(level * 0.6).clip(0, 100).astype(np.uint8)
        system = rng.poisson(level * 0.2).clip(0, 40).astype(np.uint8)
        shares: dict[str, np.ndarray] = dict.fromkeys(CPU_SHARES, np.zeros(cpus, np.uint8))
        shares |= {"softirq": softirq, "user": user, "system": system, "busy": softirq + user + system}
        net_rx = rng.poisson(np.bincount(homes, per_s, cpus) * 0.8).astype("<u4")
        counts: dict[str, np.ndarray] = dict.fromkeys(CPU_COUNTS, np.zeros(cpus, "<u4"))
        counts |= {
            "net_rx": net_rx,
            "net_tx": rng.poisson(net_rx * 0.01).astype("<u4"),
            "softirq_other": rng.poisson(1 + level * 2).astype("<u4"),
            "processed": (net_rx * 2).astype("<u4"),
        }
        fired = rng.poisson(per_s)
        ids = np.concatenate([np.arange(irqs) + 24, np.repeat(_LABELS, cpus)])
        where = np.concatenate([homes, np.tile(np.arange(cpus), len(_LABELS))])
        values = np.concatenate(
            [
                fired,
                rng.poisson(2 + level),
                rng.poisson(level * 0.3),
                rng.poisson(level * 0.05),
                rng.poisson(level * 0.01),
            ]
        )
        moved = values > 0
        flows = np.random.default_rng((seed, second // 5))  # they are read every 5 s
        core, l3, remote, unknown = (float(part) for part in flows.poisson((500_000, 900_000, 300_000, 4_000)))
        by_distance = ByDistance(core=core, l3=l3, remote=remote, unknown=unknown)
        rx = int(rng.poisson(net_rx.sum()))
        made.append(
            Rates(
                seq=first_seq + second,
                time_ms=start_ms + 1000 * second + int(rng.integers(0, 3)),
                duration_s=1.0 + float(rng.integers(-900, 900)) * 1e-6,
                cpus=cpus,
                shares={name: column.tobytes() for name, column in shares.items()},
                counts={name: column.tobytes() for name, column in counts.items()},
                irq_ids=ids[moved].astype("<u4").tobytes(),
                irq_cpus=where[moved].astype("<u2").tobytes(),
                irq_counts=values[moved].astype("<u4").tobytes(),
                netdevs=[NetdevCounts("eth0", rx * 900, rx * 400, rx, rx // 2, 0, 0, 0, 0)],
                tcp=TcpLatency(40 + second % 3, 200 + second % 7, 900, 2000 + second % 90),
                agent_cpu_s=float(rng.integers(4000, 6000)) * 1e-6,
                agent_rss_bytes=28_000_000,
                counters={
                    name: int(rng.poisson(_COUNTS.get(name, 2)))
                    for name, source in COUNTER_SOURCES.items()
                    if source.path
                }
                | distance_counters(TrafficDistance(by_distance, by_distance), 1.0),
            )
        )
    return made
