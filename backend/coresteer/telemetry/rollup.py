"""Roll-ups: what a span of samples came to, small enough to keep for more than a year. Pure."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from coresteer.telemetry.chunks import FIRST_LABEL_ID, U8, compress, decompress, netdev_values, start_ms
from coresteer_core.node.rates import ABSENT_SHARE, ABSENT_U32, CPU_SHARES, Rates

MINUTE_MS = 60_000


@dataclass(frozen=True)
class Rollup:
    """One span, at most a minute or an hour long. Sums are None where no sample told; the rtt and rss are maxima.

    peaks, means: CPU_SHARES × CPUs in units of 0.5 %, ABSENT_SHARE where unknown. netdevs: name → the eight sums of
    NetdevCounts. interrupts: of numbered device interrupts only.
    """

    start_ms: int
    end_ms: int
    first_seq: int
    samples: int
    duration_s: float
    cpus: int
    peaks: U8
    means: U8
    netdevs: dict[str, list[int]]
    interrupts: int | None
    dropped: int | None
    squeezed: int | None
    rtt_p50_us: int | None
    rtt_p95_us: int | None
    rtt_p99_us: int | None
    retransmits: int | None
    agent_cpu_s: float | None
    agent_rss_bytes: int | None


def minutes(samples: Sequence[Rates]) -> list[Rollup]:
    """One roll-up for each minute in which some of the samples began; all of one number of CPUs."""
    groups: dict[int, list[Rates]] = defaultdict(list)
    for rates in samples:
        groups[start_ms(rates) // MINUTE_MS].append(rates)
    return [_minute(group) for group in groups.values()]


def _minute(samples: list[Rates]) -> Rollup:
    cpus = samples[0].cpus
    blank = bytes([ABSENT_SHARE]) * cpus
    raw = b"".join([rates.shares.get(name) or blank for name in CPU_SHARES for rates in samples])
    shares = np.frombuffer(raw, np.uint8).reshape(len(CPU_SHARES), len(samples), cpus)
    netdevs: dict[str, list[int]] = {}
    for rates in samples:
        for netdev in rates.netdevs or ():
            values = netdev_values(netdev)
            if (sums := netdevs.get(netdev.name)) is None:
                netdevs[netdev.name] = list(values)
            else:
                for position, value in enumerate(values):
                    sums[position] += value
    return Rollup(
        start_ms=min(start_ms(rates) for rates in samples),
        end_ms=max(rates.time_ms for rates in samples),
        first_seq=samples[0].seq,
        samples=len(samples),
        duration_s=sum(rates.duration_s for rates in samples),
        cpus=cpus,
        peaks=_peaks(shares),
        means=_means(shares),
        netdevs=netdevs,
        interrupts=_interrupts([rates for rates in samples if rates.irq_ids is not None]),
        dropped=sum_u32(_joined([rates.counts.get("dropped") for rates in samples])),
        squeezed=sum_u32(_joined([rates.counts.get("time_squeeze") for rates in samples])),
        rtt_p50_us=_max([rates.tcp.rtt_p50_us for rates in samples if rates.tcp]),
        rtt_p95_us=_max([rates.tcp.rtt_p95_us for rates in samples if rates.tcp]),
        rtt_p99_us=_max([rates.tcp.rtt_p99_us for rates in samples if rates.tcp]),
        retransmits=_sum([rates.tcp_retransmits for rates in samples]),
        agent_cpu_s=_sum_float([rates.agent_cpu_s for rates in samples]),
        agent_rss_bytes=_max([rates.agent_rss_bytes for rates in samples]),
    )


def merge(parts: Sequence[Rollup]) -> Rollup:
    """One roll-up of some, at least one; the CPUs are those of the one with the most."""
    cpus = max(part.cpus for part in parts)
    netdevs: dict[str, list[int]] = {}
    for part in parts:
        for name, values in part.netdevs.items():
            sums = netdevs.get(name, [0] * len(values))
            netdevs[name] = [a + b for a, b in zip(sums, values, strict=True)]

    def stacked(arrays: list[U8]) -> U8:
        padded = np.full((len(CPU_SHARES), len(arrays), cpus), ABSENT_SHARE, np.uint8)
        for position, array in enumerate(arrays):
            padded[:, position, : array.shape[1]] = array
        return padded

    return Rollup(
        start_ms=min(part.start_ms for part in parts),
        end_ms=max(part.end_ms for part in parts),
        first_seq=parts[0].first_seq,
        samples=sum(part.samples for part in parts),
        duration_s=sum(part.duration_s for part in parts),
        cpus=cpus,
        peaks=_peaks(stacked([part.peaks for part in parts])),
        means=_means(stacked([part.means for part in parts]), np.array([part.duration_s for part in parts])),
        netdevs=netdevs,
        interrupts=_sum([part.interrupts for part in parts]),
        dropped=_sum([part.dropped for part in parts]),
        squeezed=_sum([part.squeezed for part in parts]),
        rtt_p50_us=_max([part.rtt_p50_us for part in parts]),
        rtt_p95_us=_max([part.rtt_p95_us for part in parts]),
        rtt_p99_us=_max([part.rtt_p99_us for part in parts]),
        retransmits=_sum([part.retransmits for part in parts]),
        agent_cpu_s=_sum_float([part.agent_cpu_s for part in parts]),
        agent_rss_bytes=_max([part.agent_rss_bytes for part in parts]),
    )


def _peaks(shares: U8) -> U8:
    """The maximum over the middle axis; adding one in a byte makes ABSENT_SHARE the smallest value."""
    peaks: U8 = (shares + np.uint8(1)).max(axis=1) - np.uint8(1)
    return peaks


def _means(shares: U8, weights: np.ndarray[tuple[int], np.dtype[np.float64]] | None = None) -> U8:
    """Over the middle axis, weighted along it; None weighs all the same, in integers because that is quicker."""
    known = shares != ABSENT_SHARE
    if weights is None:
        total, weighed = known.sum(axis=1, dtype=np.uint32), (shares * known).sum(axis=1, dtype=np.uint32)
    else:
        weight = known * weights[None, :, None]
        total, weighed = weight.sum(axis=1), (shares * weight).sum(axis=1)
    means: U8 = np.where(total > 0, np.rint(weighed / np.where(total > 0, total, 1)), ABSENT_SHARE).astype(np.uint8)
    return means


def _joined(columns: Sequence[bytes | None]) -> bytes:
    return b"".join([column for column in columns if column is not None])


def sum_u32(column: bytes | None) -> int | None:
    """The sum of a u32 column, None where nothing is known."""
    if column is None:
        return None
    values = np.frombuffer(column, "<u4")
    known = values[values != ABSENT_U32]
    return int(known.sum(dtype=np.int64)) if known.size else None


def rates_interrupts(rates: Rates) -> int | None:
    """Numbered device interrupts of a sample, without architecture rows such as the timer's LOC."""
    return _interrupts([] if rates.irq_ids is None else [rates])


def _interrupts(samples: Sequence[Rates]) -> int | None:
    """The same of samples that have cells; None for no samples."""
    if not samples:
        return None
    numbered = np.frombuffer(_joined([rates.irq_ids for rates in samples]), "<u4") < FIRST_LABEL_ID
    return int(np.frombuffer(_joined([rates.irq_counts for rates in samples]), "<u4")[numbered].sum(dtype=np.int64))


def _sum(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _sum_float(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _max(values: Sequence[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)


def pack_shares(rollup: Rollup) -> bytes:
    """peaks and means for the database."""
    return compress(rollup.peaks.tobytes() + rollup.means.tobytes())


def unpack_shares(packed: bytes, cpus: int) -> U8:
    """2 × CPU_SHARES × CPUs: peaks, then means."""
    return np.frombuffer(decompress(packed), np.uint8).reshape(2, len(CPU_SHARES), cpus)


def pack_netdevs(rollup: Rollup) -> bytes:
    """netdevs for the database."""
    return compress(msgspec.msgpack.encode(rollup.netdevs))


def unpack_netdevs(packed: bytes) -> dict[str, list[int]]:
    """What pack_netdevs took."""
    return msgspec.msgpack.decode(decompress(packed), type=dict[str, list[int]])
