"""One process of a parallel job: it computes, sleeps as in I/O, and exchanges messages with its peers in each loop."""

import random
import select
import socket
import time
from collections.abc import Collection
from resource import RUSAGE_SELF, getrusage

from msgspec import Struct

from coresteer_core.experiments.parallel_jobs import Bsp

POWERS_PER_S = 50_000
EXCHANGED_BYTES_PER_S = 4 << 30
"""Work of a nominal second: what a core of 3 GHz computes, and what two exchange over loopback, each way."""
LINK_BYTES_PER_S = 100_000_000
"""What two machines exchange in a nominal second: the bandwidth of the simulated network, close to 1 Gbit/s."""
_PRIME = (1 << 127) - 1
_BUFFER_BYTES = 1 << 20
_PAYLOAD = memoryview(bytes(_BUFFER_BYTES))


class Report(Struct, omit_defaults=True):
    """What a process reports: first that it is ready, then its result. error: why it failed, as a sentence.

    end_s: monotonic, 0 when it is ready. spin_s: CPU time of polling in vain. voluntary, involuntary: context switches.
    """

    job: int
    end_s: float = 0.0
    spin_s: float = 0.0
    voluntary: int = 0
    involuntary: int = 0
    error: str = ""


def neighbours_of(workload: Bsp, rank: int) -> list[int]:
    """Return the ranks with which a process of a job exchanges messages, ascending."""
    count = workload.processes
    if workload.pattern == "aa":
        return [other for other in range(count) if other != rank]
    return sorted({(rank - 1) % count, (rank + 1) % count})


def run_loops(workload: Bsp, job: int, rank: int, peers: Collection[socket.socket]) -> Report:
    """Run all loops of a process and return its result. Raises ConnectionError if a peer ends before."""
    seeded = random.Random(f"{workload.seed} {job} {rank}")  # noqa: S311 - no secret
    compute_s, io_s, exchange_s = workload.loop_s
    bytes_per_s = EXCHANGED_BYTES_PER_S if workload.machines == 1 else LINK_BYTES_PER_S
    exchange = Exchange(workload, peers, round(exchange_s * bytes_per_s / len(peers)))
    low, high = 1 - workload.imbalance / 2, 1 + workload.imbalance / 2
    before = getrusage(RUSAGE_SELF)
    for _ in range(workload.loops):
        compute(round(compute_s * seeded.uniform(low, high) * POWERS_PER_S))
        time.sleep(io_s * seeded.uniform(low, high))
        exchange.run()
    end_s, after = time.monotonic(), getrusage(RUSAGE_SELF)
    voluntary, involuntary = after.ru_nvcsw - before.ru_nvcsw, after.ru_nivcsw - before.ru_nivcsw
    return Report(job, end_s, exchange.spun_ns / 1e9, voluntary, involuntary)


def compute(powers: int) -> None:
    """Compute modular powers of numbers that fit in the first cache."""
    for exponent in range(powers):
        pow(3, (_PRIME >> 1) + exponent, _PRIME)


class Exchange:
    """Exchanges of messages of one size with all peers. spun_ns: CPU time of polling in vain, of all so far."""

    def __init__(self, workload: Bsp, peers: Collection[socket.socket], size: int) -> None:
        self.spun_ns = 0
        self._peers = peers
        self._size = max(1, size)
        self._spins = workload.wait != "block"
        self._spin_ns = workload.spin_us * 1000 if workload.wait == "spin-block" else None
        self._buffer = bytearray(_BUFFER_BYTES)

    def run(self) -> None:
        """Send a message to every peer and receive one of each. Raises ConnectionError if a peer ends before."""
        unsent, missing = dict.fromkeys(self._peers, self._size), dict.fromkeys(self._peers, self._size)
        while unsent or missing:
            if not (self._transfer(unsent, missing) or (self._spins and self._spin(unsent, missing))):
                _block(unsent, missing)

    def _transfer(self, unsent: dict[socket.socket, int], missing: dict[socket.socket, int]) -> bool:
        """Send and receive what is possible without waiting; return whether that was anything."""
        has_moved = False
        for peer, left in [*unsent.items()]:
            try:
                count = peer.send(_PAYLOAD[:left])
            except BlockingIOError:
                continue
            _subtract(unsent, peer, count)
            has_moved = True
        for peer, left in [*missing.items()]:
            try:
                count = peer.recv_into(self._buffer, min(left, _BUFFER_BYTES))
            except BlockingIOError:
                continue
            if not count:
                raise ConnectionResetError("A peer closed its connection.")
            _subtract(missing, peer, count)
            has_moved = True
        return has_moved

    def _spin(self, unsent: dict[socket.socket, int], missing: dict[socket.socket, int]) -> bool:
        """Poll until something was sent or received, which it returns, or until the spin time has passed."""
        until_ns = None if self._spin_ns is None else time.monotonic_ns() + self._spin_ns
        before_ns, has_moved = time.thread_time_ns(), False
        while not has_moved and (until_ns is None or time.monotonic_ns() < until_ns):
            has_moved = self._transfer(unsent, missing)
        self.spun_ns += time.thread_time_ns() - before_ns
        return has_moved


def _subtract(sizes: dict[socket.socket, int], peer: socket.socket, count: int) -> None:
    sizes[peer] -= count
    if not sizes[peer]:
        del sizes[peer]


def _block(unsent: Collection[socket.socket], missing: Collection[socket.socket]) -> None:
    """Sleep until something can be sent or received."""
    watch = select.poll()
    for peer in {*unsent, *missing}:
        watch.register(peer, (select.POLLOUT if peer in unsent else 0) | (select.POLLIN if peer in missing else 0))
    watch.poll()
