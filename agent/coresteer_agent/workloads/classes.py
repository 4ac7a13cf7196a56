"""The percentile scheduler's experiment: who is served first where an echo server forks a child for each request.

Kim, Song and Lee, percentile scheduling for differentiated services. Five clients, one a class, each of ten threads
that ask again as soon as they are answered, so that fifty requests are there at any time until the first clients are
done. All servers and their children share one CPU and the clients have the others: nothing but the order in which the
children get that CPU decides who waits. As many requests are done in the same time whatever the order, so serving one
class before another makes the mean of all shorter, not longer; what a method costs by itself makes it longer.

The window decides how far the classes are apart. N counts the ten requests that are always there of a class, so its F
is S / ((S + 10) × P): a class of target P is as well off as the first, of target 90 % and nearly all its requests done,
after 10 / (90 / P - 1) completions in a window, 12.5 for the last class. Those are its share of what is done in a
window, so the more fits into one, the nearer it comes to strict precedence: where nothing else costs time, the last
class's mean is 2.4 times the first one's with 180 requests a window, 3.6 with 450, 4.25 with 900 and 4.7 from 3,600 on,
where 5 is strict (tests/bench/bench_class_windows.py). The default of two seconds gives 3.2 from 225 requests a second
on. What then bounds a wait is the gate's rule for classes that were passed over. Without a gate the scheduler decides,
and some such short children wait for seconds: one that was interrupted just after it began has had more than those that
come new all the time and leave before their slice ends.

Everything is on the loopback, bounded in count and time, and ends with this process, however that ends.
"""

import os
import platform
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
from typing import Annotated, Literal, TypeAlias

import msgspec
import psutil
from msgspec import Meta, Struct

from coresteer_agent.version import VERSION
from coresteer_agent.workloads.cgroups import NoCgroupError, WeightedCgroup, weighted_cgroups
from coresteer_agent.workloads.echo_client import Orders, Seen
from coresteer_core.policies.service_class.attainment import Attainment
from coresteer_core.policies.service_class.policy import ServiceClass, ServiceClasses, initial_weights, steer

Method: TypeAlias = Literal["default", "nice", "cgroup", "gate", "weight"]
Disturbance: TypeAlias = Literal["none", "worker", "gate", "silent"]

NAMES = ("c1", "c2", "c3", "c4", "c5")
TARGETS_PERCENT = (90.0, 80.0, 70.0, 60.0, 50.0)
NICES = (-20, -19, -18, -17, -16)
NICE_WEIGHTS = (88761, 71755, 56483, 46273, 36291)
"""What the scheduler makes of these (kernel/sched/core.c, sched_prio_to_weight)."""
THREADS = 10
_BACKLOG = 128
_COUNTS = struct.Struct("<3Q")
_SERVER = Path(__file__).with_name("echo_server.py")
_TICK_S = 0.1
_END_S = 3
_LIMIT_S = 900
_GATE_KILLED_AFTER = 0.2
"""Of all requests: the first class is not done by then in any order of them."""
_GATE_AWAY_S = 1.0
_SILENT = 2


class WorkloadError(Exception):
    """It could not be run; the sentence says why."""


class Setup(Struct, frozen=True, kw_only=True):
    """What is run. requests: of each of the ten threads of each class.

    disturbance: worker: one of each class is killed while it works, somewhere in the middle half of the class's
    requests; gate: it is killed after a fifth of all requests and started again after a second; silent: the third class
    asks nothing.
    """

    method: Method
    requests: Annotated[int, Meta(ge=1, le=10_000)] = 1_000
    seed: int = 0
    window_s: Annotated[float, Meta(ge=0.1, le=3600)] = 2.0
    disturbance: Disturbance = "none"


class ClassResult(Struct, frozen=True):
    """One class. Response times from connect to answer, None without an answer. longest_wait_us: from accept until a
    CPU worked on the request. finished_s: from the start until its last answer.
    """

    name: str
    target_percent: float
    completed: int
    failed: int
    mean_us: float | None
    p50_us: int | None
    p95_us: int | None
    p99_us: int | None
    max_us: int | None
    longest_wait_us: int | None
    finished_s: float | None


class Result(Struct, frozen=True):
    """all: of all classes together. server_busy, clients_busy: of the CPU or CPUs of each, 1.0 is all the time; the
    first is near 1 where the servers decide and not the clients. server_us: CPU time of the servers and their children
    for each request, waiting excluded. realtime: whether the acceptors could be real-time
    tasks. load_before: runnable tasks in the last minute before it.
    """

    setup: Setup
    classes: list[ClassResult]
    all: ClassResult
    throughput_per_s: float
    duration_s: float
    server_cpu: int
    client_cpus: list[int]
    server_busy: float
    clients_busy: float
    server_us: float
    realtime: bool
    load_before: float
    versions: dict[str, str]


def run(setup: Setup) -> Result:
    """Run it once. Raises WorkloadError."""
    *client_cpus, server_cpu = sorted(os.sched_getaffinity(0))
    if not client_cpus:
        raise WorkloadError("This process has one CPU only; the servers need one that the clients do not use.")
    load_before = os.getloadavg()[0]
    try:
        with ExitStack() as stack:
            bench = _Bench(setup, stack, server_cpu, client_cpus)
            idle_before_s, measured_from_s = _idle_s(server_cpu), time.monotonic()
            seen = bench.measure()
            server_s = bench.server_s()
            idle = (_idle_s(server_cpu) - idle_before_s) / (time.monotonic() - measured_from_s)
    except NoCgroupError as error:
        raise WorkloadError(str(error)) from None
    begin_s = min(client.begin_s for client in seen)
    duration_s = max(client.end_s for client in seen) - begin_s
    everybody = Seen(
        [value for client in seen for value in client.responses_us],
        [value for client in seen for value in client.waits_us],
        sum(client.failed for client in seen),
        begin_s,
        begin_s + duration_s,
        sum(client.cpu_s for client in seen),
    )
    return Result(
        setup=setup,
        classes=[_result(*row, begin_s) for row in zip(NAMES, TARGETS_PERCENT, seen, strict=True)],
        all=_result("all", 0, everybody, begin_s),
        throughput_per_s=len(everybody.responses_us) / duration_s,
        duration_s=duration_s,
        server_cpu=server_cpu,
        client_cpus=client_cpus,
        server_busy=1 - idle,
        clients_busy=everybody.cpu_s / duration_s / len(client_cpus),
        server_us=server_s * 1e6 / (len(everybody.responses_us) + everybody.failed),
        realtime=bench.realtime,
        load_before=load_before,
        versions={
            "coresteer": VERSION,
            "python": platform.python_version(),
            "kernel": platform.release(),
        },
    )


class _Process:
    """A process that says a byte when it is ready and ends when its stdin is closed, as it is when this one ends."""

    def __init__(self, stack: ExitStack, arguments: Sequence[str], descriptors: Sequence[int] = ()) -> None:
        self._process = subprocess.Popen(
            [sys.executable, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, pass_fds=descriptors
        )
        self.pid = self._process.pid
        self._ended = os.pidfd_open(self.pid)
        stack.callback(os.close, self._ended)
        stack.callback(self.end)
        self.said = self._process.stdout.read(1) if self._process.stdout is not None else b""
        if not self.said:
            raise WorkloadError(f"{arguments[-2]} ended before it was ready; what it said is above.")

    def go(self) -> None:
        """Let it begin."""
        if self._process.stdin is not None:
            self._process.stdin.write(b"g")

    def wait(self, seconds: float | None) -> int | None:
        """Its exit code, None while it runs; seconds None waits for it.

        Not by Popen.wait(), which never comes back once a signal's exception has left its lock taken.
        """
        if self._process.returncode is None:
            watch = select.poll()
            watch.register(self._ended, select.POLLIN)
            if watch.poll(None if seconds is None else seconds * 1000):
                try:
                    _, status = os.waitpid(self.pid, 0)
                except ChildProcessError:  # a signal's exception came between the waiting and the noting
                    status = 0
                self._process.returncode = os.waitstatus_to_exitcode(status)
        return self._process.returncode

    def kill(self) -> None:
        """At once."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._ended, signal.SIGKILL)
            self.wait(None)

    def leave(self) -> None:
        """Close its stdin, at which it ends."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def end(self) -> None:
        """Kill it when leave() does not help."""
        self.leave()
        if self.wait(_END_S) is None:
            self.kill()


class _Bench:
    """The processes of one run, in a stack that ends them."""

    def __init__(self, setup: Setup, stack: ExitStack, server_cpu: int, client_cpus: list[int]) -> None:
        self._setup = setup
        classes = [ServiceClass(*row) for row in zip(NAMES, TARGETS_PERCENT, strict=True)]
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
            weights = NICE_WEIGHTS if setup.method == "cgroup" else [first[name] for name in NAMES]
            self._cgroups = stack.enter_context(weighted_cgroups(NAMES))
            for cgroup, weight in zip(self._cgroups, weights, strict=True):
                cgroup.weigh(weight)
        self._gate_path = self._folder / "gate.sock"
        self._gate = self._open_gate() if setup.method == "gate" else None
        self._servers: list[_Process] = []
        self._clients: list[_Process] = []
        for index in range(len(NAMES)):
            server, port = self._serve(index, server_cpu)
            self._servers.append(server)
            self._clients.append(self._client(index, port))
        self.realtime = all(server.said == b"1" for server in self._servers)
        for process in (*self._servers, *self._clients):  # all at once, before each is waited for
            stack.callback(process.leave)

    def measure(self) -> list[Seen]:
        """Let the clients go and wait for them. Raises WorkloadError."""
        for client in self._random.sample(self._clients, len(self._clients)):
            client.go()
        until_s = time.monotonic() + _LIMIT_S
        disturbances, steering = self._disturb(), self._steer()
        for client in self._clients:
            while (code := client.wait(_TICK_S)) is None:
                next(disturbances, None)
                next(steering, None)
                if time.monotonic() > until_s:
                    raise WorkloadError(f"It was not done after {_LIMIT_S} s, so it was given up.")
            if code != 0:
                raise WorkloadError(f"A client ended with {code}; what it said is above.")
        return [msgspec.json.decode(self._output(index).read_bytes(), type=Seen) for index in range(len(NAMES))]

    def server_s(self) -> float:
        """CPU time of servers and their children so far."""
        return sum(sum(psutil.Process(server.pid).cpu_times()[:4]) for server in self._servers)

    def _output(self, index: int) -> Path:
        return self._folder / f"{NAMES[index]}.json"

    def _open_gate(self) -> _Process:
        policy = msgspec.json.encode(self._policy).decode()
        arguments = (str(self._gate_path), policy, msgspec.json.encode(self._client_cpus).decode())
        return _Process(self._stack, ("-m", "coresteer_agent.workloads.gate_process", *arguments))

    def _serve(self, index: int, cpu: int) -> tuple[_Process, int]:
        cgroup = self._cgroups[index] if self._cgroups else None
        with create_server(("127.0.0.1", 0), backlog=_BACKLOG) as listener:
            orders = {
                "cpu": cpu,
                "cgroup": None if cgroup is None else str(cgroup.folder),
                "home": None if cgroup is None else str(cgroup.home),
                "listener": listener.fileno(),
                "counts": self._counts,
                "offset": _COUNTS.size * index,
                "nice": NICES[index] if self._setup.method == "nice" else 0,
                "gate": None if self._gate is None else str(self._gate_path),
                "name": NAMES[index],
                "doomed": self._random.randint(*_middle_half(THREADS * self._setup.requests))
                if self._setup.disturbance == "worker"
                else None,
            }
            arguments = ("-IS", str(_SERVER), msgspec.json.encode(orders).decode())
            server = _Process(self._stack, arguments, (listener.fileno(), self._counts))
            return server, listener.getsockname()[1]

    def _client(self, index: int, port: int) -> _Process:
        silent = self._setup.disturbance == "silent" and index == _SILENT
        requests, seed = 0 if silent else self._setup.requests, self._random.getrandbits(32)
        orders = Orders(port, THREADS, requests, seed, self._client_cpus, str(self._output(index)))
        arguments = ("-m", "coresteer_agent.workloads.echo_client", msgspec.json.encode(orders).decode())
        return _Process(self._stack, arguments)

    def _told(self) -> list[tuple[int, int, int]]:
        """Of each class: requests that arrived, ended, and ended well."""
        told = os.pread(self._counts, _COUNTS.size * len(NAMES), 0).ljust(_COUNTS.size * len(NAMES), b"\0")
        return list(_COUNTS.iter_unpack(told))

    def _disturb(self) -> Iterator[None]:
        """A step a tick."""
        if self._setup.disturbance != "gate" or self._gate is None:
            return
        due = _GATE_KILLED_AFTER * len(NAMES) * THREADS * self._setup.requests
        while sum(ended for _, ended, _ in self._told()) < due:
            yield
        self._gate.kill()
        again_s = time.monotonic() + _GATE_AWAY_S
        while time.monotonic() < again_s:
            yield
        self._gate = self._open_gate()

    def _steer(self) -> Iterator[None]:
        """A step a tick, as the agent takes it, from what the servers tell."""
        if self._setup.method != "weight":
            return
        attainments = [Attainment(graded.target, self._setup.window_s) for graded in self._policy.classes]
        weights = initial_weights(self._policy.classes)
        before, before_s = self._told(), time.monotonic()
        while True:
            yield
            told, time_s = self._told(), time.monotonic()
            for attainment, (arrived, ended, well), (_, ended_before, well_before) in zip(
                attainments, told, before, strict=True
            ):
                attainment.pending = arrived - ended
                attainment.record(time_s, ended - ended_before, well - well_before)
            figures = [attainment.figures(time_s, "servers") for attainment in attainments]
            weights = steer(figures, weights, self._policy, time_s - before_s)
            for name, cgroup in zip(NAMES, self._cgroups, strict=True):
                cgroup.weigh(weights[name])
            before, before_s = told, time_s


def _middle_half(count: int) -> tuple[int, int]:
    return max(1, count // 4), max(1, count * 3 // 4)


def _idle_s(cpu: int) -> float:
    times = psutil.cpu_times(percpu=True)[cpu]
    return float(times.idle + times.iowait)


def _result(name: str, target_percent: float, seen: Seen, begin_s: float) -> ClassResult:
    ordered = sorted(seen.responses_us)
    count = len(ordered)

    def quantile(share: float) -> int | None:
        return ordered[min(count - 1, int(share * count))] if ordered else None

    return ClassResult(
        name=name,
        target_percent=target_percent,
        completed=count,
        failed=seen.failed,
        mean_us=sum(ordered) / count if ordered else None,
        p50_us=quantile(0.50),
        p95_us=quantile(0.95),
        p99_us=quantile(0.99),
        max_us=ordered[-1] if ordered else None,
        longest_wait_us=max(seen.waits_us, default=None),
        finished_s=seen.end_s - begin_s if ordered else None,
    )
