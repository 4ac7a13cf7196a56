"""One simulated node: its machine, its interrupts where people moved them, and the samples not yet acknowledged."""

import errno
from collections import Counter, deque

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from coresteer_agent.runtime.nic_learning import NicLearner
from coresteer_agent.simulate.classes import SimulatedClasses
from coresteer_agent.simulate.coalescing import driver_response
from coresteer_agent.simulate.load import (
    VARIANTS,
    Interval,
    busiest_tasks,
    dying,
    level_at,
    link_is_down,
    make_interval,
    temper_of,
)
from coresteer_agent.simulate.machine import Ailment, Machine, labels_of
from coresteer_agent.simulate.net_tasks import net_tasks
from coresteer_core.cpuset import format_cpu_list, parse_cpu_list
from coresteer_core.node.inventory import Inventory, Netdev
from coresteer_core.node.load import load_of
from coresteer_core.node.nic import Learned
from coresteer_core.node.nic_model import TimerParams
from coresteer_core.node.rates import Rates
from coresteer_core.node.receive import receive_irqs, wait_of
from coresteer_core.node.service_classes import ClassFigures
from coresteer_core.node.tasks import NetTask, Task
from coresteer_core.node.view import View
from coresteer_core.policies.base import STEP_S
from coresteer_core.policies.coalescing.effective import Interrupts, WriteAttempt, receive_interrupts
from coresteer_core.policies.engine_state import PolicyInForce
from coresteer_core.policies.service_class.policy import ServiceClasses, assign_classes
from coresteer_core.protocol import PROTOCOL, Hello
from coresteer_core.settings import Setting
from coresteer_core.settings.location import (
    CgroupLocation,
    IrqLocation,
    MachineLocation,
    ParamsLocation,
    QueueCpusLocation,
    TaskLocation,
)

_REPLAY_S = 300
_AGENT_RSS_BYTES = 26 * 1024 * 1024
_AGENT_CPU_S = 0.006
_CACHED_INTERVALS = 20_000
_CACHED_CLASSES = 256
_CLASSES_VARIANTS = 4
_KERNEL = "6.12.0-simulated"


class Made:
    """Intervals and tasks by machine and load; nodes of the same kind share them. duration_s: of an interval."""

    def __init__(self, duration_s: float) -> None:
        self.duration_s = duration_s
        self._intervals: dict[tuple[str, str, tuple[int, ...], TimerParams | None, int, int], Interval] = {}
        self._interrupts: dict[tuple[str, bytes | None, bytes | None], Interrupts] = {}
        self._tasks: dict[tuple[str, int, int], list[Task]] = {}
        self._classes: dict[tuple[bytes, int, int], SimulatedClasses] = {}
        self._net_tasks: dict[tuple[object, ...], list[NetTask]] = {}

    def interval(
        self, machine: Machine, placement: tuple[int, ...], wait: TimerParams | None, level: int, variant: int
    ) -> Interval:
        """Made at the first use. Starts over when there are too many, as after many moved interrupts."""
        key = (machine.seed, machine.ailment, placement, wait, level, variant)
        if (interval := self._intervals.get(key)) is None:
            if len(self._intervals) >= _CACHED_INTERVALS:
                self._intervals.clear()
            interval = self._intervals[key] = make_interval(
                machine, placement, level, variant, self.duration_s, wait=wait
            )
        return interval

    def interrupts(self, machine: Machine, rates: Rates) -> Interrupts:
        """Those of receiving queues, counted once for an interval that nodes share."""
        key = (machine.seed, rates.irq_ids, rates.irq_counts)
        if (found := self._interrupts.get(key)) is None:
            if len(self._interrupts) >= _CACHED_INTERVALS:
                self._interrupts.clear()
            found = self._interrupts[key] = receive_interrupts(rates, machine.inventory)
        return found

    def tasks(self, machine: Machine, level: int) -> list[Task]:
        """Made at the first use."""
        key = (machine.seed, len(machine.topology.cpus), level)
        if (tasks := self._tasks.get(key)) is None:
            tasks = self._tasks[key] = busiest_tasks(machine, level)
        return tasks

    def net_tasks(
        self,
        machine: Machine,
        inventory: Inventory,
        affinities: dict[int, str],
        level: int,
        params: dict[int, dict[str, str]],
    ) -> list[NetTask]:
        """Made at the first use, as intervals are."""
        values = sorted((pid, *item) for pid, named in params.items() for item in named.items())
        placed = (_placement_of(inventory), *sorted(affinities.items()), None, *values)
        key = (machine.seed, machine.ailment, len(machine.topology.cpus), level, placed)
        if (tasks := self._net_tasks.get(key)) is None:
            if len(self._net_tasks) >= _CACHED_INTERVALS:
                self._net_tasks.clear()
            tasks = self._net_tasks[key] = net_tasks(machine, inventory, affinities, level, params=params)
        return tasks

    def classes(self, spec: ServiceClasses, variant: int, cpus: int, now_s: float) -> list[ClassFigures]:
        """What the classes of a policy get; nodes of the same variant share it. now_s: Unix time, it grows."""
        key = (msgspec.json.encode(spec), variant, cpus)
        if (classes := self._classes.get(key)) is None:
            if len(self._classes) >= _CACHED_CLASSES:
                self._classes.clear()
            classes = self._classes[key] = SimulatedClasses(spec, variant, cpus=cpus)
        return classes.figures(now_s)


class UnsupportedError(Exception):
    """The simulation has no such setting."""


class Unacked(Struct):
    """A sample on its way. sent_s: monotonic time of its first sending, None before that."""

    rates: Rates
    sent_s: float | None = None


class SimulatedNode:
    """What an agent knows and does between its machine and its link, without either. Times are the caller's."""

    def __init__(
        self, *, name: str, key: str, index: int, seed: int, machine: Machine, made: Made, stream: str
    ) -> None:
        self.name = name
        self.key = key
        self.machine = machine
        self.inventory = machine.inventory
        self.overflowed = 0
        self.seq = 0
        self.unacked: deque[Unacked] = deque()
        self.affinities: dict[int, str] = {}
        self.task_params: dict[int, dict[str, str]] = {}
        self.weights: dict[tuple[str, str], str] = {}
        self._recent: deque[Rates] = deque(maxlen=max(1, round(STEP_S / made.duration_s)))
        self._level = 0
        self._index = index
        self._temper = temper_of(seed, index)
        self._made = made
        self._stream = stream
        self._placement = _placement_of(self.inventory)
        self._wait = self._first_nic_waits()
        self._learned: Learned | None = None
        self._nics = NicLearner(_KERNEL, self._learn, count_interrupts=lambda rates, _: made.interrupts(machine, rates))
        self._max_unacked = max(60, int(_REPLAY_S / made.duration_s))
        self._first_s: float | None = None

    def hello(self) -> Hello:
        """The first message of each connection."""
        return Hello(
            protocol=PROTOCOL,
            agent_version="0.1.0",
            hostname=self.name,
            kernel=_KERNEL,
            machine_id=f"{self._index:032x}",
            boot_id=self._stream,
            stream=self._stream,
            first_seq=self.unacked[0].rates.seq if self.unacked else self.seq + 1,
            interval_s=self._made.duration_s,
            mode="control",
            simulated=True,
            labels=labels_of(self._index),
        )

    def sample(self, now_s: float) -> Rates:
        """The next interval, ending at a Unix time, kept until it is acknowledged or too many wait."""
        if self._first_s is None:
            self._first_s = now_s
        self.seq += 1
        self._level = level = level_at(now_s, self._temper, self.machine.ailment)
        variant = (self.seq * 5 + self._index) % VARIANTS
        interval = self._made.interval(self.machine, self._placement, self._wait, level, variant)
        netdevs = interval.netdevs
        if self.machine.ailment is Ailment.DYING_NIC:
            sick = dying(netdevs[0], now_s - self._first_s, self._made.duration_s)
            netdevs = [sick, *netdevs[1:]]
        rates = Rates(
            seq=self.seq,
            time_ms=int(now_s * 1000),
            duration_s=self._made.duration_s,
            cpus=len(self.machine.topology.cpus),
            shares=interval.shares,
            counts=interval.counts,
            irq_ids=interval.irq_ids,
            irq_cpus=interval.irq_cpus,
            irq_counts=interval.irq_counts,
            netdevs=netdevs,
            tcp=interval.tcp,
            agent_cpu_s=_AGENT_CPU_S,
            agent_rss_bytes=_AGENT_RSS_BYTES,
            counters=interval.counters,
        )
        if len(self.unacked) == self._max_unacked:
            self.unacked.popleft()
            self.overflowed += 1
        self.unacked.append(Unacked(rates))
        self._recent.append(rates)
        return rates

    def link_flapped(self, now_s: float) -> bool:
        """Whether a dying NIC's link has just gone down or up; the inventory then says so."""
        if self.machine.ailment is not Ailment.DYING_NIC or self._first_s is None:
            return False
        up = not link_is_down(now_s - self._first_s)
        sick, *others = self.inventory.netdevs
        if sick.up == up:
            return False
        self.inventory = replace(self.inventory, netdevs=[replace(sick, up=up), *others])
        return True

    def tasks(self, now_s: float) -> list[Task]:
        """The busiest processes."""
        return self._made.tasks(self.machine, level_at(now_s, self._temper, self.machine.ailment))

    def net_tasks(self) -> list[NetTask]:
        """Who talks over the network at the load of the last interval."""
        return self._made.net_tasks(self.machine, self.inventory, self.affinities, self._level, self.task_params)

    def cgroups(self) -> dict[str, dict[str, str]]:
        """The weights of its programs' cgroups."""
        paths = {task.cgroup.lstrip("/") for task in self.net_tasks() if task.cgroup is not None}
        usual = {path: {"cpu.weight": "100", "io.weight": "100"} for path in paths}
        return {
            path: {name: self.weights.get((path, name), value) for name, value in values.items()}
            for path, values in usual.items()
        }

    def classes(self, policy: PolicyInForce, now_s: float) -> list[ClassFigures]:
        """What the classes of a policy in force get. now_s: Unix time."""
        if not isinstance(policy.spec, ServiceClasses):
            return []
        cpus = len(self.machine.topology.online())
        tasks = assign_classes(self.view(now_s), policy.spec, policy.scope).tasks
        told = self._made.classes(policy.spec, self._index % _CLASSES_VARIANTS, cpus, now_s)
        return [replace(figures, tasks=len(tasks[figures.name])) for figures in told]

    def view(self, time_s: float) -> View:
        """What policies see of it. time_s: monotonic."""
        load = load_of(self._recent)
        return View(
            self.machine.topology, self.inventory, load, self.net_tasks(), time_s, self.learned, cgroups=self.cgroups()
        )

    def receiving_cpus(self) -> dict[int, int]:
        """How many receive queues of the first NIC interrupt each CPU."""
        receiving = receive_irqs(self.inventory, self.inventory.netdevs[0])
        rows = zip(self._placement, self.inventory.irqs, strict=True)
        return Counter(cpu for cpu, row in rows if row.irq in receiving)

    @property
    def first_nic_waits(self) -> TimerParams | None:
        """What each of its receive queues waits for; None where the NIC sets its own pace."""
        return self._wait

    @property
    def packets_per_s(self) -> float:
        """What the first NIC received in the last interval; 0 before it."""
        if not self._recent or not self._recent[-1].netdevs:
            return 0.0
        return self._recent[-1].netdevs[0].rx_packets / self._recent[-1].duration_s

    @property
    def learned(self) -> Learned:
        """What it has learned of its NICs."""
        return self._nics.learned

    def learn(self, now_s: float) -> Learned | None:
        """Looks at the last interval; returns what is to be told, if anything. now_s: monotonic."""
        self._nics.step(list(self._recent)[-1:], self.inventory, now_s)
        learned, self._learned = self._learned, None
        return learned

    def _learn(self, learned: Learned) -> None:
        self._learned = learned

    def acknowledged(self, seq: int) -> list[Unacked]:
        """Forgets and returns the samples up to seq."""
        done = []
        while self.unacked and self.unacked[0].rates.seq <= seq:
            done.append(self.unacked.popleft())
        return done

    def write(self, setting: Setting, value: str) -> str:
        """Set a setting and return the value that reads back.

        Raises OSError where a driver refuses it, UnsupportedError where the simulation has no such setting.
        """
        match setting.location:
            case IrqLocation(irq):
                return self.deliver(irq, value)
            case TaskLocation(pid, "affinity"):
                self.affinities[pid] = value
            case TaskLocation(pid, name):
                self.task_params.setdefault(pid, {})[name] = value
            case CgroupLocation(path, name):
                self.weights[path, name] = value
            case ParamsLocation(netdev, None, name):
                return self.set_param(setting, netdev, name, value)
            case QueueCpusLocation(netdev, queue_name) if queue_name.startswith("rx-"):
                self._set_rps(netdev, queue_name, format_cpu_list(setting.cpus(value)))
            case MachineLocation(key):
                self.inventory = replace(self.inventory, settings=self.inventory.settings | {key: value})
            case _:
                raise UnsupportedError
        return value

    def deliver(self, irq: int, cpus: str) -> str:
        """Gives an interrupt a new affinity list and returns what reads back. Its load follows it."""
        allowed = parse_cpu_list(cpus) & self.machine.topology.online()
        taken = [cpu for cpu, row in zip(self._placement, self.inventory.irqs, strict=True) if row.irq != irq]
        # the kernel gives the vector to the allowed CPU that has the fewest
        chosen = min(sorted(allowed), key=taken.count)
        rows = [
            replace(row, requested=cpus, effective=str(chosen)) if row.irq == irq else row
            for row in self.inventory.irqs
        ]
        self.inventory = replace(self.inventory, irqs=rows)
        self._placement = _placement_of(self.inventory)
        return cpus

    def set_param(self, setting: Setting, netdev: str, name: str, value: str) -> str:
        """Set a NIC's parameter and return the value that reads back. Raises OSError where the driver refuses it."""
        was = self._netdev(netdev).params[name]
        try:
            stands = driver_response(self._netdev(netdev).driver, name, value, was)
        except OSError as error:
            words = f"The kernel's answer was: {error.strerror}."
            self._nics.record_attempt(WriteAttempt(setting, value, was, None, words, error.errno == errno.EOPNOTSUPP))
            raise
        self._nics.record_attempt(WriteAttempt(setting, value, was, stands))
        self._renew(netdev, params={**self._netdev(netdev).params, name: stands})
        self._wait = self._first_nic_waits()
        return stands

    def _set_rps(self, netdev: str, queue_name: str, cpus: str) -> None:
        """Set the RPS CPUs of a receive queue; the simulated load does not follow them."""
        queues = self._netdev(netdev).queues
        self._renew(netdev, queues=[replace(q, rps=cpus) if q.name == queue_name else q for q in queues])

    def _renew(self, netdev: str, **changes: object) -> None:
        netdevs = [replace(n, **changes) if n.name == netdev else n for n in self.inventory.netdevs]
        self.inventory = replace(self.inventory, netdevs=netdevs)

    def _first_nic_waits(self) -> TimerParams | None:
        """What each receiving queue of the first NIC waits for; None where that one sets its own pace."""
        nic = self.inventory.netdevs[0]
        return wait_of(nic.driver, nic.params)

    def _netdev(self, name: str) -> Netdev:
        return next(netdev for netdev in self.inventory.netdevs if netdev.name == name)


def _placement_of(inventory: Inventory) -> tuple[int, ...]:
    return tuple(min(parse_cpu_list(irq.effective or "0")) for irq in inventory.irqs)
