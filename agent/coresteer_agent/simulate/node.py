"""Simulated node: its machine, present settings and unacknowledged samples."""

import errno
import os
from collections import Counter, deque

from msgspec import Struct
from msgspec.structs import replace

from coresteer_agent.runtime.nic_learning import NicLearner
from coresteer_agent.simulate.cache import SimulationCache, irq_target_cpus
from coresteer_agent.simulate.coalescing import driver_response
from coresteer_agent.simulate.cpusets import cpusets, shares_after
from coresteer_agent.simulate.load import (
    NOISE_VARIANTS,
    failing_nic_counts,
    link_is_down,
    load_level,
    load_profile,
)
from coresteer_agent.simulate.machine import Fault, Machine, labels_of
from coresteer_agent.simulate.numa_tasks import numa_state
from coresteer_agent.version import VERSION
from coresteer_core.cpuset import format_cpu_list, parse_cpu_list
from coresteer_core.node.cpusets import Cpuset
from coresteer_core.node.inventory import Netdev
from coresteer_core.node.load import mean_load
from coresteer_core.node.locality import TrafficDistance, bytes_by_distance, distance_counters
from coresteer_core.node.nic import NicKnowledge
from coresteer_core.node.nic_model import TimerParams
from coresteer_core.node.numa import NumaState
from coresteer_core.node.rates import Rates
from coresteer_core.node.receive import receive_irqs, timer_params
from coresteer_core.node.service_classes import ClassFigures
from coresteer_core.node.tasks import NetTask, Task
from coresteer_core.node.view import View
from coresteer_core.policies.base import ROUND_PERIOD_S
from coresteer_core.policies.coalescing.effective import WriteAttempt
from coresteer_core.policies.engine_state import PolicyInForce
from coresteer_core.policies.service_class.policy import ServiceClasses, assign_classes
from coresteer_core.protocol import FEATURES, PROTOCOL_VERSION, Hello
from coresteer_core.settings import Setting
from coresteer_core.settings.flow_rule import EMPTY
from coresteer_core.settings.kernel import kernel_controllers
from coresteer_core.settings.location import (
    CgroupLocation,
    FlowRuleLocation,
    IrqLocation,
    MachineLocation,
    ParamsLocation,
    QueueCpusLocation,
    TaskLocation,
)
from coresteer_core.settings.memory_nodes import target_shares
from coresteer_core.settings.steered_flows import rfs_queues, steer_flows, with_rules

_BUFFER_S = 300
_AGENT_RSS_BYTES = 26 * 1024 * 1024
_AGENT_CPU_S = 0.006
_CLASSES_VARIANTS = 4
_KERNEL = "6.12.0-simulated"


class UnacknowledgedSample(Struct):
    """A sample that the backend has not acknowledged. sent_s: monotonic time of its first sending, None before."""

    rates: Rates
    sent_s: float | None = None


class SimulatedNode:
    """State of a simulated node: machine, settings and unacknowledged samples. The caller passes all times.

    cpu_factor: by which planted effects multiply its CPU time; set it when the policies in force change.
    """

    def __init__(
        self, *, name: str, key: str, index: int, seed: int, machine: Machine, cache: SimulationCache, stream: str
    ) -> None:
        self.name = name
        self.key = key
        self.machine = machine
        self.inventory = machine.inventory
        self.overflowed = 0
        self.seq = 0
        self.unacknowledged: deque[UnacknowledgedSample] = deque()
        self.cpu_factor = 1.0
        self.affinities: dict[int, str] = {}
        self.task_params: dict[int, dict[str, str]] = {}
        self.cgroup_values: dict[tuple[str, str], str] = {}
        self._recent: deque[Rates] = deque(maxlen=max(1, round(ROUND_PERIOD_S / cache.duration_s)))
        self.memory_shares: dict[int, dict[int, float]] = {}
        self._level = 0
        self._index = index
        self._profile = load_profile(seed, index)
        self._cache = cache
        self._stream = stream
        self._placement = irq_target_cpus(self.inventory)
        self._coalescing = self._first_nic_params()
        self._learned: NicKnowledge | None = None
        self._nics = NicLearner(
            _KERNEL, self._learn, count_interrupts=lambda rates, _: cache.receive_interrupts(machine, rates)
        )
        self._max_unacknowledged = max(60, int(_BUFFER_S / cache.duration_s))
        self._first_s: float | None = None
        self._distance: TrafficDistance | None = None

    def hello(self) -> Hello:
        """Return the Hello message that opens each connection."""
        return Hello(
            protocol=PROTOCOL_VERSION,
            agent_version=VERSION,
            hostname=self.name,
            kernel=_KERNEL,
            machine_id=f"{self._index:032x}",
            boot_id=self._stream,
            stream=self._stream,
            first_seq=self.unacknowledged[0].rates.seq if self.unacknowledged else self.seq + 1,
            interval_s=self._cache.duration_s,
            mode="control",
            simulated=True,
            obeys_stops=True,
            features=list(FEATURES),
            labels=labels_of(self._index),
        )

    def sample(self, now_s: float) -> Rates:
        """Return the rates of the next interval, which ends at now_s (Unix time), and buffer them until acknowledged.

        The oldest are dropped when the buffer is full.
        """
        if self._first_s is None:
            self._first_s = now_s
        self.seq += 1
        self._level = load_level(now_s, self._profile, self.machine.fault)
        if self._distance is None or self.seq % (self._recent.maxlen or 1) == 0:
            self._distance = bytes_by_distance(self.net_tasks(), self.machine.topology, self.inventory, sent=False)
        rates = self.rates_at(now_s, (self.seq * 5 + self._index) % NOISE_VARIANTS)
        if len(self.unacknowledged) == self._max_unacknowledged:
            self.unacknowledged.popleft()
            self.overflowed += 1
        self.unacknowledged.append(UnacknowledgedSample(rates))
        self._recent.append(rates)
        return rates

    def rates_at(self, now_s: float, variant: int) -> Rates:
        """Return an interval's rates with the present settings and load. variant: of the noise, below NOISE_VARIANTS.

        now_s: Unix time of the interval's end.
        """
        interval = self._cache.interval(
            self.machine, self._placement, self._coalescing, self._level, variant, cpu_factor=self.cpu_factor
        )
        netdevs = interval.netdevs
        if self.machine.fault is Fault.FAILING_NIC and self._first_s is not None:
            failing = failing_nic_counts(netdevs[0], now_s - self._first_s, self._cache.duration_s)
            netdevs = [failing, *netdevs[1:]]
        return Rates(
            seq=self.seq,
            time_ms=int(now_s * 1000),
            duration_s=self._cache.duration_s,
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
            counters=interval.counters | self._distance_counters(),
        )

    def _distance_counters(self) -> dict[str, int]:
        return {} if self._distance is None else distance_counters(self._distance, self._cache.duration_s)

    def update_link_state(self, now_s: float) -> bool:
        """Update the link state of a failing NIC in the inventory; return whether it changed. now_s: Unix time."""
        if self.machine.fault is not Fault.FAILING_NIC or self._first_s is None:
            return False
        up = not link_is_down(now_s - self._first_s)
        failing, *others = self.inventory.netdevs
        if failing.up == up:
            return False
        self.inventory = replace(self.inventory, netdevs=[replace(failing, up=up), *others])
        return True

    def tasks(self, now_s: float) -> list[Task]:
        """Return the processes with the most CPU time. now_s: Unix time."""
        return self._cache.tasks(self.machine, load_level(now_s, self._profile, self.machine.fault))

    def net_tasks(self) -> list[NetTask]:
        """Return the processes that use the network, at the load of the last interval."""
        tasks = self._cache.net_tasks(self.machine, self.inventory, self.affinities, self._level, self.task_params)
        first = self.inventory.netdevs[0]
        if first.flow_rules == self.machine.nic.flow_rules and not rfs_queues(self.inventory, first):
            return tasks
        return steer_flows(tasks, self.inventory, {first.name: first})

    def numa(self) -> NumaState | None:
        """Return the memory of NUMA nodes and processes at the load of the last interval; None with a single node."""
        return numa_state(
            self.machine,
            self._cache.tasks(self.machine, self._level),
            self.affinities,
            self.memory_shares,
            self.cgroup_values,
        )

    def cpusets(self, numa: NumaState | None) -> dict[str, Cpuset]:
        """Return the CPUs and NUMA nodes of the cgroups of its programs, by cgroup. numa: from numa()."""
        tasks = [] if numa is None else numa.tasks
        paths = [task.cgroup for task in tasks] + [task.cgroup for task in self.net_tasks()]
        groups = [path.lstrip("/") for path in paths if path is not None]
        return cpusets(self.machine.topology, groups, tasks, self.cgroup_values)

    def cgroups(self) -> dict[str, dict[str, str]]:
        """Return the weights of the cgroups of its programs, by cgroup and weight name."""
        paths = {task.cgroup.lstrip("/") for task in self.net_tasks() if task.cgroup is not None}
        defaults = {path: {"cpu.weight": "100", "io.weight": "100"} for path in paths}
        return {
            path: {name: self.cgroup_values.get((path, name), value) for name, value in values.items()}
            for path, values in defaults.items()
        }

    def class_figures(self, policy: PolicyInForce, now_s: float) -> list[ClassFigures]:
        """Return the attainment of the service classes of a policy in force. now_s: Unix time."""
        if not isinstance(policy.spec, ServiceClasses):
            return []
        cpus = len(self.machine.topology.online())
        tasks = assign_classes(self.view(now_s), policy.spec, policy.scope).tasks
        attainment = self._cache.class_figures(policy.spec, self._index % _CLASSES_VARIANTS, cpus, now_s)
        return [replace(figures, tasks=len(tasks[figures.name])) for figures in attainment]

    def view(self, time_s: float) -> View:
        """Return the node's View for policies and the guard. time_s: monotonic."""
        load, numa = mean_load(self._recent), self.numa()
        return View(
            self.machine.topology,
            self.inventory,
            load,
            self.net_tasks(),
            time_s,
            self.learned,
            cgroups=self.cgroups(),
            numa=numa,
            cpusets=self.cpusets(numa),
        )

    def rx_irqs_by_cpu(self) -> dict[int, int]:
        """Return the number of the first NIC's receive queues by the CPU that they interrupt."""
        receiving = receive_irqs(self.inventory, self.inventory.netdevs[0])
        rows = zip(self._placement, self.inventory.irqs, strict=True)
        return Counter(cpu for cpu, row in rows if row.irq in receiving)

    @property
    def first_nic_coalescing(self) -> TimerParams | None:
        """Return the coalescing of the first NIC's receive queues, None if it is adaptive."""
        return self._coalescing

    @property
    def interval_s(self) -> float:
        """Return the seconds between two samples."""
        return self._cache.duration_s

    @property
    def learned(self) -> NicKnowledge:
        """Return drivers' responses and measurements learned about the node's NICs."""
        return self._nics.learned

    def learn(self, now_s: float) -> NicKnowledge | None:
        """Learn about NICs from the last interval; return new results to report, None without any. now_s: monotonic."""
        self._nics.step(list(self._recent)[-1:], self.inventory, now_s)
        learned, self._learned = self._learned, None
        return learned

    def _learn(self, learned: NicKnowledge) -> None:
        self._learned = learned

    def acknowledge(self, seq: int) -> list[UnacknowledgedSample]:
        """Remove samples up to number seq, which the backend has stored, from the buffer and return them."""
        done = []
        while self.unacknowledged and self.unacknowledged[0].rates.seq <= seq:
            done.append(self.unacknowledged.popleft())
        return done

    def write(self, setting: Setting, value: str) -> None:
        """Write a simulated setting. Raises OSError if a driver refuses it; EOPNOTSUPP: it is not simulated."""
        match setting.location:
            case IrqLocation(irq):
                self.set_irq_affinity(irq, value)
            case TaskLocation(pid, "affinity"):
                self.affinities[pid] = value
            case TaskLocation(pid, "memory-nodes"):
                self.memory_shares[pid] = target_shares(value)
            case TaskLocation(pid, name):
                self.task_params.setdefault(pid, {})[name] = value
            case CgroupLocation(path, name):
                self._set_cgroup_value(path, name, value)
            case ParamsLocation(netdev, None, name):
                self._set_param(netdev, name, value)
            case ParamsLocation(netdev, queue_name, name) if queue_name is not None:
                self._set_queue_param(netdev, queue_name, name, value)
            case FlowRuleLocation(netdev, location):
                self._set_flow_rule(netdev, location, value)
            case QueueCpusLocation(netdev, queue_name) if queue_name.startswith("rx-"):
                self._set_rps(netdev, queue_name, format_cpu_list(setting.cpus(value)))
            case MachineLocation(key):
                settings = self.inventory.settings | {key: value}
                self.inventory = replace(self.inventory, settings=settings, controllers=kernel_controllers(settings))
            case _:
                raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    def _set_cgroup_value(self, path: str, name: str, value: str) -> None:
        """Set a value of a cgroup; with cpuset.mems, the memory of its processes moves."""
        numa, before = self.numa(), self.cgroup_values
        self.cgroup_values = {**before, (path, name): value}
        if name == "cpuset.mems" and numa is not None:
            nodes = [node.node for node in numa.nodes]
            self.memory_shares |= shares_after(nodes, numa.tasks, before, self.cgroup_values)

    def set_irq_affinity(self, irq: int, cpus: str) -> None:
        """Set the CPUs of an interrupt. The simulated load moves with it."""
        allowed = parse_cpu_list(cpus) & self.machine.topology.online()
        others = [cpu for cpu, row in zip(self._placement, self.inventory.irqs, strict=True) if row.irq != irq]
        # the kernel assigns the vector to the allowed CPU with the fewest
        chosen = min(sorted(allowed), key=others.count)
        rows = [
            replace(row, requested=cpus, effective=str(chosen)) if row.irq == irq else row
            for row in self.inventory.irqs
        ]
        self.inventory = replace(self.inventory, irqs=rows)
        self._placement = irq_target_cpus(self.inventory)

    def record_attempt(self, attempt: WriteAttempt) -> None:
        """Add a driver's response to a write to what the node learned about its NICs."""
        self._nics.record_attempt(attempt)

    def _set_param(self, netdev: str, name: str, value: str) -> None:
        """Set a NIC's parameter. Raises OSError if the simulated driver refuses the value."""
        nic = self._netdev(netdev)
        read_back = driver_response(nic.driver, name, value, nic.params[name])
        self._replace_netdev(netdev, params={**nic.params, name: read_back})
        self._coalescing = self._first_nic_params()

    def _set_queue_param(self, netdev: str, queue_name: str, name: str, value: str) -> None:
        queues = self._netdev(netdev).queues
        queues = [replace(q, params={**q.params, name: value}) if q.name == queue_name else q for q in queues]
        self._replace_netdev(netdev, queues=queues)

    def _set_flow_rule(self, netdev: str, location: int, value: str) -> None:
        """Insert a flow rule, or delete it. The flows that it matches follow it, the load of interrupts does not."""
        table = self._netdev(netdev).flow_rules
        if table is None or location >= table.size:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        self._replace_netdev(netdev, flow_rules=with_rules(table, {location: "" if value == EMPTY else value}))

    def _set_rps(self, netdev: str, queue_name: str, cpus: str) -> None:
        """Set the RPS CPUs of a receive queue; the simulated load does not follow them."""
        queues = self._netdev(netdev).queues
        self._replace_netdev(netdev, queues=[replace(q, rps=cpus) if q.name == queue_name else q for q in queues])

    def _replace_netdev(self, netdev: str, **changes: object) -> None:
        netdevs = [replace(n, **changes) if n.name == netdev else n for n in self.inventory.netdevs]
        self.inventory = replace(self.inventory, netdevs=netdevs)

    def _first_nic_params(self) -> TimerParams | None:
        """Return the coalescing parameters of the first NIC, None if its coalescing is adaptive."""
        nic = self.inventory.netdevs[0]
        return timer_params(nic.driver, nic.params)

    def _netdev(self, name: str) -> Netdev:
        return next(netdev for netdev in self.inventory.netdevs if netdev.name == name)
