"""The readable model of the simulated machine, on SimPy: what coresteer.simulation.engine must do, event by event.

Each node's CPU and each exchange of messages is a SimPy process. The model shares only the tables of Solaris, the jobs
and reorder.py with the engine. It is too slow for a study.
"""

import math
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field

import simpy

from coresteer.simulation.jobs import Jobs
from coresteer.simulation.parameters import Parameters
from coresteer.simulation.schemes import Arrival, Scheme, Wait
from coresteer.simulation.solaris import EXPIRED, FIRST_LEVEL, HIGHEST, MAX_WAIT, QUANTUM_S, SLEPT, TICK_S, WAITED
from coresteer_core.policies.coscheduling.reorder import (
    expected_processes,
    expected_run_time,
    first_to_run,
    rebase,
)

Steps = Generator[simpy.Event, object, None]


@dataclass(eq=False)
class Process:
    """A process of a job. pending: (loop, sender's node, arrival) of messages that it has not received."""

    job: int
    rank: int
    node: "Node"
    peers: list[int]
    state: str = "ready"
    activity: str = "compute"
    need_s: float = 0.0
    quantum_s: float = 0.0
    level: int = FIRST_LEVEL
    order: int = 0
    waited: int = 0
    loop: int = 0
    pending: list[tuple[int, int, float]] = field(default_factory=list)
    taking: list[tuple[int, int, float]] = field(default_factory=list)
    received: dict[int, int] = field(default_factory=dict)
    enp: dict[int, float] = field(default_factory=dict)
    heard_s: dict[int, float] = field(default_factory=dict)

    @property
    def oldest_s(self) -> float:
        return self.pending[0][2] if self.pending else math.inf


class Node:
    """A node: its CPU as a SimPy process, its ready processes, and what it knows of other nodes."""

    def __init__(self, machine: "Reference", number: int) -> None:
        self.machine, self.number, self.env = machine, number, machine.env
        self.places: list[Process | None] = [None] * machine.parameters.mpl
        self.current: Process | None = None
        self.last: Process | None = None
        self.state = "idle"
        self.due_s = 0.0
        self.again = False
        self.clock_s: float | None = None
        self.orders = self.fronts = self.switches = 0
        self.ts_s = machine.parameters.first_slice_s
        self.dispatched_s = 0.0
        self.woken, self.woken_mean, self.window = 0, 0.0, 0
        self.heard_s: dict[int, float] = {}
        self.heard_ts_s: dict[int, float] = {}
        self.spent = dict.fromkeys(("compute", "spin", "switch", "overhead", "idle"), 0.0)
        self.work = self.env.event()
        self.cpu = self.env.process(self.run())

    @property
    def processes(self) -> list[Process]:
        return [process for process in self.places if process is not None]

    @property
    def ready(self) -> list[Process]:
        return [process for process in self.processes if process.state == "ready"]

    # The CPU

    def run(self) -> Steps:
        """Serve overhead, choose a process, switch to it, and run it until it leaves the CPU."""
        while True:
            yield from self.serve()
            chosen = self.choose()
            if chosen is None:
                self.state, self.work, begin_s = "idle", self.env.event(), self.env.now
                yield self.work
                self.spent["idle"] += self.env.now - begin_s
                self.state = "overhead"
                continue
            self.state, self.current, self.again, chosen.state = "switching", chosen, False, "running"
            if chosen is not self.last:
                self.last = chosen
                self.switches += 1
                begin_s = self.env.now
                yield from self.serve()  # the reordering that chose it
                yield self.env.timeout(self.machine.parameters.switch_s)
                self.spent["switch"] += self.machine.parameters.switch_s
            yield from self.serve()
            if self.again:
                self.put_back(chosen)
                self.state = "overhead"
                continue
            yield from self.slice(chosen)
            self.state = "overhead"

    def serve(self) -> Steps:
        """Spend the overhead that is due, that which becomes due meanwhile included."""
        while self.due_s > 0.0:
            cost_s, self.due_s = self.due_s, 0.0
            yield self.env.timeout(cost_s)
            self.spent["overhead"] += cost_s

    def slice(self, process: Process) -> Steps:
        """Run a process until it sleeps, yields, ends, is preempted or its quantum expires."""
        self.state, self.dispatched_s = "busy", self.env.now
        self.machine.trace.append((self.env.now, self.number, process.job, process.rank))
        if process.activity == "spin" and process.pending:
            self.machine.receive(process)
        while self.current is process:
            self.clock_s = self.env.now
            ends = process.need_s <= process.quantum_s
            try:
                yield self.env.timeout(max(0.0, min(process.need_s, process.quantum_s)))
            except simpy.Interrupt:
                self.stop_clock()
                self.state = "busy-overhead"
                yield from self.serve()
                self.state = "busy"
                continue
            self.stop_clock()
            if ends:
                self.machine.next_activity(process)
            else:
                self.enqueue(process, int(EXPIRED[process.level]))
                self.leave()

    def stop_clock(self) -> None:
        """Account for the activity of the running process until now."""
        if self.clock_s is None or self.current is None:
            return
        used = self.env.now - self.clock_s
        self.spent["spin" if self.current.activity == "spin" else "compute"] += used
        self.current.need_s -= used
        self.current.quantum_s -= used
        self.clock_s = None

    def charge(self, cost_s: float) -> None:
        """Let the CPU spend overhead before anything else."""
        if cost_s <= 0.0:
            return
        self.due_s += cost_s
        self.disturb()

    def disturb(self) -> None:
        """Interrupt the CPU if it runs a process or idles."""
        if self.state == "busy" and self.clock_s is not None:
            self.stop_clock()
            self.state = "busy-overhead"
            self.cpu.interrupt()
        elif self.state == "idle" and not self.work.triggered:
            self.work.succeed()

    def leave(self) -> None:
        self.ts_s += (self.env.now - self.dispatched_s - self.ts_s) / 8
        self.current = None

    # The ready queue

    def enqueue(self, process: Process, level: int) -> None:
        self.orders += 1
        process.state, process.level, process.waited, process.order = "ready", level, 0, self.orders
        process.quantum_s = float(QUANTUM_S[level])

    def put_back(self, process: Process) -> None:
        self.fronts -= 1
        process.state, process.order = "ready", self.fronts

    def head(self) -> Process | None:
        return max(self.ready, key=lambda p: (p.level, -p.order), default=None)

    def choose(self) -> Process | None:
        head = self.head()
        if head is None or not self.machine.scheme.reorder:
            return head
        level = max((p.level for p in self.ready if p.pending), default=-1)
        return head if level < head.level else self.first_pending()

    def ert(self, process: Process) -> float:
        """Return the least expected run time over a process's pending messages."""
        found = math.inf
        for sender in sorted({sender for _, sender, _ in process.pending}):
            ts_s = self.heard_ts_s[sender]
            known = rebase(process.enp[sender], process.heard_s[sender], self.heard_s[sender], ts_s)
            process.enp[sender], process.heard_s[sender] = known
            found = min(found, expected_run_time(*known, ts_s, self.env.now, self.machine.parameters.sign))
        return found

    def first_pending(self) -> Process | None:
        candidates = [process for process in self.ready if process.pending]
        if len(candidates) <= 1:
            return candidates[0] if candidates else None
        erts = [self.ert(process) for process in candidates]
        parameters = self.machine.parameters
        messages = sum(len(process.pending) for process in candidates)
        self.charge(parameters.reorder_s + parameters.reorder_message_s * messages)
        chosen = first_to_run(
            erts, [p.level for p in candidates], [p.oldest_s for p in candidates], [p.order for p in candidates],
            len(candidates),
        )  # fmt: skip
        return candidates[chosen]

    def oldest_pending(self) -> Process | None:
        candidates = [process for process in self.ready if process.pending]
        return min(candidates, key=lambda p: (-p.level, p.oldest_s, p.order), default=None)

    def boost(self, process: Process | None) -> None:
        if process is not None:
            if process.level < HIGHEST:
                self.enqueue(process, HIGHEST)
            self.reschedule(process)

    def reschedule(self, process: Process) -> None:
        """Let a process that became ready, or rose, run at once where it should."""
        if self.state == "idle":
            self.disturb()
            return
        if self.current is None:
            return
        better = process.level > self.current.level
        scheme, both = self.machine.scheme, process.level == self.current.level == HIGHEST
        if not better and scheme.reorder and scheme.arrival and both and self.current.pending and process.pending:
            better = self.ert(process) + self.machine.parameters.switch_s < self.ert(self.current)
        if better:
            self.preempt()

    def preempt(self) -> None:
        if self.state == "switching":
            self.again = True
            return
        assert self.current is not None
        self.disturb()
        self.put_back(self.current)
        self.leave()

    def settle_woken(self) -> None:
        window = int(self.env.now / self.machine.parameters.wake_window_s)
        for _ in range(window - self.window):
            self.woken_mean += (self.woken - self.woken_mean) / 8
            self.woken = 0
        self.window = window

    def load(self, sender: Process) -> tuple[float, float]:
        """Return (TS, ENP) as they are sent with a message."""
        head, others = self.head(), [process for process in self.processes if process is not sender]
        self.settle_woken()
        enp = expected_processes(
            [bool(process.pending) for process in others],
            [process.state == "ready" and head is not None and process.level == head.level for process in others],
            len(others),
            self.woken_mean,
            self.machine.parameters.is_sum,
        )
        return self.ts_s, enp


class Reference:
    """The machine with its jobs. ends_s: by job. trace: (time, node, job, rank) of the begin of each time slice."""

    def __init__(self, parameters: Parameters, scheme: Scheme, jobs: Jobs) -> None:
        self.parameters, self.scheme, self.jobs = parameters, scheme, jobs
        self.env = simpy.Environment()
        self.trace: list[tuple[float, int, int, int]] = []
        self.nodes = [Node(self, number) for number in range(parameters.nodes)]
        self.processes: dict[tuple[int, int], Process] = {}
        self.waiting: list[int] = []
        self.left = jobs.size.tolist()
        self.ends_s: dict[int, float] = {}
        self.messages = 0
        self.done = self.env.event()

    def run(self) -> None:
        self.env.process(self.arrivals())
        self.env.process(self.every(TICK_S, self.tick))
        if self.scheme.arrival is Arrival.PERIODIC_BOOST:
            self.env.process(self.every(self.parameters.boost_period_s, self.scan))
        self.env.run(self.done)

    # Jobs

    def arrivals(self) -> Steps:
        for job, arrival_s in enumerate(self.jobs.arrival_s.tolist()):
            yield self.env.timeout(arrival_s - self.env.now)
            self.waiting.append(job)
            self.start_jobs()

    def start_jobs(self) -> None:
        while self.waiting:
            job = self.waiting[0]
            size = int(self.jobs.size[job])
            open_nodes = [node for node in self.nodes if len(node.processes) < self.parameters.mpl]
            if len(open_nodes) < size:
                return
            self.waiting.pop(0)
            chosen = sorted(self.nodes, key=lambda node: (len(node.processes), node.number))[:size]
            started = [self.place(job, rank, node) for rank, node in enumerate(chosen)]
            for process in started:
                process.node.reschedule(process)

    def place(self, job: int, rank: int, node: Node) -> Process:
        size = int(self.jobs.size[job])
        around = {(rank + 1) % size, (rank - 1) % size} if self.jobs.ring else set(range(size))
        process = Process(job, rank, node, sorted(around - {rank}))
        process.need_s = self.jobs.compute_s * self.factor(process, 0)
        node.places[node.places.index(None)] = process
        node.enqueue(process, FIRST_LEVEL)
        self.processes[job, rank] = process
        return process

    def factor(self, process: Process, kind: int) -> float:
        at = int(self.jobs.offset[process.job, process.rank]) + self.jobs.stride * process.loop + kind
        return float(self.jobs.factors[at % len(self.jobs.factors)])

    # What processes do

    def receive(self, process: Process) -> None:
        process.activity, process.taking, process.pending = "receive", process.pending, []
        process.need_s = len(process.taking) * self.parameters.host_s

    def next_activity(self, process: Process) -> None:
        """Let a running process do what follows the activity that it has finished."""
        node, wait = process.node, self.scheme.wait
        if process.activity == "compute":
            process.activity, process.need_s = "send", len(process.peers) * self.parameters.host_s
            if self.jobs.io_s > 0.0:
                process.state = "io"
                self.env.process(self.io(process))
                node.leave()
        elif process.activity == "spin" and wait is Wait.SPIN_BLOCK:
            process.state = "message"
            node.leave()
        elif process.activity == "spin":
            process.need_s = self.parameters.spin_s
            if node.ready:
                node.enqueue(process, min(other.level for other in node.ready))
                node.leave()
        else:
            if process.activity == "send":
                load = node.load(process) if self.scheme.reorder else (0.0, 0.0)
                self.env.process(self.exchange(process, process.loop, load))
            for loop, _, _ in process.taking:
                process.received[loop] = process.received.get(loop, 0) + 1
            process.taking = []
            self.await_messages(process)

    def await_messages(self, process: Process) -> None:
        node, wait = process.node, self.scheme.wait
        if process.received.get(process.loop, 0) == len(process.peers):
            process.loop += 1
            if process.loop == self.jobs.loops[process.job]:
                self.finish(process)
                return
            process.activity = "compute"
            process.need_s = self.jobs.compute_s * self.factor(process, 0)
        elif process.pending:
            self.receive(process)
        else:
            process.activity = "spin"
            process.need_s = self.parameters.spin_s if wait >= Wait.SPIN_BLOCK else math.inf
            if wait is Wait.BLOCK:
                process.state = "message"
                node.leave()

    def finish(self, process: Process) -> None:
        node = process.node
        node.places[node.places.index(process)] = None
        self.left[process.job] -= 1
        node.leave()
        if not self.left[process.job]:
            self.ends_s[process.job] = self.env.now
            if len(self.ends_s) == len(self.left):
                self.done.succeed()
        self.start_jobs()

    def io(self, process: Process) -> Steps:
        yield self.env.timeout(self.jobs.io_s * self.factor(process, 1))
        process.node.charge(self.parameters.interrupt_s)
        process.node.enqueue(process, int(SLEPT[process.level]))
        process.node.reschedule(process)

    # Messages

    def exchange(self, sender: Process, loop: int, load: tuple[float, float]) -> Steps:
        yield self.env.timeout(float(self.jobs.delay_s[sender.job]))
        for rank in sender.peers:
            self.deliver(self.processes[sender.job, rank], sender.node.number, loop, load)

    def deliver(self, process: Process, sender: int, loop: int, load: tuple[float, float]) -> None:
        node, scheme = process.node, self.scheme
        self.messages += 1
        process.pending.append((loop, sender, self.env.now))
        if scheme.reorder:
            node.heard_ts_s[sender], process.enp[sender] = load
            node.heard_s[sender] = process.heard_s[sender] = self.env.now
            node.charge(self.parameters.load_update_s)
        if process.state == "running":
            if process.activity == "spin" and node.state in {"busy", "busy-overhead"}:
                node.disturb()
                self.receive(process)
            return
        if process.state == "message":
            node.charge(self.parameters.interrupt_s)
            node.settle_woken()
            node.woken += 1
            node.enqueue(process, int(SLEPT[process.level]))
            if scheme.arrival is not Arrival.INTERRUPT_BOOST:
                node.reschedule(process)
        elif scheme.arrival is Arrival.INTERRUPT_BOOST:
            node.charge(self.parameters.interrupt_s)
        if scheme.arrival is Arrival.INTERRUPT_BOOST and process.state == "ready":
            node.boost(node.first_pending() if scheme.reorder else process)

    # Timers

    def every(self, period_s: float, action: object) -> Steps:
        for count in _count_from_1():
            yield self.env.timeout(count * period_s - self.env.now)
            action()  # type: ignore[operator] # a bound method

    def tick(self) -> None:
        for node in self.nodes:
            for process in node.ready:
                process.waited += 1
            raised = [process for process in node.ready if process.waited > MAX_WAIT[process.level]]
            for process in raised:
                node.enqueue(process, int(WAITED[process.level]))
            head = node.head()
            if raised and head is not None:
                node.reschedule(head)

    def scan(self) -> None:
        for node in self.nodes:
            if node.processes:
                node.charge(self.parameters.interrupt_s)
                node.boost(node.first_pending() if self.scheme.reorder else node.oldest_pending())


def _count_from_1() -> Iterator[int]:
    count = 1
    while True:
        yield count
        count += 1
