"""Cost of the gate per request: enter and leave with a free slot, µs.

    python -m tests.bench.bench_gate [--seconds 10]

The gate alone; with the agent's sampling thread beside it once a second, of this machine and of a generated tree of
128 CPUs and 600 interrupts; and without an agent. back to back: one request after the other; paced: one a millisecond,
so that the gate's thread sleeps between them; connecting: each over a connection of its own, as in a child that was
forked for it; asyncio: a task's. Other work on the machine makes the figures worse. Exits with 1 when the median back
to back is over its budget.
"""

import argparse
import asyncio
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

from msgspec import Struct
from tests.support.polling import poll

from coresteer_agent.observe.inventory import InventoryReader
from coresteer_agent.observe.sampler import Sampler
from coresteer_agent.transport.gate_server import GateServer
from coresteer_core.node.derive import derive_rates
from coresteer_core.policies.service_class.policy import ServiceClass, ServiceClasses
from coresteer_core.protocol import RatesMessage, encode
from coresteer_gate import Gate
from coresteer_gate.aio import AsyncGate

BUDGET_US = 30.0
CLASSES = [ServiceClass(f"class-{number}", 100.0 - 10 * number) for number in range(1, 6)]
PROCESSES = multiprocessing.get_context("spawn")
PACE_S = 0.001


class Figures(Struct):
    """Figures of one client. server_us: CPU time of the gate's process per request, None without a gate."""

    p50_us: float
    p99_us: float
    longest_us: float
    server_us: float | None


def serve(path: str, root: str | None, ours: Connection) -> None:
    """Run a gate; with a root, sample it once a second, as the agent does."""
    server = GateServer(Path(path))
    server.start()
    server.set_policy(ServiceClasses(CLASSES))
    ours.send(None)
    if root is None:
        ours.recv()
        return
    sampler, inventory = Sampler(Path(root)), InventoryReader(Path(root))
    before, seq = sampler.sample(), 0
    while not ours.poll(1.0):
        now = sampler.sample()
        rates = derive_rates(before, now, seq := seq + 1)
        encode(RatesMessage(rates))
        inventory.read(rates)
        server.figures()
        before = now


@contextmanager
def agent(root: str | None) -> Iterator[tuple[str, int]]:
    """Yield the path and PID of a gate."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        path = f"{folder}/gate.sock"
        pipe, theirs = PROCESSES.Pipe()
        process = PROCESSES.Process(target=serve, args=(path, root, theirs))
        process.start()
        theirs.close()
        pipe.recv()
        try:
            yield path, process.pid or 0
        finally:
            pipe.send(None)
            process.join(10)
            process.kill()


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process so far, s, with nanosecond resolution."""
    return time.clock_gettime(_clock_of(pid))


def _clock_of(pid: int) -> int:
    """Return the process's CPU clock (clock_getcpuclockid(3); linux/posix-timers.h, CPUCLOCK_SCHED)."""
    return (~pid << 3) | 2


def measure(seconds: float, pid: int | None, request: Callable[[], None], pace_s: float = 0.0) -> Figures:
    """Measure one client for a number of seconds."""
    took_ns: list[int] = []
    clock = time.perf_counter_ns
    request()
    begin_s = cpu_s(pid) if pid is not None else 0.0
    end = clock() + int(seconds * 1e9)
    while (at := clock()) < end:
        request()
        took_ns.append(clock() - at)
        if pace_s:
            time.sleep(pace_s)
    return _figures(took_ns, None if pid is None else cpu_s(pid) - begin_s)


async def measure_task(seconds: float, pid: int, gate: AsyncGate) -> Figures:
    """Measure a client in an asyncio task."""
    took_ns: list[int] = []
    clock = time.perf_counter_ns
    async with gate.enter("class-3"):
        pass
    begin_s = cpu_s(pid)
    end = clock() + int(seconds * 1e9)
    while (at := clock()) < end:
        async with gate.enter("class-3"):
            pass
        took_ns.append(clock() - at)
    return _figures(took_ns, cpu_s(pid) - begin_s)


def _figures(took_ns: list[int], server_cpu_s: float | None) -> Figures:
    count = len(took_ns)
    took_ns.sort()
    server_us = None if server_cpu_s is None else server_cpu_s * 1e6 / count
    return Figures(took_ns[count // 2] / 1000, took_ns[count * 99 // 100] / 1000, took_ns[-1] / 1000, server_us)


def visit(gate: Gate, expected: str) -> Callable[[], None]:
    """Send one request; check how it is admitted."""

    def request() -> None:
        with gate.enter("class-3") as entered:
            if entered.name != expected:
                raise RuntimeError(f"Let in as “{entered.name}”, not as “{expected}”.")

    return request


def newcomer(path: str) -> Callable[[], None]:
    """Send one request over a new connection."""

    def request() -> None:
        gate = Gate(path)
        visit(gate, "class-3")()
        gate.close()

    return request


def main() -> int:
    """Print all results as one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="how long each way to ask is measured")
    seconds = parser.parse_args().seconds
    rows: list[tuple[str, str, Figures]] = []
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "tests.fixtures.large_tree", folder]
        ticker = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        poll((Path(folder) / "proc/net/snmp").exists)
        try:
            for beside, root in (("gate alone", None), ("agent samples", "/"), ("agent samples 128 × 600", folder)):
                with agent(root) as (path, pid):
                    request = visit(Gate(path), "class-3")
                    rows.append((beside, "back to back", measure(seconds, pid, request)))
                    rows.append((beside, "paced", measure(seconds, pid, request, PACE_S)))
                    if root is None:
                        rows.append((beside, "connecting", measure(seconds, pid, newcomer(path))))
                        rows.append((beside, "asyncio", asyncio.run(measure_task(seconds, pid, AsyncGate(path)))))
        finally:
            ticker.terminate()
            ticker.wait(10)
    absent = visit(Gate("/nonexistent/gate.sock"), "")
    rows.append(("no agent", "back to back", measure(seconds, None, absent)))

    print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}; µs per request")
    print(f"{'beside':<26}{'how':<14}{'p50':>8}{'p99':>10}{'longest':>10}{'agent CPU':>11}")
    for beside, how, figures in rows:
        server = "" if figures.server_us is None else f"{figures.server_us:.1f}"
        print(
            f"{beside:<26}{how:<14}{figures.p50_us:>8.1f}{figures.p99_us:>10.1f}{figures.longest_us:>10.0f}{server:>11}"
        )
    worst_us = max(figures.p50_us for _, how, figures in rows if how == "back to back")
    fits = worst_us <= BUDGET_US
    print(f"The gate is {'within' if fits else 'OVER'} its budget: {BUDGET_US:g} µs p50 a request.")
    return 0 if fits else 1


if __name__ == "__main__":
    sys.exit(main())
