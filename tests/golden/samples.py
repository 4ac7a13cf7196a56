"""Samples of a small node by formula: 4 CPUs, 2 NICs and loopback, and one column or source missing now and then."""

import numpy as np

from coresteer_core.node.rates import (
    ABSENT_SHARE,
    CPU_COUNTS,
    CPU_SHARES,
    NetdevCounts,
    Rates,
    TcpLatency,
    encode_irq_id,
)

CPUS = 4
START_MS = 1_800_000_030_000
"""In the middle of a minute, so that ten samples of five seconds are of two minutes."""
STEP_MS = 5_000
_LOC = encode_irq_id("LOC") or 0


def made() -> list[Rates]:
    """Ten samples."""
    return [_sample(n) for n in range(10)]


def _sample(n: int) -> Rates:
    cpus = np.arange(CPUS)
    shares = {name: (cpus * 40 + k * 7 + n * 3) % 190 for k, name in enumerate(CPU_SHARES)}
    shares["steal"][3] = ABSENT_SHARE
    counts = {
        name: (cpus + 1) * (k + 1) * (n + 1) * (300 if name == "processed" else 1) for k, name in enumerate(CPU_COUNTS)
    }
    ids, where = [40, 41, 41, 9, _LOC, _LOC], [0, 1, 2, 3, 0, 1]
    moved = [(n + 1) * 100, (n + 1) * 70_000, n % 2 * 9, int(n == 7), 1250, 900]
    cells = [(i, c, m) for i, c, m in zip(ids, where, moved, strict=True) if m]
    netdevs = [
        NetdevCounts("eth0", 10**9 * (n + 1), 5_000 * n, 700_000 + n, 60 * n, n, 0, 0, 1),
        NetdevCounts("eth1", 64 * n, 64, n, 1, 0, 2, 3, 4),
        NetdevCounts("lo", 100, 100, 1, 1, 0, 0, 0, 0),
    ]
    return Rates(
        seq=11 + n,
        time_ms=START_MS + (n + 1) * STEP_MS,
        duration_s=STEP_MS / 1000,
        cpus=CPUS,
        shares={name: None if name == "iowait" and n == 4 else v.astype("u1").tobytes() for name, v in shares.items()},
        counts={name: None if name == "net_tx" else v.astype("<u4").tobytes() for name, v in counts.items()},
        irq_ids=None if n == 5 else np.array([c[0] for c in cells], "<u4").tobytes(),
        irq_cpus=None if n == 5 else np.array([c[1] for c in cells], "<u2").tobytes(),
        irq_counts=None if n == 5 else np.array([c[2] for c in cells], "<u4").tobytes(),
        netdevs=None if n == 6 else netdevs,
        tcp=None if n == 3 else TcpLatency(5 + n, 200 + n, 900 - n, 2_000 + 10 * n),
        agent_cpu_s=None if n == 8 else 0.025 + n / 1000,
        agent_rss_bytes=28_000_000 + n * 4096,
        counters={"tcp_out_segments": 9_000 + n} | ({} if n == 2 else {"tcp_retransmits": n}),
    )
