"""Separation of the echo experiment's classes by the gate's window, with its real rules in simulated time.

    python -m tests.bench.bench_class_windows [--requests 1000] [--service-us 550]

Fifty threads send the next request 0.1 ms after each answer; one slot, a constant service time, no other costs. The
result is the same on any machine; each row takes two seconds.
"""

import argparse
from heapq import heappop, heappush
from statistics import fmean

from coresteer_agent.workloads.classes_model import TARGETS_PERCENT
from coresteer_core.experiments.model import THREADS_PER_CLASS
from coresteer_core.metrics import CLASS_NAMES
from coresteer_core.policies.service_class.attainment import ClassTarget
from coresteer_core.policies.service_class.gate import Gate

WINDOWS_S = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 60.0)
THINK_S = 0.0001


def respond(window_s: float, requests: int, service_s: float) -> list[list[float]]:
    """Return the response times of each class, ms."""
    targets = [ClassTarget(*row) for row in zip(CLASS_NAMES, TARGETS_PERCENT, strict=True)]
    gate = Gate(targets, slots=1, window_s=window_s)
    threads = range(THREADS_PER_CLASS * len(CLASS_NAMES))
    asked_s = dict.fromkeys(threads, 0.0)
    left = dict.fromkeys(threads, requests)
    responses_ms: list[list[float]] = [[] for _ in CLASS_NAMES]
    events = [(thread / 1e6, thread, False) for thread in threads]
    while events:
        time_s, thread, done = heappop(events)
        if done:
            let_in = gate.leave(thread, time_s, ok=True)
            responses_ms[thread // THREADS_PER_CLASS].append((time_s - asked_s[thread]) * 1e3)
            left[thread] -= 1
            if left[thread]:
                heappush(events, (time_s + THINK_S, thread, False))
        else:
            asked_s[thread] = time_s
            let_in = gate.enter(thread, CLASS_NAMES[thread // THREADS_PER_CLASS], time_s)
        for one in let_in:
            heappush(events, (time_s + service_s, one, True))
    return responses_ms


def main() -> None:
    parser = argparse.ArgumentParser(description="The classes' response times by the gate's window.")
    parser.add_argument("--requests", type=int, default=1_000, help="of each thread")
    parser.add_argument("--service-us", type=float, default=550.0)
    args = parser.parse_args()
    service_s = args.service_us / 1e6
    print(
        f"Mean response time in ms, and the longest of any class; first come, first served: {50 * service_s * 1e3:.1f}."
    )
    print(f"\n| window (s) | requests a window | {' | '.join(CLASS_NAMES)} | all | c5 / c1 | longest |")
    print(f"|{'---|' * (len(CLASS_NAMES) + 5)}")
    for window_s in WINDOWS_S:
        responses_ms = respond(window_s, args.requests, service_s)
        means = [fmean(its) for its in responses_ms]
        figures = (*means, fmean(means), means[-1] / means[0], max(map(max, responses_ms)))
        print(f"| {window_s:g} | {window_s / service_s:.0f} | {' | '.join(f'{figure:.2f}' for figure in figures)} |")


if __name__ == "__main__":
    main()
