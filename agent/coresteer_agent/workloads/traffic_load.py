"""Traffic between the two ends that this package has itself: its processes on this node, and what they counted."""

import os
import socket
import time
from array import array
from collections.abc import Sequence

from coresteer_agent.workloads.child import Child
from coresteer_agent.workloads.shared_counters import Counts, counted, histogram, quantiles_us
from coresteer_agent.workloads.traffic import (
    FAILED,
    READY,
    ClientOrders,
    Generated,
    ServerOrders,
    processes,
    split_address,
)
from coresteer_core.experiments.model import Role, TcpRequest, TcpStream, UdpFlood

_SHARES = {"rtt_p50_us": 0.50, "rtt_p95_us": 0.95, "rtt_p99_us": 0.99}


class _End:
    """The server or the client."""

    def __init__(self, what: str, child: Child, counts: Counts) -> None:
        self.what = what
        self.child = child
        self.counts = counts
        self.ready = False
        self.failed: str | None = None
        self.window: list[tuple[int, array[int]]] = []

    def look(self) -> None:
        for line in self.child.lines():
            self.ready |= line == READY
            if line.startswith(FAILED) and self.failed is None:
                self.failed = line.removeprefix(FAILED)
        if self.failed is None and (code := self.child.code) is not None:
            self.failed = f"The {self.what} ended with {code}; what it said is in the agent's log."

    def read(self) -> None:
        self.window.append((time.monotonic_ns(), self.counts.read()))

    def end(self) -> None:
        self.child.end()
        self.counts.close()


class GeneratedLoad:
    """A load as children.Load wants it. Raises OSError and ValueError."""

    done = False

    def __init__(
        self, workload: Generated, role: Role, address: str, network: str, sockets: Sequence[socket.socket]
    ) -> None:
        self._workload = workload
        self._ends: dict[str, _End] = {}
        host, port = split_address(address)
        try:
            if role != "client":
                self._ends["server"] = _serve(workload, [one.fileno() for one in sockets])
            if role != "server":
                self._ends["client"] = _ask(workload, host, port, network)
        except OSError:
            self.end()
            raise

    @property
    def failed(self) -> str | None:
        """The first that failed says why."""
        return next((end.failed for end in self._ends.values() if end.failed is not None), None)

    def look(self) -> bool:
        """Whether both are ready."""
        for end in self._ends.values():
            end.look()
        return all(end.ready for end in self._ends.values())

    def flows(self) -> bool:
        """A server alone has counted something."""
        return "client" in self._ends or any(self._ends["server"].counts.read())

    def begin_window(self) -> None:
        """Note what they have counted."""
        for end in self._ends.values():
            end.read()

    def end_window(self) -> None:
        """Note it again."""
        for end in self._ends.values():
            end.read()

    def figures(self) -> dict[str, float]:
        """What arrived by the server's count; response times and requests by the client's, where that is here."""
        found: dict[str, float] = {}
        for name, end in self._ends.items():
            if len(end.window) < 2:
                continue
            (begin_ns, before), (end_ns, after) = end.window[0], end.window[-1]
            per_s = counted(before, after) * 1e9 / (end_ns - begin_ns)
            match name, self._workload:
                case "server", TcpStream():
                    found["throughput_bit_per_s"] = per_s * 8
                case "server", UdpFlood(payload_bytes=size):
                    found["packets_per_s"] = per_s
                    found["throughput_bit_per_s"] = per_s * size * 8
                case _, TcpRequest():
                    found["requests_per_s"] = per_s
            times_us = quantiles_us(histogram(before, after), [*_SHARES.values()]) if name == "client" else None
            if times_us is not None:
                found |= zip(_SHARES, times_us, strict=True)
        return found

    def end(self) -> None:
        """At once."""
        for end in self._ends.values():
            end.end()


def _serve(workload: Generated, sockets: list[int]) -> _End:
    counts = Counts(len(sockets) if isinstance(workload, UdpFlood) else processes(workload))
    orders = ServerOrders(os.getpid(), workload, sockets, counts.fd)
    return _End("traffic server", Child("workloads.traffic_server", orders, [*sockets, counts.fd]), counts)


def _ask(workload: Generated, host: str, port: int, network: str) -> _End:
    counts = Counts(processes(workload))
    orders = ClientOrders(os.getpid(), workload, host, port, network, counts.fd)
    return _End("traffic client", Child("workloads.traffic_client", orders, [counts.fd]), counts)
