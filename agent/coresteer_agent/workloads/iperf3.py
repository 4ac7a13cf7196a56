"""The iperf3 program as a workload: how it is called, and what it says.

Throughput is that which its server told of, in the intervals of a tenth of a second that it told of in the window.
"""

import os
import re
import shutil

from coresteer_agent.workloads.child import Child
from coresteer_agent.workloads.supervisor import Orders
from coresteer_agent.workloads.traffic import FAILED, cpus_of, split_address
from coresteer_core.experiments.model import Iperf3, Role

_LONGEST_S = 3600
_LISTENING = "Server listening on"
_INTERVAL = re.compile(
    r"^\[ *(?P<stream>SUM|\d+)\](?:\[[^\]]*\])? +(?P<begin_s>[\d.]+)-(?P<end_s>[\d.]+) +sec .* "
    r"(?P<kbit_per_s>[\d.]+) Kbits/sec"
)


class Interval:
    """What one line says of an interval. total: of all streams together."""

    def __init__(self, begin_s: float, end_s: float, kbit_per_s: float, *, total: bool) -> None:
        self.begin_s = begin_s
        self.end_s = end_s
        self.bits = (end_s - begin_s) * kbit_per_s * 1000
        self.total = total


def parse_interval(line: str) -> Interval | None:
    """A line of output of ``iperf3 -f k``; None where it is another one."""
    found = _INTERVAL.match(line)
    if found is None:
        return None
    begin_s, end_s, kbit_per_s = (float(found[name]) for name in ("begin_s", "end_s", "kbit_per_s"))
    return Interval(begin_s, end_s, kbit_per_s, total=found["stream"] == "SUM")


class Iperf3Load:
    """A load as children.Load wants it. Raises OSError."""

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
            self.failed = "iperf3 is not installed on this node; install the package iperf3 or take another workload."
            return
        self._program = program
        if role == "client":
            self._client = self._start_client()
        else:
            arguments = ["-s", "-B", self._host, "-i", "0.1", "-f", "k", "--forceflush"]
            self._server = self._start(arguments, "The server of iperf3", "", cpus_of(workload.server_cpus))

    def look(self) -> bool:
        """A server is ready when it listens, a client when the first interval has passed."""
        if self._server is not None:
            for line in self._server.lines():
                self._hear(line)
            self._check(self._server, "server")
            if self._listens and self._role == "alone" and self._client is None:
                self._client = self._start_client()
        if self._client is not None:
            for line in self._client.lines():
                self._flows |= parse_interval(line) is not None
                if line.startswith(FAILED) or "error" in line:
                    self.failed = self.failed or f"iperf3 said: {line.removeprefix(FAILED)}"
            self._check(self._client, "client")
        return self._listens if self._role == "server" else self._flows

    def flows(self) -> bool:
        """Either end has told of an interval."""
        return self._flows

    def begin_window(self) -> None:
        """Intervals that are told of from now on count."""
        self.look()
        self._measuring = True
        self._seconds = self._bits = 0.0

    def end_window(self) -> None:
        """They no longer do."""
        self.look()
        self._measuring = False

    def figures(self) -> dict[str, float]:
        """With a server here."""
        return {"throughput_bit_per_s": self._bits / self._seconds} if self._seconds else {}

    def end(self) -> None:
        """At once."""
        for child in (self._client, self._server):
            if child is not None:
                child.end()

    def _hear(self, line: str) -> None:
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
            self.failed = f"The {what} of iperf3 ended with {code}; what it said is in the agent's log."

    def _start_client(self) -> Child:
        workload = self._workload
        bit_per_s = workload.limit_mbit_per_s * 1_000_000 // workload.streams
        arguments = ["-c", self._host, "-P", str(workload.streams), "-b", str(bit_per_s), "-t", str(_LONGEST_S)]
        arguments += ["-i", "0.1", "-f", "k", "--forceflush", *(["-u"] if workload.udp else [])]
        return self._start(arguments, "The client of iperf3", self._network, cpus_of(workload.client_cpus))

    def _start(self, arguments: list[str], name: str, network: str, cpus: list[int]) -> Child:
        argv = [self._program, "-p", str(self._port), *arguments]
        return Child("workloads.supervisor", Orders(os.getpid(), argv, name, network, cpus))
