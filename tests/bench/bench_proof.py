"""Calibration of the proof of policies: false detections, time to detection, coverage, carry-over; by simulation.

Simulated are the logarithms of a metric in the blocks of the product's schedule (10 minutes, 5 % holdout) over 30 days;
the sequences, intervals and wash-outs are computed by the product. Next to them stands what a dashboard would do: a
t-test of the same data, repeated every hour until it finds something.
"""

import math
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from scipy import stats

from coresteer.proof.confidence_sequence import PLANNED_S, Evidence, half_width, rho_for
from coresteer.proof.schedule import BUCKETS, Design, Subject, planned
from coresteer.proof.washout import Switch, washout

F64 = npt.NDArray[np.float64]

DESIGN = Design(block_s=600, share=0.05, max_domain_share=0.2)
DAYS = 30
PERIODS = int(DAYS * 86_400 / DESIGN.period_s)
RUNS = 2000
ALLOWED = 119  # 5 % of 2,000, and 1.96 standard deviations of that number
DAY_S, HOUR_S = 86_400.0, 3600.0
_AT_ONCE = 4_000_000  # differences in memory
_CORRELATION = 0.9  # of adjacent blocks
_FIRST_TEST = 5  # episodes before the first t-test


@dataclass(frozen=True)
class Noise:
    """What moves the metric besides the policy, as standard deviations or amplitudes of its logarithm.

    drift: over the 30 days; day: amplitude of the daily cycle; slow: autocorrelated, 0.9 from a block to the next;
    fast: of a block itself, from the distribution tail.
    """

    drift: float = 0.0
    day: float = 0.0
    slow: float = 0.0
    fast: float = 0.05
    tail: Callable[[np.random.Generator, tuple[int, ...]], F64] = field(
        default=lambda random, shape: random.standard_normal(shape)
    )


def student(freedom: float) -> Callable[[np.random.Generator, tuple[int, ...]], F64]:
    return lambda random, shape: random.standard_t(freedom, shape)


EVERYTHING = Noise(drift=1.0, day=0.5, slow=0.05, fast=0.03, tail=student(3))
NOISES = {
    "normal": Noise(),
    "drift": Noise(drift=1.0),
    "day and night": Noise(day=0.5),
    "autocorrelated": Noise(slow=0.1, fast=0.02),
    "Student t, 3": Noise(fast=0.03, tail=student(3)),
    "Cauchy": Noise(fast=0.02, tail=student(1)),
    "all (t, 3)": EVERYTHING,
}


@dataclass(frozen=True)
class Episodes:
    """Episodes of several runs in the order in which they end: runs × episodes. ends_s: from the beginning.

    levels: of the metric without the policy in the enforced and in the holdout block.
    """

    ends_s: F64
    enforced: F64
    holdout: F64
    holdout_first: npt.NDArray[np.bool_]


def simulate(random: np.random.Generator, noise: Noise, runs: int, nodes: int) -> Episodes:
    """Simulate the blocks of all episodes of 30 days as they would be without the policy."""
    shape = (runs, nodes, PERIODS)
    latest = DESIGN.period_s - DESIGN.episode_s
    starts = np.arange(PERIODS) * DESIGN.period_s + random.random(shape) * latest
    phases = random.random((runs, nodes, 1)) * 0.5  # the nodes of a fleet mostly share their day
    drifts = random.standard_normal((runs, nodes, 1)) * noise.drift
    blocks = []
    slow = _slow(random, starts) if noise.slow else (np.zeros(shape), np.zeros(shape))
    for block, slowly in enumerate(slow):
        middle = starts + (block + 0.5) * DESIGN.block_s
        level = drifts * (middle / (DAYS * DAY_S)) + noise.slow * slowly
        level += noise.day * np.sin(2 * np.pi * (middle / DAY_S + phases))
        level += noise.fast * noise.tail(random, shape)
        blocks.append(level)
    first = random.random(shape) < 0.5
    ends = (starts + DESIGN.episode_s).reshape(runs, -1)
    order = np.argsort(ends, axis=1)

    def ordered(values: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
        return np.take_along_axis(values.reshape(runs, -1), order, axis=1)

    return Episodes(
        ordered(ends),  # type: ignore[arg-type]
        ordered(np.where(first, blocks[1], blocks[0])),  # type: ignore[arg-type]
        ordered(np.where(first, blocks[0], blocks[1])),  # type: ignore[arg-type]
        ordered(first),  # type: ignore[arg-type]
    )


def _slow(random: np.random.Generator, starts: F64) -> tuple[F64, F64]:
    """Return an autocorrelated process of variance 1 in both blocks of each episode, also across the gaps."""
    both = np.empty((2, *starts.shape))
    level = random.standard_normal(starts.shape[:2])
    ended = starts[..., 0]
    within = math.sqrt(1 - _CORRELATION**2)
    for period in range(starts.shape[2]):
        kept = _CORRELATION ** (np.maximum(starts[..., period] - ended, 0) / DESIGN.block_s)
        level = kept * level + np.sqrt(1 - kept**2) * random.standard_normal(level.shape)
        both[0, ..., period] = level
        level = _CORRELATION * level + within * random.standard_normal(level.shape)
        both[1, ..., period] = level
        ended = starts[..., period] + DESIGN.block_s
    return both[0], both[1]


def chunks(runs: int, nodes: int) -> Iterator[int]:
    """Yield numbers of runs that fit in memory together."""
    at_once = max(1, min(runs, _AT_ONCE // (nodes * PERIODS)))
    while runs > 0:
        yield min(at_once, runs)
        runs -= at_once


def rho_of(nodes: int) -> float:
    return rho_for(nodes * PLANNED_S / DESIGN.period_s)


def ever_excludes(differences: F64, effect: float, rho: float) -> npt.NDArray[np.bool_]:
    """Return for each run whether the sequence excludes an effect (its logarithm) at any time."""
    running = Evidence.running(differences)
    mean = running.total / np.maximum(running.episodes, 1)
    found: npt.NDArray[np.bool_] = np.any(np.abs(mean - effect) > half_width(running, rho), axis=1)
    return found


def hourly_t_tests(episodes: Episodes) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Return for each run whether a t-test at 5 % finds a difference at any full hour: paired, and of all blocks."""
    hours = np.arange(1, int(DAYS * DAY_S / HOUR_S) + 1) * HOUR_S
    differences = episodes.enforced - episodes.holdout
    sums = [np.cumsum(values, axis=1) for each in (differences, episodes.enforced, episodes.holdout)
            for values in (each, each**2)]  # fmt: skip
    found = []
    at = np.stack([np.searchsorted(ends, hours, side="right") for ends in episodes.ends_s])
    n = np.maximum(at, 2).astype(np.float64)
    total, squares, a, a2, b, b2 = (np.take_along_axis(each, np.maximum(at - 1, 0), axis=1) for each in sums)
    for shift, variance, freedom in (
        (total / n, _variance(total, squares, n) / n, n - 1),
        ((a - b) / n, (_variance(a, a2, n) + _variance(b, b2, n)) / n, 2 * n - 2),
    ):
        critical = stats.t.ppf(0.975, freedom)
        found.append(((at >= _FIRST_TEST) & (np.abs(shift) > critical * np.sqrt(variance))).any(axis=1))
    return found[0], found[1]


def _variance(total: F64, squares: F64, n: F64) -> F64:
    found: F64 = np.maximum(squares - total**2 / n, 0) / (n - 1)
    return found


def false_detections() -> bool:
    print(f"\nNo effect: runs of {RUNS} with an effect found at any time within {DAYS} days (allowed: {ALLOWED})")
    print(f"{'noise':16}{'nodes':>7}{'seed':>7}{'sequence':>11}{'t-test hourly, paired':>24}{'of all blocks':>16}")
    passed = True
    cases = [(name, 10) for name in NOISES] + [("all (t, 3)", 1), ("all (t, 3)", 100)]
    for seed, (name, nodes) in enumerate(cases, start=1501):
        random = np.random.default_rng(seed)
        found = np.zeros(3, np.int64)
        for runs in chunks(RUNS, nodes):
            episodes = simulate(random, NOISES[name], runs, nodes)
            paired, pooled = hourly_t_tests(episodes)
            sequence = ever_excludes(episodes.enforced - episodes.holdout, 0.0, rho_of(nodes))
            found += [sequence.sum(), paired.sum(), pooled.sum()]
        passed &= bool(found[0] <= ALLOWED)
        print(f"{name:16}{nodes:7}{seed:7}{found[0]:11}{found[1]:24}{found[2]:16}", flush=True)
    return passed


def detections() -> None:
    print("\nPlanted effects under all of the noise: time to detection, and whether the interval has the true effect")
    print("(any time: in every moment of the 30 days; 5 % of the runs may fail that)")
    head = f"{'saving':>7}{'nodes':>7}{'seed':>7}{'runs':>6}{'detected':>10}{'median':>9}{'90 %':>9}"
    print(f"{head}{'width at 30 d':>15}{'coverage 30 d':>15}{'any time':>10}")
    seed = 1600
    for percent in (1, 3, 10):
        for nodes, number in ((10, 1000), (100, 400), (1000, 100)):
            seed += 1
            random, rho = np.random.default_rng(seed), rho_of(nodes)
            true = math.log(1 - percent / 100)
            times, widths, covered, always = [], [], 0, 0
            for runs in chunks(number, nodes):
                episodes = simulate(random, EVERYTHING, runs, nodes)
                running = Evidence.running(episodes.enforced - episodes.holdout + true)
                mean, half = running.total / running.episodes, half_width(running, rho)
                excluded = np.abs(mean) > half
                first = np.where(excluded.any(axis=1), excluded.argmax(axis=1), -1)
                ends = np.take_along_axis(episodes.ends_s, np.maximum(first, 0)[:, None], axis=1)[:, 0]
                times += np.where(first >= 0, ends, np.inf).tolist()
                inside = np.abs(mean - true) <= half
                covered += int(inside[:, -1].sum())
                always += int(inside.all(axis=1).sum())
                widths += (2 * np.sinh(half[:, -1])).tolist()
            found = sum(map(math.isfinite, times))
            text = f"{percent:5} %{nodes:7}{seed:7}{number:6}{100 * found / number:8.1f} %"
            text += "".join(f"{_time(np.quantile(times, q, method='lower')):>9}" for q in (0.5, 0.9))
            text += f"{100 * np.median(widths):13.2f} %{100 * covered / number:13.1f} %{100 * always / number:8.1f} %"
            print(text, flush=True)


def _time(seconds: float) -> str:
    if not math.isfinite(seconds):
        return "> 30 d"
    return f"{seconds / 60:.0f} min" if seconds < 2 * HOUR_S else (
        f"{seconds / HOUR_S:.1f} h" if seconds < 2 * DAY_S else f"{seconds / DAY_S:.1f} d")  # fmt: skip


def carry_over() -> None:
    runs, nodes, percent = 40, 100, 10
    true = math.log(1 - percent / 100)
    print(f"\nCarry-over: a planted saving of {percent} % on {nodes} nodes, approached exponentially after a switch;")
    print(f"{runs} runs of {DAYS} days. Wash-out: none, or chosen each day from the episodes of the days before")
    head = f"{'constant':>9}{'seed':>7}{'bias, none':>13}{'coverage 30 d':>15}"
    print(f"{head}{'wash-out':>10}{'bias':>9}{'coverage 30 d':>15}{'any time':>10}")
    for seed, constant_s in enumerate((1, 5, 15, 30, 60), start=1701):
        random, rho = np.random.default_rng(seed), rho_of(nodes)
        coverage, always, lengths = [0, 0], 0, []
        biases: tuple[list[float], list[float]] = ([], [])
        for _ in range(runs):
            plain, washed, chosen = _one_with_carry_over(random, nodes, float(constant_s), true)
            lengths.append(chosen)
            for kind, differences in enumerate((plain, washed)):
                running = Evidence.running(differences[None, :])
                mean, half = running.total / running.episodes, half_width(running, rho)
                biases[kind].append(float(mean[0, -1]) / true - 1)
                inside = np.abs(mean - true) <= half
                coverage[kind] += int(inside[0, -1])
                always += int(kind == 1 and inside.all())
        text = f"{constant_s:7} s{seed:7}{100 * np.mean(biases[0]):11.1f} %{100 * coverage[0] / runs:13.1f} %"
        text += f"{np.median(lengths):8.0f} s{100 * np.mean(biases[1]):7.2f} %{100 * coverage[1] / runs:13.1f} %"
        print(f"{text}{100 * always / runs:8.1f} %", flush=True)


def _one_with_carry_over(
    random: np.random.Generator, nodes: int, constant_s: float, true: float
) -> tuple[F64, F64, float]:
    """Return a run's differences without and with wash-out, and the last wash-out in seconds."""
    episodes = simulate(random, EVERYTHING, 1, nodes)
    count = episodes.ends_s.shape[1]
    edges = np.exp(-np.arange(BUCKETS + 1) * DESIGN.bucket_s / constant_s)
    decay = constant_s / DESIGN.bucket_s * (edges[:-1] - edges[1:])  # mean share of the former level in each part
    own = 0.03 * random.standard_t(3, (2, count, BUCKETS))
    first = episodes.holdout_first[0]
    enforced = episodes.enforced[0][:, None] + own[0] + true * (1 - first[:, None] * decay)
    # before an episode the policy is enforced, so that an enforced block at its beginning follows no switch
    holdout = episodes.holdout[0][:, None] + own[1] + true * decay
    day = (episodes.ends_s[0] // DAY_S).astype(np.int64)
    washed, length_s = np.empty(count), 0.0
    for today in range(int(day[-1]) + 1):
        now, past = day == today, np.flatnonzero(day < today)[-1000:]
        switches = [Switch(False, holdout[at].tolist()) for at in past]
        switches += [Switch(True, enforced[at].tolist()) for at in past if first[at]]
        length_s = washout(switches, DESIGN.bucket_s, BUCKETS)
        skip = round(length_s / DESIGN.bucket_s)
        washed[now] = enforced[now, skip:].mean(axis=1) - holdout[now, skip:].mean(axis=1)
    return enforced.mean(axis=1) - holdout.mean(axis=1), washed, length_s


def schedule() -> None:
    nodes, seed = 200, 1801
    episodes = [
        episode
        for node_id in range(1, nodes + 1)
        for period in range(PERIODS)
        if (episode := planned(seed, Subject(1, 1, node_id), DESIGN, (period + 0.5) * DESIGN.period_s))
    ]
    holdout = len(episodes) * DESIGN.block_s / (nodes * PERIODS * DESIGN.period_s)
    heads = sum(episode.holdout_first for episode in episodes)
    print(f"\nThe product's schedule, {nodes} nodes for {DAYS} days, seed {seed}: {len(episodes)} episodes, ", end="")
    print(f"{100 * holdout:.2f} % of node-time is holdout, the first block in {100 * heads / len(episodes):.2f} %.")


def main() -> int:
    began = time.process_time()
    schedule()
    passed = false_detections()
    detections()
    carry_over()
    result = "within" if passed else "ABOVE"
    print(
        f"\n{time.process_time() - began:.0f} s of CPU time; false detections are {result} what 5 % and chance allow."
    )
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
