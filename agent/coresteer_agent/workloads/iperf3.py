"""The iperf3 program as a workload: its arguments and its output.

Throughput is the mean of the intervals of 0.1 s that its server reports within the window.
"""

import os
import re
import shutil

from coresteer_agent.workloads.child_process import Child
from coresteer_agent.workloads.supervisor import Config
from coresteer_agent.workloads.traffic_protocol import FAILED, cpus_of, split_address
from coresteer_core.experiments.model import Iperf3, Role

_MAX_S = 3600
_LISTENING = "Server listening on"
_INTERVAL = re.compile(
    r"^\[ *(?P<stream>SUM|\d+)\](?:\[[^\]]*\])? +(?P<begin_s>[\d.]+)-(?P<end_s>[\d.]+) +sec .* "
    r"(?P<kbit_per_s>[\d.]+) Kbits/sec"
)


class Interval:
    """Data transferred in one interval. total: sum of all streams."""

    def __init__(self, begin_s: float, end_s: float, kbit_per_s: float, *, total: bool) -> None:
        self.begin_s = begin_s
        self.end_s = end_s
        self.bits = (end_s - begin_s) * kbit_per_s * 1000
        self.total = total


def parse_interval(line: str) -> Interval | None:
    """Parse a line of output of ``iperf3 -f k``; None if it is not about an interval."""
    found = _INTERVAL.match(line)
    if found is None:
        return None
    begin_s, end_s, kbit_per_s = (float(found[name]) for name in ("begin_s", "end_s", "kbit_per_s"))
    return Interval(begin_s, end_s, kbit_per_s, total=found["stream"] == "SUM")


class Iperf3Load:
    """A load by iperf3 (see load.Load). Raises OSError."""

    done = False

    def __init__(self, workload: Iperf3, role: Role, address: str, network: str) -> None:
        self.failed: str | None = None
        self._workload = workload
        self._role = role
        self._host, self._port = split_address(address)
        self._network = network
        self._server: Child | None = None
        self._client: Child | None = None
        self._listens = self._flows = False
        self._measuring = False
        self._seconds = self._bits = 0.0
        program = shutil.which("iperf3")
        if program is None:
            self.failed = "iperf3 is not installed on this node; install the package iperf3 or use another workload."
            return
        self._program = program
        if role == "client":
            self._client = self._start_client()
        else:
            arguments = ["-s", "-B", self._host, "-i", "0.1", "-f", "k", "--forceflush"]
            self._server = self._start(arguments, "The server of iperf3", "", cpus_of(workload.server_cpus))

    def poll(self) -> bool:
        """Return whether the load is ready: a server listens, a client has reported its first interval."""
        if self._server is not None:
            for line in self._server.lines():
                self._handle_line(line)
            self._check(self._server, "server")
            if self._listens and self._role == "alone" and self._client is None:
                self._client = self._start_client()
        if self._client is not None:
            for line in self._client.lines():
                self._flows |= parse_interval(line) is not None
                if line.startswith(FAILED) or "error" in line:
                    self.failed = self.failed or f"iperf3 failed: {line.removeprefix(FAILED)}"
            self._check(self._client, "client")
        return self._listens if self._role == "server" else self._flows

    def has_traffic(self) -> bool:
        """Return whether an end has reported an interval with data."""
        return self._flows

    def begin_window(self) -> None:
        """Count the intervals that are reported from now on."""
        self.poll()
        self._measuring = True
        self._seconds = self._bits = 0.0

    def end_window(self) -> None:
        """Stop counting intervals."""
        self.poll()
        self._measuring = False

    def figures(self) -> dict[str, float]:
        """Return the throughput, if the server is on this node."""
        return {"throughput_bit_per_s": self._bits / self._seconds} if self._seconds else {}

    def end(self) -> None:
        """End client and server at once."""
        for child in (self._client, self._server):
            if child is not None:
                child.end()

    def _handle_line(self, line: str) -> None:
        self._listens |= line.startswith(_LISTENING)
        if line.startswith(FAILED):
            self.failed = line.removeprefix(FAILED)
        interval = parse_interval(line)
        self._flows |= interval is not None and interval.bits > 0
        if interval is None or not self._measuring or interval.total != (self._workload.streams > 1):
            return
        self._seconds += interval.end_s - interval.begin_s
        self._bits += interval.bits

    def _check(self, child: Child, what: str) -> None:
        if self.failed is None and (code := child.code) is not None:
            self.failed = f"The {what} of iperf3 ended with exit code {code}; its output is in the agent's log."

    def _start_client(self) -> Child:
        workload = self._workload
        bit_per_s = workload.limit_mbit_per_s * 1_000_000 // workload.streams
        arguments = ["-c", self._host, "-P", str(workload.streams), "-b", str(bit_per_s), "-t", str(_MAX_S)]
        arguments += ["-i", "0.1", "-f", "k", "--forceflush", *(["-u"] if workload.udp else [])]
        return self._start(arguments, "The client of iperf3", self._network, cpus_of(workload.client_cpus))

    def _start(self, arguments: list[str], name: str, network: str, cpus: list[int]) -> Child:
        argv = [self._program, "-p", str(self._port), *arguments]
        return Child("workloads.supervisor", Config(os.getpid(), argv, name, network, cpus))
