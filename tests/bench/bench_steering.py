"""What steering costs on this machine: CPU seconds per gigabit over a veth pair, under RPS, RFS and flow-steering.

    python -m tests.bench.bench_steering [--blocks 12] [--seconds 3] [--traffic NAME ...] [--regimes NAME ...]

As root. Two network namespaces of the bench's own, joined by a veth pair. A block measures every regime once, in a
shuffled order, with both processes running throughout, and divides each by the default of the same block. CPU time is
that of the two processes and of the machine's interrupts (irq and softirq of /proc/stat), so other programs of the
machine count only with their interrupts. RFS needs rps_sock_flow_entries, a setting of the whole machine, which is 0
unless an administrator set it: it is written within the bench's blocks and restored at the end, also after Ctrl-C.
"""

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.bench.bench_placement import CPUS, RECEIVER, SENDER, command_prefix, interval, namespaces

ADDRESS, PORT = "10.99.0.2", 9100
ENTRIES = Path("/proc/sys/net/core/rps_sock_flow_entries")
FLOW_ENTRIES = 4096
SETTLE_S = 0.5
_QUEUE = "/sys/class/net/veth1/queues/rx-0"
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_LIFE_S = 1200
"""After which both programs end by themselves."""

_RECEIVE = """
import selectors, socket, sys, time
small, end = int(sys.argv[2]), time.monotonic() + float(sys.argv[3])
ready, buffer = selectors.DefaultSelector(), bytearray(256 * 1024)
listener = socket.create_server(("", int(sys.argv[1])))
ready.register(listener, selectors.EVENT_READ)
print("ready", flush=True)
while time.monotonic() < end:
    for key, _ in ready.select(1):
        if key.fileobj is listener:
            ready.register(listener.accept()[0], selectors.EVENT_READ)
        elif not key.fileobj.recv_into(buffer):
            sys.exit()
        elif small:  # each message is answered
            key.fileobj.send(b"!")
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

    bytes_per_s: well below what the machine can carry, so that CPU time is compared at the same rate.
    """

    message: int
    bytes_per_s: float
    sender: int | None
    receiver: int | None


@dataclass(frozen=True)
class Steering:
    """Settings of the veth's one receive queue, and of the machine."""

    rps: int = 0
    flow_count: int = 0
    entries: int = 0

    def write(self) -> None:
        _write(f"{_QUEUE}/rps_cpus", f"{self.rps:x}")
        _write(f"{_QUEUE}/rps_flow_cnt", str(self.flow_count))
        ENTRIES.write_text(str(self.entries))


TRAFFIC = {
    "stream, a CPU each": Traffic(0, 200e6, CPUS[-1], CPUS[0]),
    "stream, placed by the kernel": Traffic(0, 200e6, None, None),
    "requests of 256 B, a CPU each": Traffic(256, 1.5e6, CPUS[-1], CPUS[0]),
    "requests of 256 B, placed by the kernel": Traffic(256, 1.5e6, None, None),
}
DEFAULT = Steering()
REGIMES = {
    "default": DEFAULT,
    "RPS on all CPUs": Steering(rps=sum(1 << cpu for cpu in CPUS)),
    "RFS": Steering(flow_count=FLOW_ENTRIES, entries=FLOW_ENTRIES),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--blocks", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=3, help="measured in each run")
    parser.add_argument("--traffic", nargs="+", choices=TRAFFIC, default=list(TRAFFIC))
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that settings are restored then as well
    with restored(), namespaces():
        for name in args.traffic:
            with running(TRAFFIC[name]) as pids:
                report(name, blocks(pids, REGIMES, args.blocks, args.seconds))


@contextlib.contextmanager
def restored() -> Iterator[None]:
    """Restore the machine's setting at the end."""
    original = ENTRIES.read_text()
    try:
        yield
    finally:
        ENTRIES.write_text(original)


@contextlib.contextmanager
def running(traffic: Traffic) -> Iterator[list[int]]:
    """Run the two programs, before other programs of the machine (nice); yield their PIDs, the receiver's first."""
    receive = _program(RECEIVER, traffic.receiver, _RECEIVE, str(PORT), str(traffic.message), str(_LIFE_S))
    arguments = (ADDRESS, str(PORT), str(traffic.message), str(_LIFE_S), str(traffic.bytes_per_s))
    send = _program(SENDER, traffic.sender, _SEND, *arguments)
    with subprocess.Popen(receive, stdout=subprocess.PIPE) as receiver:
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


def _program(namespace: str, cpu: int | None, code: str, *arguments: str) -> list[str]:
    pinned = () if cpu is None else ("taskset", "-c", str(cpu))
    return [*command_prefix(namespace), "nice", "-n", "-20", *pinned, sys.executable, "-c", code, *arguments]


def blocks(
    pids: list[int], regimes: dict[str, Steering], count: int, seconds: float
) -> dict[str, list[tuple[float, float]]]:
    """Return Gbit/s and CPU seconds per gigabit of each regime, one pair for each block."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in regimes}
    order = random.Random(7)  # noqa: S311 - an order of runs, not a secret
    for _ in range(count):
        for name in order.sample(list(regimes), len(regimes)):
            regimes[name].write()
            time.sleep(SETTLE_S)
            found[name].append(measure(pids, seconds))
    DEFAULT.write()
    return found


def measure(pids: list[int], seconds: float) -> tuple[float, float]:
    """Return Gbit/s, and CPU seconds per gigabit."""
    before = (time.monotonic(), received_bytes(pids[0]), cost_s(pids))
    time.sleep(seconds)
    after = (time.monotonic(), received_bytes(pids[0]), cost_s(pids))
    took_s, received, cost = (new - old for new, old in zip(after, before, strict=True))
    gigabits = received * 8 / 1e9
    return gigabits / took_s, cost / gigabits


def received_bytes(pid: int) -> int:
    """Return the bytes that the receiving end of the veth pair has received."""
    rows = Path(f"/proc/{pid}/net/dev").read_text().splitlines()
    return next(int(row.split()[1]) for row in rows if row.lstrip().startswith("veth1:"))


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


def _write(path: str, value: str) -> None:
    subprocess.run([*command_prefix(RECEIVER), "sh", "-c", f"echo {value} > {path}"], check=True)


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
