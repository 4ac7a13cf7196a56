"""What carries TS and ENP between nodes: datagrams of the agents against an option on the job's messages.

    python -m tests.bench.bench_load_carriers [--blocks 20] [--seconds 20]

Cost: two processes on one CPU exchange messages over loopback; CPU time of both per message, and its difference from
a connection without any carrier in the same block, as medians with a 95 % interval over randomized blocks. Agents
exchange their loads 20 times a second meanwhile; their CPU time is not included, that of one exchange is printed below.

Staleness: one stream of messages, observed through both carriers at once. Sender and receiver each have periods of
45 to 55 ms; the sender measures its load in each of its own. In each period of the receiver with a new message: how far
apart in time this message and the measurement of the load were that the receiver then uses for it, and how old that
load is; and in how many of all periods a load is known that arrived within the last 500 ms.
"""

import argparse
import heapq
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from random import Random
from statistics import fmean, median, quantiles

from scipy import stats
from tests.support.load_hosts import CLIENT, SERVER, V4, VALID_S, Pair, free_port

from coresteer_agent.transport.load_beacon import LoadBeacon
from coresteer_agent.transport.load_carrier import Heard, LoadCarrier
from coresteer_agent.transport.load_option import LoadOption
from coresteer_core.policies.coscheduling.load import PeerLoad

rng = Random()  # noqa: S311 - an order of blocks
PERIOD_S = 0.05
STALE_S = 0.5
BLOCK_S = 0.5
SIZES = {64: "64 B", 65536: "64 KiB"}
LOAD = PeerLoad(0.01, 2.0)
HERE, THERE = socket.inet_aton(CLIENT[V4]), socket.inet_aton(SERVER[V4])
NONE, BEACON, OTHER_PORT, SILENT, OPTION = (
    "no carrier",
    "beacon",
    "option, other port",
    "option, without a load",
    "option",
)


def carriers(kind: str, pair: Pair, beacon_port: int) -> list[LoadCarrier]:
    """The carriers of both hosts."""
    if kind == BEACON:
        return [LoadBeacon(beacon_port, CLIENT[V4]), LoadBeacon(beacon_port, SERVER[V4])]
    return [LoadOption(host.option, VALID_S) for host in (pair.here, pair.there)]


@contextmanager
def agents(kind: str, pair: Pair, beacon_port: int) -> Iterator[None]:
    """Exchange loads in each period, in a process of its own."""
    pid = os.fork()
    if pid == 0:
        both = carriers(kind, pair, beacon_port)
        while True:
            for carrier, peer in zip(both, (THERE, HERE), strict=True):
                carrier.exchange(None if kind == SILENT else LOAD, {peer}, time.monotonic())
            time.sleep(PERIOD_S)
    time.sleep(2 * PERIOD_S)
    try:
        yield
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        if kind != BEACON:
            for host in (pair.here, pair.there):
                host.option.write(None)


def exchange_messages(ends: tuple[socket.socket, socket.socket], size: int) -> float:
    """Send a message back and forth for a while; return the CPU time per message in microseconds."""
    near, far = ends
    for each in ends:
        each.settimeout(None)
    message = bytes(size)
    pid = os.fork()
    if pid == 0:
        near.close()
        while receive(far, size):
            far.sendall(message)
        os._exit(0)
    far.close()
    count = 0
    used_s = time.process_time()
    until_s = time.monotonic() + BLOCK_S
    while time.monotonic() < until_s:
        near.sendall(message)
        receive(near, size)
        count += 2
    used_s = time.process_time() - used_s
    near.shutdown(socket.SHUT_RDWR)  # which the agents' process has, too
    _, _, child = os.wait4(pid, 0)
    return (used_s + child.ru_utime + child.ru_stime) / count * 1e6


def receive(end: socket.socket, size: int) -> bool:
    """Receive a whole message; return whether there was one."""
    while size:
        if not (part := end.recv(size)):
            return False
        size -= len(part)
    return True


def bench_cost(blocks: int) -> None:
    """Print what each carrier costs per message."""
    beacon_port = free_port()
    kinds = [NONE, BEACON, OTHER_PORT, SILENT, OPTION]
    found: dict[tuple[int, str], list[float]] = {(size, kind): [] for size in SIZES for kind in kinds}
    for _ in range(blocks):
        for size, kind in rng.sample(list(found), len(found)):
            found[size, kind].append(one_block(kind, size, beacon_port))
    print(f"{'CPU per message, µs':24}{'':8}{'median':>8}   {'more than without':>18}   95 % interval")
    for (size, kind), values in found.items():
        more = [each - base for each, base in zip(values, found[size, NONE], strict=True)]
        rest = ""
        if kind != NONE:
            interval = stats.bootstrap((more,), median, vectorized=False, n_resamples=2000, rng=1).confidence_interval
            rest = f"{median(more):18.2f}   {interval.low:.2f} … {interval.high:.2f}"
        print(f"{kind:24}{SIZES[size]:8}{median(values):8.2f}   {rest}")


def one_block(kind: str, size: int, beacon_port: int) -> float:
    """Connect and measure with one kind of carrier."""
    with closing(Pair()) as pair:
        if kind in (NONE, BEACON):
            pair.here.option.close()
            pair.there.option.close()
        ends = pair.connect(port=0 if kind == OTHER_PORT else None)
        if kind == NONE:
            return exchange_messages(ends, size)
        with agents(kind, pair, beacon_port):
            return exchange_messages(ends, size)


def bench_exchange() -> None:
    """Print the CPU time of an agent's exchange."""
    print(f"\n{'CPU per exchange, µs':24}{'1 peer':>8}{'64 peers':>10}")
    port = free_port()
    with closing(Pair()) as pair:
        for kind in (BEACON, OPTION):
            both = carriers(kind, pair, port)
            row = f"{kind:24}"
            for count, width in ((1, 8), (64, 10)):
                peers = {socket.inet_aton(f"127.0.1.{number}") for number in range(1, count + 1)}
                both[0].exchange(LOAD, peers, 0.0)
                used_s = time.thread_time()
                for _ in range(200):
                    both[0].exchange(LOAD, peers, 0.0)
                row += f"{(time.thread_time() - used_s) / 200 * 1e6:{width}.0f}"
            print(row)
            for each in both:
                each.close()


class Observation:
    """What one carrier told the receiver: seconds between message and measurement, ages, and periods with a load."""

    def __init__(self, carrier: LoadCarrier) -> None:
        self.carrier = carrier
        self.apart_s: list[float] = []
        self.age_s: list[float] = []
        self.known = 0

    def look(self, measured_s: list[float], arrived_s: float | None, now_s: float) -> None:
        """Begin a period of the receiver. arrived_s: of the latest new message."""
        heard: Heard | None = self.carrier.exchange(None, {HERE}, now_s).get(HERE)
        if heard is None or now_s - heard.heard_s > STALE_S:
            return
        self.known += 1
        at_s = measured_s[round(heard.load.enp)]
        if arrived_s is not None:
            self.apart_s.append(abs(arrived_s - at_s))
            self.age_s.append(now_s - at_s)


def bench_staleness(pair: Pair, seconds: float, gap_s: float) -> None:
    """Print how stale the loads of both carriers are, for messages at random times."""
    port = free_port()
    near, far = pair.connect()
    beacons, options = carriers(BEACON, pair, port), carriers(OPTION, pair, port)
    seen = {BEACON: Observation(beacons[1]), OPTION: Observation(options[1])}
    measured_s: list[float] = []
    arrived_s: float | None = None
    periods = 0

    def measure() -> float:
        load = PeerLoad(0.01, float(len(measured_s)))
        measured_s.append(time.monotonic())
        for sender in (beacons[0], options[0]):
            sender.exchange(load, {THERE}, measured_s[-1])
        return rng.uniform(0.9, 1.1) * PERIOD_S

    def send() -> float:
        nonlocal arrived_s
        near.sendall(b"message")
        arrived_s = time.monotonic()
        far.recv(100)
        return rng.expovariate(1 / gap_s)

    def look() -> float:
        nonlocal arrived_s, periods
        now_s = time.monotonic()
        periods += 1
        for each in seen.values():
            each.look(measured_s, arrived_s, now_s)
        arrived_s = None
        return rng.uniform(0.9, 1.1) * PERIOD_S

    start_s = time.monotonic()
    run_events([measure, send, look], start_s, start_s + seconds)
    for kind, each in seen.items():
        print(
            f"{gap_s * 1000:8.0f} ms   {kind:11}{fmean(each.apart_s) * 1000:15.1f}{_p95(each.apart_s) * 1000:6.1f}"
            f"{fmean(each.age_s) * 1000:15.1f}{_p95(each.age_s) * 1000:6.1f}{each.known / periods:8.0%}"
        )
    for one in (*beacons, *options):
        one.close()


def run_events(events: list[Callable[[], float]], start_s: float, end_s: float) -> None:
    """Run events from random times on, each of which returns the time until its next one."""
    due = [(start_s + rng.random() * PERIOD_S, number) for number in range(len(events))]
    heapq.heapify(due)
    while due[0][0] < end_s:
        at_s, number = heapq.heappop(due)
        time.sleep(max(0.0, at_s - time.monotonic()))
        heapq.heappush(due, (at_s + events[number](), number))


def _p95(values: list[float]) -> float:
    return quantiles(values, n=20)[-1]


def main() -> int:
    """Run both parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng.seed(args.seed)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # and removes the cgroups
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    bench_cost(args.blocks)
    bench_exchange()
    print(
        f"\n{'messages every':14}{'':5}{'':5}{'apart, ms: mean':>14}{'p95':>8}{'age: mean':>10}{'p95':>8}{'known':>10}"
    )
    for gap_s in (0.005, 0.05, 1.0):
        with closing(Pair()) as pair:
            bench_staleness(pair, args.seconds, gap_s)
    return 0


if __name__ == "__main__":
    sys.exit(main())
