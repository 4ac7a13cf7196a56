"""What floods do to honest clients: python -m tests.bench.bench_attacks [--seconds 10] [--only NAME …].

Each attack has a victim of its own, started for it, and processes that attack it. Beside, an honest client asks the
victim the same question again and again. Compared are its 99th percentile under attack and the one next to processes
that only consume the attackers' CPU time (goal: at most twice), the growth of the victim's memory (goal: at most
64 MiB), and honest nodes that lost their connection (goal: none). Exits with 1 when a goal is missed.

To add an attack: in a module attacks_<part>.py, a generator that yields after each step how many bytes or requests it
has sent; and its row in ATTACKS. A victim of another kind implements Victim.
"""

import argparse
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Protocol

from msgspec import Struct
from tests.bench import attacks_agent, attacks_http, attacks_live, attacks_storage
from tests.bench.attacked_agent import attacked_agent, attacked_gate
from tests.bench.attacked_backend import ROGUE_NODES, attacked_backend

MAX_SLOWDOWN = 2.0
MAX_GROWTH_MIB = 64.0
_PROCESSES = multiprocessing.get_context("spawn")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAUSE_S = 0.01
"""Between two honest requests."""


class Victim(Protocol):
    """A running program that is attacked. pid: of the process whose memory counts."""

    pid: int

    def access(self) -> object:
        """Return what attackers know, such as addresses and keys; it is pickled."""

    def request(self) -> None:
        """Ask the honest client's question; raise an OSError when there is no answer."""

    def dropped(self) -> int:
        """Return how many honest nodes have lost their connection so far."""

    def stored_mib(self) -> float | None:
        """Return the size of what the victim has stored, None where it stores nothing."""


@dataclass(frozen=True)
class Attack:
    """One row of the table: run attacks with what Victim.access() returns, in several processes at once."""

    name: str
    what: str
    victim: Callable[[], AbstractContextManager[Victim]]
    run: Callable[..., Iterator[int]]
    unit: str = "requests"
    processes: int = 1


class Figures(Struct):
    """What the honest client saw in one phase."""

    p50_ms: float
    p99_ms: float
    failed: int
    requests: int


ATTACKS = [
    Attack("headers", "headers without end", attacked_backend, attacks_http.headers_without_end, "bytes"),
    Attack(
        "connections",
        f"{attacks_http.CONNECTIONS} connections with incomplete requests",
        attacked_backend,
        attacks_http.incomplete_requests,
        "opened",
    ),
    Attack(
        "sockets, no key",
        f"{attacks_http.CONNECTIONS} WebSockets with an unknown key, left open",
        attacked_backend,
        attacks_http.sockets_without_a_key,
        "opened",
    ),
    Attack(
        "sockets, no hello",
        f"{attacks_http.CONNECTIONS} WebSockets with the keys of {ROGUE_NODES} nodes that say nothing",
        attacked_backend,
        attacks_http.sockets_without_a_hello,
        "opened",
    ),
    Attack(
        "slowloris",
        f"{attacks_http.SLOW_CONNECTIONS} connections that send a header a second",
        attacked_backend,
        attacks_http.slowloris,
        "headers",
    ),
    Attack(
        "slow bodies",
        f"{attacks_http.SLOW_CONNECTIONS} connections that send a byte of a body a second",
        attacked_backend,
        attacks_http.slow_bodies,
        "bytes",
    ),
    Attack(
        "subscriptions",
        f"{attacks_live.PAGES} pages of one user that change their subscription without pause",
        attacked_backend,
        attacks_live.subscription_flood,
        "frames",
    ),
    Attack(
        "storage",
        "decisions and reports of one enrolled agent",
        attacked_backend,
        attacks_storage.decisions_and_reports,
        "bytes",
    ),
    Attack(
        "large samples",
        "samples of one enrolled agent, of the largest size",
        attacked_backend,
        attacks_storage.large_samples,
        "bytes",
    ),
    Attack("agent: plans", "a backend that sends plans", attacked_agent, attacks_agent.plans_without_end, "messages"),
    Attack("agent: 3 MB", "a backend that sends 3 MB", attacked_agent, attacks_agent.large_messages, "messages"),
    Attack(
        "agent: questions",
        "a backend that reads no answers",
        attacked_agent,
        attacks_agent.questions_without_end,
        "messages",
    ),
    Attack(
        "gate: held slots",
        f"{attacks_agent.HOLDING} requests of a local user that never end",
        attacked_gate,
        attacks_agent.held_slots,
    ),
    Attack(
        "gate: idle",
        f"{attacks_agent.IDLE} idle connections of a local user",
        attacked_gate,
        attacks_agent.idle_connections,
        "opened",
    ),
    Attack(
        "gate: requests",
        f"{attacks_agent.ENTERING} workers of a local user that enter and leave without pause",
        attacked_gate,
        attacks_agent.entering_without_end,
    ),
]


def spin(share: float, stop: Event) -> None:
    """Consume a share of a CPU, in slices of 10 ms, until stopped."""
    while not stop.is_set():
        began_s = time.process_time()
        until = time.monotonic() + 0.01
        while time.process_time() - began_s < share * 0.01:
            pass
        time.sleep(max(0.0, until - time.monotonic()))


def attack(run: Callable[..., Iterator[int]], access: object, done: "Synchronized[int]", stop: Event) -> None:
    """Run an attack until stopped; a victim that refuses connections is attacked again."""
    while not stop.is_set():
        with suppress(OSError):
            for amount in run(access):
                with done.get_lock():
                    done.value += amount
                if stop.is_set():
                    return
        time.sleep(0.001)


@contextmanager
def running(targets: list[tuple[Callable[..., None], tuple[object, ...]]]) -> Iterator[list[int]]:
    """Run functions in processes of their own, and end them; yield their PIDs. Each gets an event as last argument."""
    stop = _PROCESSES.Event()
    started = [_PROCESSES.Process(target=run, args=(*arguments, stop), daemon=True) for run, arguments in targets]
    for process in started:
        process.start()
    try:
        yield [process.pid or 0 for process in started]
    finally:
        stop.set()
        for process in started:
            process.join(5)
            process.kill()


def _cpu_s(pids: list[int]) -> float:
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / _TICKS_PER_S


def _memory_mib(pid: int, field: str) -> float:
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) / 1024


def measure(victim: Victim, seconds: float) -> Figures:
    """Ask the honest question for a number of seconds."""
    took_ms: list[float] = []
    failed = 0
    until = time.monotonic() + seconds
    while time.monotonic() < until or len(took_ms) < 2:
        began = time.perf_counter()
        try:
            victim.request()
        except OSError:
            failed += 1
        took_ms.append((time.perf_counter() - began) * 1000)
        time.sleep(_PAUSE_S)
    quantiles = statistics.quantiles(took_ms, n=100)
    return Figures(quantiles[49], quantiles[98], failed, len(took_ms))


def compare(row: Attack, seconds: float) -> bool:
    """Run one attack, print what it did, and return whether every goal was met."""
    with row.victim() as victim:
        measure(victim, 1.0)
        done: Synchronized[int] = _PROCESSES.Value("q", 0)
        before_mib, stored_mib, dropped = _memory_mib(victim.pid, "VmRSS"), victim.stored_mib(), victim.dropped()
        Path(f"/proc/{victim.pid}/clear_refs").write_text("5")  # VmHWM starts anew (proc(5))
        with running([(attack, (row.run, victim.access(), done))] * row.processes) as pids:
            _until(lambda: done.value > 0)
            began_s, began = _cpu_s(pids), time.monotonic()
            attacked = measure(victim, seconds)
            share = (_cpu_s(pids) - began_s) / (time.monotonic() - began) / row.processes
        growth_mib = _memory_mib(victim.pid, "VmHWM") - before_mib
        growth_stored_mib = None if stored_mib is None else (victim.stored_mib() or 0.0) - stored_mib
        lost = victim.dropped() - dropped
        measure(victim, 1.0)
        with running([(spin, (share,))] * row.processes):
            compared = measure(victim, seconds)
    slowdown = attacked.p99_ms / compared.p99_ms
    met = slowdown <= MAX_SLOWDOWN and growth_mib <= MAX_GROWTH_MIB and not lost and not attacked.failed
    stored = "" if growth_stored_mib is None else f"{growth_stored_mib:+.0f}"
    print(
        f"{row.name:<22}{done.value:>13,} {row.unit:<10}{attacked.p99_ms:>9.1f}{compared.p99_ms:>9.1f}{slowdown:>7.1f}×"
        f"{growth_mib:>+9.0f}{stored:>9}{lost:>9}{attacked.failed:>9}  {'met' if met else 'MISSED'}",
        flush=True,
    )
    return met


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("The attack did not begin within 20 s.")
        time.sleep(0.01)


def main() -> int:
    """Run the attacks one after the other and print them as one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="how long each attack is measured")
    parser.add_argument("--only", nargs="+", choices=[row.name for row in ATTACKS], help="run only these")
    arguments = parser.parse_args()
    rows = [row for row in ATTACKS if arguments.only is None or row.name in arguments.only]
    for row in rows:
        print(f"{row.name}: {row.what}")
    print(f"\n{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}; MiB, ms")
    print(
        f"{'attack':<22}{'sent':>13} {'':<10}{'p99':>9}{'same CPU':>9}{'ratio':>8}"
        f"{'memory':>9}{'stored':>9}{'dropped':>9}{'failed':>9}"
    )
    met = [compare(row, arguments.seconds) for row in rows]
    print(f"Goals: p99 at most {MAX_SLOWDOWN:g}×, memory at most +{MAX_GROWTH_MIB:g} MiB, nothing dropped or failed.")
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
