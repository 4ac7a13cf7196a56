"""Processes of the service classes' experiment: starts, disturbs and ends its servers, clients and gate."""

import os
import random
import select
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from socket import create_server

import msgspec
import psutil

from coresteer_agent.workloads.cgroups import WeightedCgroup, weighted_cgroups
from coresteer_agent.workloads.classes_model import (
    NICE_VALUES,
    NICE_WEIGHTS,
    TARGETS_PERCENT,
    Setup,
    WorkloadError,
)
from coresteer_agent.workloads.echo_client import ClientResult, Config
from coresteer_core.experiments.model import THREADS_PER_CLASS
from coresteer_core.metrics import CLASS_NAMES
from coresteer_core.policies.service_class.attainment import Attainment
from coresteer_core.policies.service_class.policy import ServiceClass, ServiceClasses, initial_weights, steer_weights

_BACKLOG = 128
_COUNTS = struct.Struct("<3Q")
_SERVER = Path(__file__).with_name("echo_server.py")
_TICK_S = 0.1
_END_S = 3
_LIMIT_S = 900
_GATE_KILLED_AFTER = 0.2
"""Share of all requests; the first class is not complete by then in any order."""
_GATE_AWAY_S = 1.0
_SILENT = 2


class Process:
    """A process that writes a byte when it is ready, and ends when its stdin is closed or this process ends."""

    def __init__(self, stack: ExitStack, arguments: Sequence[str], descriptors: Sequence[int] = ()) -> None:
        self._process = subprocess.Popen(
            [sys.executable, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, pass_fds=descriptors
        )
        self.pid = self._process.pid
        self._ended = os.pidfd_open(self.pid)
        stack.callback(os.close, self._ended)
        stack.callback(self.end)
        self.ready_byte = self._process.stdout.read(1) if self._process.stdout is not None else b""
        if not self.ready_byte:
            raise WorkloadError(f"{arguments[-2]} ended before it was ready; its output is above.")

    def start(self) -> None:
        """Let the ready process begin its work."""
        if self._process.stdin is not None:
            self._process.stdin.write(b"g")

    def wait(self, seconds: float | None) -> int | None:
        """Wait for the process and return its exit code, None while it runs. seconds: timeout, None without one.

        Popen.wait() is not used: it blocks for ever once an exception in a signal handler has left its lock taken.
        """
        if self._process.returncode is None:
            watch = select.poll()
            watch.register(self._ended, select.POLLIN)
            if watch.poll(None if seconds is None else seconds * 1000):
                try:
                    _, status = os.waitpid(self.pid, 0)
                except ChildProcessError:  # an exception in a signal handler interrupted the assignment
                    status = 0
                self._process.returncode = os.waitstatus_to_exitcode(status)
        return self._process.returncode

    def kill(self) -> None:
        """Kill the process and wait for its end."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._ended, signal.SIGKILL)
            self.wait(None)

    def close_pipes(self) -> None:
        """Close the process's stdin, which makes it end."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def end(self) -> None:
        """Close the process's stdin, and kill it if it does not end."""
        self.close_pipes()
        if self.wait(_END_S) is None:
            self.kill()


class ClassWorkers:
    """Servers, clients and gate of one run of the service classes' experiment; the ExitStack ends them."""

    def __init__(self, setup: Setup, stack: ExitStack, server_cpu: int, client_cpus: list[int]) -> None:
        self._setup = setup
        classes = [ServiceClass(*row) for row in zip(CLASS_NAMES, TARGETS_PERCENT, strict=True)]
        self._policy = ServiceClasses(classes, window_s=setup.window_s)
        self._stack = stack
        self._random = random.Random(setup.seed)  # noqa: S311 - no secret
        self._client_cpus = client_cpus
        self._folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="coresteer-workload-")))
        self._counts = os.memfd_create("coresteer-workload")
        stack.callback(os.close, self._counts)
        self._cgroups: list[WeightedCgroup] = []
        if setup.method in ("cgroup", "weight"):
            first = initial_weights(classes)
            weights = NICE_WEIGHTS if setup.method == "cgroup" else [first[name] for name in CLASS_NAMES]
            self._cgroups = stack.enter_context(weighted_cgroups(CLASS_NAMES))
            for cgroup, weight in zip(self._cgroups, weights, strict=True):
                cgroup.set_weight(weight)
        self._gate_path = self._folder / "gate.sock"
        self._gate = self._open_gate() if setup.method == "gate" else None
        self._servers: list[Process] = []
        self._clients: list[Process] = []
        for index in range(len(CLASS_NAMES)):
            server, port = self._start_server(index, server_cpu)
            self._servers.append(server)
            self._clients.append(self._start_client(index, port))
        self.realtime = all(server.ready_byte == b"1" for server in self._servers)
        for process in (*self._servers, *self._clients):  # close all before waiting for the first
            stack.callback(process.close_pipes)

    def measure(self) -> list[ClientResult]:
        """Start the clients, wait until they are done and return their results. Raises WorkloadError."""
        for client in self._random.sample(self._clients, len(self._clients)):
            client.start()
        until_s = time.monotonic() + _LIMIT_S
        disturbances, steering = self._disturb_gate(), self._adjust_weights()
        for client in self._clients:
            while (code := client.wait(_TICK_S)) is None:
                next(disturbances, None)
                next(steering, None)
                if time.monotonic() > until_s:
                    raise WorkloadError(f"The service classes' workload was not complete after {_LIMIT_S} s.")
            if code != 0:
                raise WorkloadError(f"A client ended with exit code {code}; its output is above.")
        return [
            msgspec.json.decode(self._output(index).read_bytes(), type=ClientResult)
            for index in range(len(CLASS_NAMES))
        ]

    def server_cpu_s(self) -> float:
        """Return the CPU seconds that the servers and their children have used so far."""
        return sum(sum(psutil.Process(server.pid).cpu_times()[:4]) for server in self._servers)

    def _output(self, index: int) -> Path:
        return self._folder / f"{CLASS_NAMES[index]}.json"

    def _open_gate(self) -> Process:
        policy = msgspec.json.encode(self._policy).decode()
        arguments = (str(self._gate_path), policy, msgspec.json.encode(self._client_cpus).decode())
        return Process(self._stack, ("-m", "coresteer_agent.workloads.gate_process", *arguments))

    def _start_server(self, index: int, cpu: int) -> tuple[Process, int]:
        cgroup = self._cgroups[index] if self._cgroups else None
        with create_server(("127.0.0.1", 0), backlog=_BACKLOG) as listener:
            config = {
                "cpu": cpu,
                "cgroup": None if cgroup is None else str(cgroup.folder),
                "home": None if cgroup is None else str(cgroup.home),
                "listener": listener.fileno(),
                "counts": self._counts,
                "offset": _COUNTS.size * index,
                "nice": NICE_VALUES[index] if self._setup.method == "nice" else 0,
                "gate": None if self._gate is None else str(self._gate_path),
                "name": CLASS_NAMES[index],
                "killed_request": self._random.randint(*_middle_half(THREADS_PER_CLASS * self._setup.requests))
                if self._setup.disturbance == "worker"
                else None,
            }
            arguments = ("-IS", str(_SERVER), msgspec.json.encode(config).decode())
            server = Process(self._stack, arguments, (listener.fileno(), self._counts))
            return server, listener.getsockname()[1]

    def _start_client(self, index: int, port: int) -> Process:
        silent = self._setup.disturbance == "silent" and index == _SILENT
        requests, seed = 0 if silent else self._setup.requests, self._random.getrandbits(32)
        config = Config(port, THREADS_PER_CLASS, requests, seed, self._client_cpus, str(self._output(index)))
        arguments = ("-m", "coresteer_agent.workloads.echo_client", msgspec.json.encode(config).decode())
        return Process(self._stack, arguments)

    def _read_counts(self) -> list[tuple[int, int, int]]:
        """Return, for each class, the requests that arrived, ended, and succeeded."""
        counts = os.pread(self._counts, _COUNTS.size * len(CLASS_NAMES), 0).ljust(
            _COUNTS.size * len(CLASS_NAMES), b"\0"
        )
        return list(_COUNTS.iter_unpack(counts))

    def _disturb_gate(self) -> Iterator[None]:
        """Kill and restart the gate, one step per iteration."""
        if self._setup.disturbance != "gate" or self._gate is None:
            return
        due = _GATE_KILLED_AFTER * len(CLASS_NAMES) * THREADS_PER_CLASS * self._setup.requests
        while sum(ended for _, ended, _ in self._read_counts()) < due:
            yield
        self._gate.kill()
        again_s = time.monotonic() + _GATE_AWAY_S
        while time.monotonic() < again_s:
            yield
        self._gate = self._open_gate()

    def _adjust_weights(self) -> Iterator[None]:
        """Adjust CPU weights from the servers' counters as the agent does, one step per iteration."""
        if self._setup.method != "weight":
            return
        attainments = [Attainment(graded.target, self._setup.window_s) for graded in self._policy.classes]
        weights = initial_weights(self._policy.classes)
        before, before_s = self._read_counts(), time.monotonic()
        while True:
            yield
            now, time_s = self._read_counts(), time.monotonic()
            for attainment, (arrived, ended, succeeded), (_, ended_before, succeeded_before) in zip(
                attainments, now, before, strict=True
            ):
                attainment.pending = arrived - ended
                attainment.record(time_s, ended - ended_before, succeeded - succeeded_before)
            figures = [attainment.figures(time_s, "servers") for attainment in attainments]
            weights = steer_weights(figures, weights, self._policy, time_s - before_s)
            for name, cgroup in zip(CLASS_NAMES, self._cgroups, strict=True):
                cgroup.set_weight(weights[name])
            before, before_s = now, time_s


def _middle_half(count: int) -> tuple[int, int]:
    return max(1, count // 4), max(1, count * 3 // 4)
