"""The fifth system's experiment on this machine, compared with the paper: service order and cost.

    python -m tests.bench.bench_classes [--requests 1000] [--repeats 10] [--disturbance worker|gate|silent]

Runs every method once in each of the repeats, in an order shuffled with a seed, so that what else the machine does hits
all of them. Intervals are 95 % bootstrap intervals over the repeats; comparisons are within a repeat. Takes at most
--minutes, by fewer requests where the machine is too slow for them, and says so. Exits with 1 when the gate misses a
goal. Nothing else should run: the servers share one CPU, and a busy neighbour there decides more than any method.
"""

import argparse
import random
import sys
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from math import isnan
from pathlib import Path
from statistics import fmean
from typing import get_args

import msgspec

from coresteer_agent.workloads.classes import run
from coresteer_agent.workloads.classes_model import Disturbance, Result, Setup
from coresteer_core.experiments.model import THREADS_PER_CLASS, ClassesMethod
from coresteer_core.metrics import CLASS_NAMES

RATIO_GOAL = 3.2
MEAN_GOAL = 1.03
"""Of the gate's overall mean to that of nice."""
RESAMPLES = 4_000
WARM_UP_REQUESTS = 20
START_S = 1.5
"""What a run takes besides its requests."""
AUTHORS = {
    "nice (authors)": (3.780, 5.004, 5.791, 6.061, 7.724, 5.672),
    "percentile (authors)": (3.177, 4.401, 5.507, 7.197, 10.125, 6.081),
}
Runs = Sequence[Result]


def measure(
    methods: list[ClassesMethod], repeats: int, requests: int, *, seed: int, window_s: float, disturbance: Disturbance
) -> list[Runs]:
    """Return one block per repeat: each method's result, in the order of methods."""
    random_ = random.Random(seed)  # noqa: S311 - no secret
    blocks: list[Runs] = []
    for repeat in range(repeats):
        block = {}
        for method in random_.sample(methods, len(methods)):
            setup = Setup(
                method=method,
                requests=requests,
                seed=random_.getrandbits(32),
                window_s=window_s,
                disturbance=disturbance,
            )
            block[method] = run(setup)
            print_progress(f"repeat {repeat + 1}/{repeats} {method}: {block[method].duration_s:.1f} s")
        blocks.append([block[method] for method in methods])
    return blocks


def print_progress(what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)


def interval(blocks: Sequence[Runs], statistic: Callable[[Sequence[Runs]], float], seed: int) -> tuple[float, float]:
    """Return the 95 % bootstrap interval (percentiles) of a statistic of the blocks."""
    random_ = random.Random(seed)  # noqa: S311 - no secret
    values = sorted(statistic(random_.choices(blocks, k=len(blocks))) for _ in range(RESAMPLES))
    return values[int(0.025 * RESAMPLES)], values[int(0.975 * RESAMPLES)]


def mean_ms(index: int, name: str) -> Callable[[Sequence[Runs]], float]:
    """Return the mean over the blocks of a method's mean response time, of a class or of all, ms."""
    return lambda blocks: fmean(class_mean_ms(block[index], name) for block in blocks)


def class_mean_ms(result: Result, name: str) -> float:
    mean_us = next(row.mean_us for row in (*result.classes, result.all) if row.name == name)
    return float("nan") if mean_us is None else mean_us / 1e3


def over(above: Callable[[Sequence[Runs]], float], below: Callable[[Sequence[Runs]], float]) -> Callable[..., float]:
    return lambda blocks: above(blocks) / below(blocks)


def is_in_order(result: Result) -> bool:
    """Return whether each class with requests was served faster than the next."""
    means = [row.mean_us for row in result.classes if row.mean_us is not None]
    return all(before < after for before, after in pairwise(means))


def longest_wait_ms(runs: Runs, name: str) -> float | None:
    waits = [row.longest_wait_us for result in runs for row in result.classes if row.name == name]
    return max((wait / 1e3 for wait in waits if wait is not None), default=None)


def cell(blocks: Sequence[Runs], statistic: Callable[[Sequence[Runs]], float], seed: int, digits: int = 2) -> str:
    value = statistic(blocks)
    if isnan(value):
        return "–"
    low, high = interval(blocks, statistic, seed)
    return f"{value:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def table(rows: Sequence[Sequence[str]]) -> None:
    for number, row in enumerate(rows):
        print(f"| {' | '.join(row)} |")
        if number == 0:
            print(f"|{'---|' * len(row)}")
    print()


def report(methods: list[ClassesMethod], blocks: Sequence[Runs], seed: int) -> bool:
    """Print all results; return whether the gate meets its goals."""
    columns = list(enumerate(methods))
    print("Mean response time in ms, class 1 to 5 and all, with 95 % intervals over the repeats:\n")
    rows = [["method", *CLASS_NAMES, "all"]]
    rows += [[name, *(f"{value:.3f}" for value in values)] for name, values in AUTHORS.items()]
    rows += [
        [method, *(cell(blocks, mean_ms(index, name), seed) for name in (*CLASS_NAMES, "all"))]
        for index, method in columns
    ]
    table(rows)

    first, last = CLASS_NAMES[0], CLASS_NAMES[-1]
    rows = [["method", f"{last} / {first}", "all / nice", "order kept", "answered", "failed", "requests/s"]]
    for name, values in AUTHORS.items():
        cost = values[-1] / AUTHORS["nice (authors)"][-1]
        rows.append([name, f"{values[4] / values[0]:.2f}", f"{cost:.3f}", "–", "–", "–", "–"])
    for index, method in columns:
        runs = [block[index] for block in blocks]
        against = over(mean_ms(index, "all"), mean_ms(methods.index("nice"), "all")) if "nice" in methods else None
        rows.append(
            [
                method,
                cell(blocks, over(mean_ms(index, last), mean_ms(index, first)), seed),
                "–" if against is None else cell(blocks, against, seed, 3),
                f"{sum(map(is_in_order, runs))} of {len(runs)} runs",
                str(sum(result.all.completed for result in runs)),
                str(sum(result.all.failed for result in runs)),
                f"{fmean(result.throughput_per_s for result in runs):.0f}",
            ]
        )
    table(rows)

    print("Longest wait of any request in any run, from its arrival until a CPU worked on it, and p99 of all, in ms:\n")
    rows = [["method", *CLASS_NAMES, "p99 of all", "CPU µs a request", "server CPU busy", "client CPUs busy"]]
    for index, method in columns:
        runs = [block[index] for block in blocks]
        waits = [longest_wait_ms(runs, name) for name in CLASS_NAMES]
        rows.append(
            [
                method,
                *("–" if wait is None else f"{wait:.0f}" for wait in waits),
                f"{fmean((result.all.p99_us or 0) / 1e3 for result in runs):.0f}",
                f"{fmean(result.server_us for result in runs):.0f}",
                f"{fmean(result.server_busy for result in runs):.0%}",
                f"{fmean(result.clients_busy for result in runs):.0%}",
            ]
        )
    table(rows)
    return "gate" not in methods or goals(methods, blocks, seed)


def goals(methods: list[ClassesMethod], blocks: Sequence[Runs], seed: int) -> bool:
    """Print for each goal whether the gate meets it; the worse end of an interval must."""
    gate = methods.index("gate")
    runs = [block[gate] for block in blocks]
    kept = sum(map(is_in_order, runs))
    low, _ = interval(blocks, over(mean_ms(gate, CLASS_NAMES[-1]), mean_ms(gate, CLASS_NAMES[0])), seed)
    asked = all(row.completed for result in runs for row in result.classes if row.completed + row.failed)
    met = [
        (kept == len(runs), f"the order of the classes is kept in {kept} of {len(runs)} runs"),
        (low >= RATIO_GOAL, f"{CLASS_NAMES[-1]} / {CLASS_NAMES[0]} is at least {low:.2f}; the goal is {RATIO_GOAL}"),
        (asked, "every class that asked was served"),
    ]
    if "nice" in methods:
        _, high = interval(blocks, over(mean_ms(gate, "all"), mean_ms(methods.index("nice"), "all")), seed)
        met.append((high <= MEAN_GOAL, f"the overall mean is at most {high:.3f} of nice's; the goal is {MEAN_GOAL}"))
    for good, sentence in met:
        print(f"- {'met' if good else 'MISSED'}: by the gate, {sentence}.")
    return all(good for good, _ in met)


def affordable(methods: list[ClassesMethod], repeats: int, requests: int, minutes: float) -> int:
    """Return the number of requests for which there is time."""
    per_s = run(Setup(method="default", requests=WARM_UP_REQUESTS)).throughput_per_s
    runs = repeats * len(methods)
    at_once = THREADS_PER_CLASS * len(CLASS_NAMES)
    fitting = int((minutes * 60 / runs - START_S) * per_s / at_once)
    chosen = max(1, min(requests, fitting))
    minutes_left = runs * (chosen * at_once / per_s + START_S) / 60
    print_progress(f"about {minutes_left:.0f} min for {runs} runs of {chosen} requests a thread")
    if chosen < requests:
        print(
            f"Not {requests} but {chosen} requests a thread, to be done in {minutes:g} min at {per_s:.0f} a second.\n"
        )
    return chosen


def main() -> int:
    parser = argparse.ArgumentParser(description="The percentile scheduler's experiment, all methods interleaved.")
    parser.add_argument("--requests", type=int, default=1_000, help="of each thread")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--seed", type=int, default=20261121)
    parser.add_argument("--window", type=float, default=Setup(method="gate").window_s, help="of gate and weight, in s")
    parser.add_argument("--minutes", type=float, default=25.0, help="fewer requests where it would take longer")
    parser.add_argument("--methods", nargs="+", choices=get_args(ClassesMethod), default=list(get_args(ClassesMethod)))
    parser.add_argument("--disturbance", choices=get_args(Disturbance), default="none")
    parser.add_argument("--results", type=Path, help="a file for every run's result (JSON)")
    args = parser.parse_args()
    begin_s = time.monotonic()
    requests = affordable(args.methods, args.repeats, args.requests, args.minutes)
    blocks = measure(
        args.methods, args.repeats, requests, seed=args.seed, window_s=args.window, disturbance=args.disturbance
    )
    if args.results is not None:
        args.results.write_bytes(msgspec.json.encode(blocks))
    every = [result for block in blocks for result in block]
    versions = ", ".join(f"{name} {value}" for name, value in every[0].versions.items())
    loads = [result.load_before for result in every]
    print(
        f"{len(CLASS_NAMES)} classes × {THREADS_PER_CLASS} threads × {requests} requests, "
        f"{args.repeats} repeats, seed {args.seed}, "
        f"disturbance {args.disturbance}, window {every[0].setup.window_s:g} s. {versions}. Acceptors real-time: "
        f"{'always' if all(result.realtime for result in every) else 'not always'}. Load average before a run, which "
        f"has the run before it in it: {min(loads):.1f} to {max(loads):.1f}.\n"
    )
    good = report(args.methods, blocks, args.seed)
    print(f"\nTook {(time.monotonic() - begin_s) / 60:.1f} min.")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
