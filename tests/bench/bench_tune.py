"""How near the best setting a tune comes, with how many runs, next to other ways to search.

    python -m tests.bench.bench_tune [--seeds 100] [--optuna]

A receive queue of a NIC is simulated packet by packet (coresteer_core.node.nic_model): CPU time per gigabit follows
from its interrupts and packets, response times from the added latency, and where the ring overflows from
retransmissions. So the best of all combinations is known by measuring each without noise (the full sweep). A run then
has noise, and drifts; each search may use 30 % of the runs that the full sweep takes once.

A search succeeds if its choice truly keeps the limit of the 99th percentile, and truly needs at most 5 % more CPU time
per gigabit than the best one. Exits with 1 where the tune succeeds in fewer than 90 % of its searches of a machine.
--optuna: also samplers of Optuna, where it is installed; it is none of the project's dependencies.
"""

import argparse
import importlib
import math
import sys
import time
from collections.abc import Callable
from functools import cache
from random import Random
from typing import Any, NamedTuple, TypeAlias

from coresteer.experiments.spec import Arm, Factor, Level
from coresteer.experiments.tune.search import Goal, Measured, Search
from coresteer.experiments.tune.space import Space
from coresteer_core.node.nic import Timer
from coresteer_core.node.nic_model import HostCosts, QueueTraffic, TimerParams, predict

GOAL = 0.9
NEAR = 1.05
SHARE = 0.3
"""Of the runs of a full sweep."""
USECS = (0, 1, 3, 5, 8, 12, 20, 30, 50, 80, 120, 200, 300, 500)
FRAMES = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256)
RINGS = (64, 256, 1024)
_MEMORY = 0.8
"""Correlation of the drift of a block with that of the next one."""
_BASE_US = 100.0
_RETRANSMISSION_US = 200_000.0
_LOST = 0.01
"""From this share of lost packets on, the 99th percentile of response times contains a retransmission."""


class Machine(NamedTuple):
    """A simulated NIC under a load. noise: relative, of CPU time and response times; drift: standard deviation."""

    name: str
    timer: Timer
    traffic: QueueTraffic
    limit_us: float
    host: HostCosts = HostCosts()
    rings: tuple[int, ...] = (256,)
    noise: tuple[float, float] = (0.02, 0.05)
    drift: float = 0.02

    def truth(self, rx_usecs: int, rx_frames: int, ring: int) -> tuple[float, float]:
        """CPU time per gigabit, s, and the 99th percentile of response times, µs, without noise."""
        host = HostCosts(ring, self.host.entry_us, self.host.packet_us)
        found = predict(self.traffic, TimerParams(self.timer, rx_usecs, rx_frames), host)
        received = self.traffic.packets_per_s * (1 - found.dropped_share)
        cpu_us = found.interrupts_per_s * host.entry_us + received * host.packet_us
        lost = min(1.0, found.dropped_share / _LOST)
        return (
            cpu_us * 1e-6 / (received * self.traffic.frame_bytes * 8e-9),
            _BASE_US + found.added_p99_us + lost * _RETRANSMISSION_US,
        )


_FAST = QueueTraffic(300_000, 1500, 10**11)
MACHINES = (
    Machine("the paper's traffic, timer restarts", Timer.RESTARTING, QueueTraffic(13_889, 9000, 10**9), 400.0),
    Machine("20,000 packets/s, timer from the first packet", Timer.ABSOLUTE, QueueTraffic(20_000, 1500, 10**10), 250.0),
    Machine("300,000 packets/s, timer from the first packet", Timer.ABSOLUTE, _FAST, 160.0),
    Machine("100,000 packets/s, throttle", Timer.THROTTLE, QueueTraffic(100_000, 700, 10**10), 2000.0),
    Machine("300,000 packets/s, three ring sizes", Timer.ABSOLUTE, _FAST, 300.0, rings=RINGS),
    Machine("20,000 packets/s, much noise", Timer.ABSOLUTE, QueueTraffic(20_000, 1500, 10**10), 250.0,
            noise=(0.05, 0.15), drift=0.05),
)  # fmt: skip


class Trial:
    """One search of a machine: measures with noise, and counts. The drift is an AR(1) process from block to block."""

    def __init__(self, machine: Machine, seed: int, budget: int) -> None:
        self.machine, self.budget, self.runs = machine, budget, 0
        self.random = Random(seed)  # noqa: S311 - no secret
        self._drift = (self.random.gauss(0, machine.drift), self.random.gauss(0, machine.drift))

    def next_block(self) -> None:
        """Let the machine drift."""
        news = self.machine.drift * math.sqrt(1 - _MEMORY**2)
        cost, latency = (_MEMORY * each + self.random.gauss(0, news) for each in self._drift)
        self._drift = (cost, latency)

    def measure(self, arm: Arm) -> tuple[float, float]:
        """Return the metrics of a run of a candidate, with noise and drift."""
        self.runs += 1
        found = zip(truth_of(self.machine)[arm], self.machine.noise, self._drift, strict=True)
        cost, latency = (value * math.exp(drift + self.random.gauss(0, noise)) for value, noise, drift in found)
        return cost, latency


SearchFor: TypeAlias = Callable[[Trial], Arm | None]


@cache
def factors_of(machine: Machine) -> tuple[Factor, ...]:
    """What is varied; the first level of each is the baseline."""
    sizes = [("rx-usecs", USECS), ("rx-frames", FRAMES), ("ring", machine.rings)]
    return tuple(
        Factor(name, [Level(f"{value}", value=value) for value in values]) for name, values in sizes if len(values) > 1
    )


@cache
def truth_of(machine: Machine) -> dict[Arm, tuple[float, float]]:
    """The full sweep, without noise."""
    found = {}
    for arm in Space(factors_of(machine)).arms:
        usecs, frames, *ring = arm
        found[arm] = machine.truth(USECS[usecs], FRAMES[frames], machine.rings[ring[0] if ring else 0])
    return found


def tuned(trial: Trial) -> Arm | None:
    """The tune of this project."""
    space = Space(factors_of(trial.machine))
    goal, seed = Goal(1, trial.machine.limit_us), trial.random.randrange(2**31)
    runs: list[Measured] = []
    for block in range(1000):
        search = Search(space, goal, runs, [], blocks=block, seed=seed)
        arms = search.next_block()
        if not arms or trial.runs + len(arms) > trial.budget:
            break
        trial.next_block()
        runs += [Measured(block, arm, *trial.measure(arm)) for arm in arms]
    return None if search.best is None else space.arms[search.best]


def at_random(trial: Trial) -> Arm | None:
    """As many candidates as the budget allows, each once."""
    arms = trial.random.sample(list(truth_of(trial.machine)), trial.budget)
    return _best_of(trial, {arm: [_measured_in_blocks(trial, arm)] for arm in arms})


def halved(trial: Trial) -> Arm | None:
    """Successive halving (Karnin et al., 2013): random candidates, of which the better half is measured again."""
    rounds = max(1, math.ceil(math.log2(trial.budget)) - 2)
    arms = trial.random.sample(list(truth_of(trial.machine)), trial.budget // 2)
    found: dict[Arm, list[tuple[float, float]]] = {arm: [] for arm in arms}
    for _ in range(rounds):
        for arm in arms[: trial.budget - trial.runs]:
            found[arm].append(_measured_in_blocks(trial, arm))
        arms = sorted(arms, key=lambda arm: _rank(trial, found[arm]))[: max(1, len(arms) // 2)]
    return _best_of(trial, {arm: figures for arm, figures in found.items() if arm in arms})


def _measured_in_blocks(trial: Trial, arm: Arm) -> tuple[float, float]:
    if trial.runs % 6 == 0:
        trial.next_block()
    return trial.measure(arm)


def _rank(trial: Trial, figures: list[tuple[float, float]]) -> tuple[float, float]:
    cost, latency = (sum(each) / len(figures) for each in zip(*figures, strict=True))
    over = max(0.0, latency - trial.machine.limit_us)
    return (over, cost)


def _best_of(trial: Trial, found: dict[Arm, list[tuple[float, float]]]) -> Arm | None:
    best = min(found, key=lambda arm: _rank(trial, found[arm]))
    return best if _rank(trial, found[best])[0] == 0 else None


def by_optuna(sampler: str) -> SearchFor:
    """A sampler of Optuna with the limit as its constraint."""
    optuna: Any = importlib.import_module("optuna")  # none of the project's dependencies
    optuna.logging.set_verbosity(optuna.logging.ERROR)

    def search(trial: Trial) -> Arm | None:
        found: dict[Arm, list[tuple[float, float]]] = {}
        study = optuna.create_study(
            sampler=getattr(optuna.samplers, sampler)(
                seed=trial.random.randrange(2**31),
                constraints_func=lambda frozen: (math.log(frozen.user_attrs["latency"] / trial.machine.limit_us),),
            )
        )
        for _ in range(trial.budget):
            asked = study.ask()
            factors = factors_of(trial.machine)
            arm = tuple(asked.suggest_int(factor.name, 0, len(factor.levels) - 1) for factor in factors)
            cost, latency = _measured_in_blocks(trial, arm)
            found.setdefault(arm, []).append((cost, latency))
            asked.set_user_attr("latency", latency)
            study.tell(asked, math.log(cost))
        return _best_of(trial, found)

    return search


class Outcome(NamedTuple):
    """Of many searches: how many succeeded, exceeded the limit, and chose nothing; excess and runs in the median."""

    near: int
    over: int
    none: int
    excess: float
    runs: float
    cpu_s: float


def outcome(machine: Machine, search: SearchFor, seeds: int) -> Outcome:
    """Run searches with one seed after the other."""
    truth = truth_of(machine)
    best = min(cost for cost, latency in truth.values() if latency <= machine.limit_us)
    near = over = none = 0
    excesses, runs = [], []
    began = time.process_time()
    for seed in range(seeds):
        trial = Trial(machine, seed, int(SHARE * len(truth)) if len(machine.rings) == 1 else 60)
        chosen = search(trial)
        runs.append(trial.runs)
        if chosen is None:
            none += 1
            continue
        cost, latency = truth[chosen]
        excesses.append(cost / best - 1)
        over += latency > machine.limit_us
        near += latency <= machine.limit_us and cost <= NEAR * best
    excesses.sort()
    excess = excesses[len(excesses) // 2] if excesses else math.nan
    return Outcome(near, over, none, excess, sum(runs) / len(runs), (time.process_time() - began) / seeds)


def table(machine: Machine, searches: dict[str, SearchFor], seeds: int) -> bool:
    """Print how each search fares on a machine; return whether the tune misses the goal."""
    truth = truth_of(machine)
    kept = sorted(cost for cost, latency in truth.values() if latency <= machine.limit_us)
    near = sum(cost <= NEAR * kept[0] for cost in kept)
    print(
        f"\n{machine.name}: {len(truth)} combinations, {len(kept)} keep {machine.limit_us:g} µs, {near} of these "
        f"within 5 % of the best: {kept[0]:.4f} s/Gbit; the baseline needs {truth[min(truth)][0]:.4f}."
    )
    print(
        f"{'search':18} {'near':>5} {'over limit':>10} {'none':>5} {'excess':>7} {'runs':>6} {'of sweep':>8} {'CPU':>7}"
    )
    bad = False
    for name, search in searches.items():
        found = outcome(machine, search, seeds)
        share = found.runs / len(truth)
        bad |= name == "tune" and (found.near < GOAL * seeds or share > SHARE)
        print(
            f"{name:18} {found.near:5} {found.over:10} {found.none:5} {found.excess:7.1%} {found.runs:6.1f} "
            f"{share:8.1%} {found.cpu_s:5.2f} s",
            flush=True,
        )
    return bad


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--optuna", action="store_true")
    args = parser.parse_args()
    searches: dict[str, SearchFor] = {"tune": tuned, "random": at_random, "halving": halved}
    if args.optuna:
        searches |= {f"Optuna {name}": by_optuna(name) for name in ("TPESampler", "GPSampler")}
    bad = [machine.name for machine in MACHINES if table(machine, searches, args.seeds)]
    print(f"\nSeeds 0 to {args.seeds - 1}. Noise is normal on the logarithm; blocks drift (AR(1), {_MEMORY}).")
    if bad:
        print(f"Fewer than {GOAL:.0%} succeeded, or too many runs: {', '.join(bad)}.")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
