"""What steering costs on this machine: CPU seconds per gigabit over a veth pair, under RPS, RFS and flow-steering.

    python -m tests.bench.bench_steering [--blocks 12] [--seconds 3] [--decide 150] [--traffic NAME ...]

As root. The traffic comes from a network namespace of the bench's own, over a veth pair that carries packets as a wire
does (coresteer_agent.workloads.netns). First an agent runs with flow-steering in force, and what it decides for the
traffic becomes a regime. Then a block measures every regime once, in a shuffled order, with both processes running
throughout, and divides each by the default of the same block. RFS needs rps_sock_flow_entries, a setting of the whole
machine: it is restored at the end, also after Ctrl-C.
"""

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.bench.bench_placement import CPUS, agent_enforcing, interval
from tests.support.polling import poll

from coresteer_agent.runtime.policies_file import PoliciesFile
from coresteer_agent.workloads.traffic_protocol import READY
from coresteer_core.policies.base import Scope
from coresteer_core.policies.flow_steering.memory import FlowSteeringMemory
from coresteer_core.policies.flow_steering.spec import FlowSteering

PORT = 9100
ENTRIES = Path("/proc/sys/net/core/rps_sock_flow_entries")
FLOW_ENTRIES = 4096
SETTLE_S = 0.5
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_LIFE_S = 1200
"""After which both programs end by themselves."""

_RECEIVE = """
import os, selectors, socket, sys, threading, time
small, end, pool = int(sys.argv[3]), time.monotonic() + float(sys.argv[4]), sys.argv[6]
ready, buffer = selectors.DefaultSelector(), bytearray(256 * 1024)
listener = socket.create_server((sys.argv[1], int(sys.argv[2])))
ready.register(listener, selectors.EVENT_READ)
cpus = [int(cpu) for cpu in pool.split(",") if cpu] or [None]
turns = [threading.Semaphore(0) for _ in cpus]

def read(number):
    if cpus[number] is not None:
        os.sched_setaffinity(threading.get_native_id(), {cpus[number]})
    while time.monotonic() < end:
        turns[number].acquire()
        for key, _ in ready.select(1):
            if key.fileobj is listener:
                ready.register(listener.accept()[0], selectors.EVENT_READ)
            elif not key.fileobj.recv_into(buffer):
                os._exit(0)
            elif small:  # each message is answered
                key.fileobj.send(b"!")
        turns[(number + 1) % len(turns)].release()

threads = [threading.Thread(target=read, args=(number,)) for number in range(len(cpus))]
for thread in threads:
    thread.start()
print("ready", flush=True)
turns[0].release()
for thread in threads:
    thread.join()
"""
_SEND = """
import socket, sys, time
small, end, rate = int(sys.argv[3]), time.monotonic() + float(sys.argv[4]), float(sys.argv[5])
connections = [socket.create_connection((sys.argv[1], int(sys.argv[2]))) for _ in range(4)]
for each in connections:
    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
data = bytes(small or 256 * 1024)
start, sent = time.monotonic(), 0
while (now := time.monotonic()) < end:
    if sent >= (now - start) * rate:
        time.sleep(0.001)
        continue
    for each in connections:
        each.sendall(data)
        if small:
            each.recv(1)
    sent += 4 * len(data)
"""


@dataclass(frozen=True)
class Traffic:
    """Four connections. message: bytes of a message that is answered, 0 for a stream. CPUs: None is any.

    bytes_per_s: well below what the machine can carry, so that CPU time is compared at the same rate. arrival: the CPU
    to which RPS hands all packets, in place of an interrupt; None: they stay on the CPU that sends them. pool: threads
    of the receiver on all CPUs, which read in turn, as the thread pool of many servers does: RFS then sends each packet
    to the CPU of the thread that read last, never to that of the next.
    """

    message: int
    bytes_per_s: float
    sender: int | None
    receiver: int | None
    arrival: int | None = None
    pool: bool = False


@dataclass(frozen=True)
class Steering:
    """Settings of the veth pair's one receive queue, and of the machine."""

    rps: int
    flow_count: int = 0
    entries: int = 0

    def write(self, netdev: str) -> None:
        """Write the settings."""
        _queue(netdev, "rps_cpus").write_text(f"{self.rps:x}")
        _queue(netdev, "rps_flow_cnt").write_text(str(self.flow_count))
        ENTRIES.write_text(str(self.entries))


def read_steering(netdev: str) -> Steering:
    """Return the present settings."""
    rps = int(_queue(netdev, "rps_cpus").read_text().replace(",", ""), 16)
    return Steering(rps, int(_queue(netdev, "rps_flow_cnt").read_text()), int(ENTRIES.read_text()))


def _queue(netdev: str, name: str) -> Path:
    return Path(f"/sys/class/net/{netdev}/queues/rx-0/{name}")


_FIRST, _LAST = CPUS[0], CPUS[-1]
TRAFFIC = {
    "stream, a CPU each": Traffic(0, 200e6, _FIRST, _LAST, arrival=_FIRST),
    "stream, placed by the kernel": Traffic(0, 200e6, None, None),
    "requests of 256 B, a CPU each": Traffic(256, 1.5e6, _FIRST, _LAST, arrival=_FIRST),
    "requests of 256 B, placed by the kernel": Traffic(256, 1.5e6, None, None),
    "requests of 256 B, placed by the kernel, arriving on one CPU": Traffic(256, 1.5e6, None, None, arrival=_FIRST),
    "requests of 256 B to a thread pool": Traffic(256, 1.5e6, _FIRST, None, arrival=_FIRST, pool=True),
}


def regimes_of(traffic: Traffic) -> dict[str, Steering]:
    """Return the settings of each regime; the first is what the others are compared with."""
    arrival = 0 if traffic.arrival is None else 1 << traffic.arrival
    return {
        "default": Steering(rps=arrival),
        "RPS on all CPUs": Steering(rps=sum(1 << cpu for cpu in CPUS)),
        "RFS": Steering(arrival, FLOW_ENTRIES, FLOW_ENTRIES),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--blocks", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=3, help="measured in each run")
    parser.add_argument("--decide", type=float, default=150, help="seconds that flow-steering has; 0: it is left out")
    parser.add_argument("--traffic", nargs="+", choices=TRAFFIC, default=list(TRAFFIC))
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that settings are restored then as well
    with restored(), veth() as (netdev, address, namespace):
        for name in args.traffic:
            with running(TRAFFIC[name], address, namespace) as pids:
                regimes = regimes_of(TRAFFIC[name])
                regimes["default"].write(netdev)
                if args.decide:
                    regimes["flow-steering"], why = decided(netdev, args.decide)
                    print(f"\nflow-steering, {name}: {regimes['flow-steering']}. {why}", flush=True)
                report(name, blocks(netdev, pids, regimes, args.blocks, args.seconds))


@contextlib.contextmanager
def veth() -> Iterator[tuple[str, str, str]]:
    """Yield the receiving netdev, its address and the path of the sender's namespace; all end with this process."""
    command = [sys.executable, "-m", "coresteer_agent.workloads.netns", json.dumps({"parent": os.getpid()})]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            ready, *rest = process.stdout.readline().split()
            if ready != READY:
                sys.exit(" ".join([ready, *rest]))
            yield rest[0], rest[1], rest[2]
        finally:
            process.kill()


def decided(netdev: str, seconds: float) -> tuple[Steering, str]:
    """Return the settings that an agent has made after some seconds of flow-steering; it restores them.

    Also returns why RFS was rejected, if it was: an agent saves no reason for what it keeps.
    """
    before = read_steering(netdev)
    with agent_enforcing(FlowSteering(), Scope(netdevs=[netdev])) as state_dir:
        time.sleep(seconds)
        found = read_steering(netdev)
        memory = PoliciesFile(state_dir / "agent/policies.json", Path("/")).read().memory.memories.get("bench")
    poll(lambda: read_steering(netdev) == before)
    return found, memory.rfs.why if isinstance(memory, FlowSteeringMemory) else ""


@contextlib.contextmanager
def restored() -> Iterator[None]:
    """Restore the machine's setting at the end."""
    original = ENTRIES.read_text()
    try:
        yield
    finally:
        ENTRIES.write_text(original)


@contextlib.contextmanager
def running(traffic: Traffic, address: str, namespace: str) -> Iterator[list[int]]:
    """Run the two programs, before other programs of the machine (nice); yield their PIDs, the receiver's first."""
    arguments = (address, str(PORT), str(traffic.message), str(_LIFE_S), str(traffic.bytes_per_s))
    pool = ",".join(map(str, CPUS)) if traffic.pool else ""
    send = ["nsenter", f"--net={namespace}", *_program(traffic.sender, _SEND, *arguments)]
    with subprocess.Popen(_program(traffic.receiver, _RECEIVE, *arguments, pool), stdout=subprocess.PIPE) as receiver:
        try:
            assert receiver.stdout is not None
            receiver.stdout.readline()
            with subprocess.Popen(send) as sender:
                try:
                    yield [receiver.pid, sender.pid]
                finally:
                    sender.kill()
        finally:
            receiver.kill()


def _program(cpu: int | None, code: str, *arguments: str) -> list[str]:
    pinned = () if cpu is None else ("taskset", "-c", str(cpu))
    return ["nice", "-n", "-5", *pinned, sys.executable, "-c", code, *arguments]


def blocks(
    netdev: str, pids: list[int], regimes: dict[str, Steering], count: int, seconds: float
) -> dict[str, list[tuple[float, float]]]:
    """Return Gbit/s and CPU seconds per gigabit of each regime, one pair for each block."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in regimes}
    order = random.Random(7)  # noqa: S311 - an order of runs, not a secret
    for _ in range(count):
        for name in order.sample(list(regimes), len(regimes)):
            regimes[name].write(netdev)
            time.sleep(SETTLE_S)
            found[name].append(measure(netdev, pids, seconds))
    return found


def measure(netdev: str, pids: list[int], seconds: float) -> tuple[float, float]:
    """Return Gbit/s, and CPU seconds per gigabit."""
    before = (time.monotonic(), received_bytes(netdev), cost_s(pids))
    time.sleep(seconds)
    after = (time.monotonic(), received_bytes(netdev), cost_s(pids))
    took_s, received, cost = (new - old for new, old in zip(after, before, strict=True))
    gigabits = received * 8 / 1e9
    return gigabits / took_s, cost / gigabits


def received_bytes(netdev: str) -> int:
    """Return the bytes that a netdev has received."""
    return int(Path(f"/sys/class/net/{netdev}/statistics/rx_bytes").read_text())


def cost_s(pids: list[int]) -> float:
    """Return the busy CPU time of the machine without that of processes that are not the bench's.

    The kernel counts softirqs as time of the process that they interrupt (without IRQ_TIME_ACCOUNTING), so they cannot
    be added to the processes' time. ksoftirqd works for the bench's traffic.
    """
    cells = [int(cell) for cell in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    busy = sum(cells) - cells[3] - cells[4] - cells[7]  # idle, iowait, steal
    others = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            name, _, rest = path.read_text().partition("(")[2].rpartition(")")
            if int(path.parent.name) not in pids and not name.startswith("ksoftirqd"):
                others += sum(map(int, rest.split()[11:15]))  # of its ended children, too
    return (busy - others) * _TICK_S


def report(name: str, found: dict[str, list[tuple[float, float]]]) -> None:
    """Print each regime's figures, and its ratio to the default of the same block."""
    print(f"\n{name}; {len(found['default'])} blocks, load average {os.getloadavg()[0]:.1f}\n")
    print("| regime | Gbit/s | CPU s a gigabit | ratio to the default |\n|---|---|---|---|")
    for regime, runs in found.items():
        rates, costs = zip(*runs, strict=True)
        ratios = [cost / other for cost, (_, other) in zip(costs, found["default"], strict=True)]
        print(f"| {regime} | {interval(rates)} | {interval(costs)} | {interval(ratios)} |", flush=True)


if __name__ == "__main__":
    main()
