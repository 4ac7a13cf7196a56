"""Traffic between this package's client and server: their processes on this node, and their counters."""

import os
import socket
import time
from array import array
from collections.abc import Sequence

from coresteer_agent.workloads.child_process import Child
from coresteer_agent.workloads.shared_counters import SharedCounters, count_between, histogram, quantiles_us
from coresteer_agent.workloads.traffic_protocol import (
    FAILED,
    READY,
    ClientConfig,
    Generated,
    ServerConfig,
    process_count_of,
    split_address,
)
from coresteer_core.experiments.model import Role, TcpRequest, TcpStream, UdpFlood

_SHARES = {"rtt_p50_us": 0.50, "rtt_p95_us": 0.95, "rtt_p99_us": 0.99}


class _End:
    """Process and counters of the server or of the client."""

    def __init__(self, what: str, child: Child, counts: SharedCounters) -> None:
        self.what = what
        self.child = child
        self.counts = counts
        self.ready = False
        self.failed: str | None = None
        self.window: list[tuple[int, array[int]]] = []

    def poll(self) -> None:
        for line in self.child.lines():
            self.ready |= line == READY
            if line.startswith(FAILED) and self.failed is None:
                self.failed = line.removeprefix(FAILED)
        if self.failed is None and (code := self.child.code) is not None:
            self.failed = f"The {self.what} ended with exit code {code}; its output is in the agent's log."

    def read(self) -> None:
        self.window.append((time.monotonic_ns(), self.counts.read()))

    def end(self) -> None:
        self.child.end()
        self.counts.close()


class GeneratedLoad:
    """A load by this package's programs (see load.Load). Raises OSError and ValueError."""

    done = False

    def __init__(
        self, workload: Generated, role: Role, address: str, network: str, sockets: Sequence[socket.socket]
    ) -> None:
        self._workload = workload
        self._ends: dict[str, _End] = {}
        host, port = split_address(address)
        try:
            if role != "client":
                self._ends["server"] = _start_server(workload, [one.fileno() for one in sockets])
            if role != "server":
                self._ends["client"] = _start_client(workload, host, port, network)
        except OSError:
            self.end()
            raise

    @property
    def failed(self) -> str | None:
        """Return the first failure of an end, None if both work."""
        return next((end.failed for end in self._ends.values() if end.failed is not None), None)

    def poll(self) -> bool:
        """Return whether both ends are ready."""
        for end in self._ends.values():
            end.poll()
        return all(end.ready for end in self._ends.values())

    def has_traffic(self) -> bool:
        """Return whether a server without a client on this node has received data."""
        return "client" in self._ends or any(self._ends["server"].counts.read())

    def begin_window(self) -> None:
        """Read the counters at the start of the window."""
        for end in self._ends.values():
            end.read()

    def end_window(self) -> None:
        """Read the counters at the end of the window."""
        for end in self._ends.values():
            end.read()

    def figures(self) -> dict[str, float]:
        """Return throughput by the server's counters; requests and response times by the client's, if on this node."""
        found: dict[str, float] = {}
        for name, end in self._ends.items():
            if len(end.window) < 2:
                continue
            (begin_ns, before), (end_ns, after) = end.window[0], end.window[-1]
            per_s = count_between(before, after) * 1e9 / (end_ns - begin_ns)
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
        """End both processes at once."""
        for end in self._ends.values():
            end.end()


def _start_server(workload: Generated, sockets: list[int]) -> _End:
    counts = SharedCounters(len(sockets) if isinstance(workload, UdpFlood) else process_count_of(workload))
    config = ServerConfig(os.getpid(), workload, sockets, counts.fd)
    return _End("traffic server", Child("workloads.traffic_server", config, [*sockets, counts.fd]), counts)


def _start_client(workload: Generated, host: str, port: int, network: str) -> _End:
    counts = SharedCounters(process_count_of(workload))
    config = ClientConfig(os.getpid(), workload, host, port, network, counts.fd)
    return _End("traffic client", Child("workloads.traffic_client", config, [counts.fd]), counts)
