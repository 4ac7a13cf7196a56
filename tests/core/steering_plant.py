"""A machine whose NICs spread flows by RSS table, flow rules and RFS, as input of ``flow-steering`` in a closed loop.

Plant.view() is what an agent would report of it; apply() carries out what a policy proposes.
"""

from collections.abc import Iterable, Mapping
from random import Random

from msgspec import Struct
from tests.support.views import make_netdev

from coresteer_core.cpuset import format_cpu_list, parse_cpu_list
from coresteer_core.node.distance import Smt, cpu_distances
from coresteer_core.node.inventory import FlowRule, FlowRuleTable, Inventory, Irq, Netdev, Queue
from coresteer_core.node.load import Load, NetdevLoad
from coresteer_core.node.tasks import MAX_HEAVY_FLOWS, HeavyFlow, NetTask, RxPlacement
from coresteer_core.node.topology import Topology
from coresteer_core.node.view import View
from coresteer_core.policies.base import ROUND_PERIOD_S
from coresteer_core.settings.netdev import RssTable

_POLL_S, _PROTOCOL_S, _COPY_S = 0.2e-9, 0.3e-9, 0.2e-9
"""CPU time for each received byte: to poll it, to process it, and to copy it to its process."""
_FAR_S = 0.03e-9
"""CPU time for each byte and unit of distance between the protocol work and the process."""


class Flow(Struct, frozen=True):
    """A flow of a process. hash: selects its RSS entry. unplaced: only its process's bytes are counted, as of UDP."""

    pid: int
    peer_port: int
    rx_bytes_per_s: float
    hash: int
    netdev: str = "eth0"
    protocol: str = "tcp"
    unplaced: bool = False


class Nic(Struct):
    """A NIC: CPU of each queue's interrupt, RSS table, and slots for rules by location (None: it has no rules).

    foreign: locations of rules that are not Coresteer's. refused: what the rules contain that its driver refuses.
    opaque: while RFS is on, nothing tells at which queue a flow arrives (accelerated RFS). bond: the bond that it is
    part of, to which sockets belong. resetting: it has no interrupts for now, and its
    rules cannot be read.
    """

    name: str
    irq_cpus: list[int]
    table: list[int]
    slots: int | None = None
    rules: dict[int, str] = {}
    foreign: frozenset[int] = frozenset()
    flow_cnt: dict[int, int] = {}
    rss_writable: bool = True
    first_irq: int = 40
    refused: str | None = None
    opaque: bool = False
    bond: str | None = None
    resetting: bool = False

    def reset(self, irq_cpus: list[int] | None = None) -> None:
        """What a driver reset leaves: the default table, no rules. irq_cpus: of its queues, whose number may change."""
        self.irq_cpus = irq_cpus or self.irq_cpus
        queues = len(self.irq_cpus)
        self.table = [n % queues for n in range(len(self.table))]
        self.rules, self.foreign = {}, frozenset()
        self.flow_cnt = {queue: count for queue, count in self.flow_cnt.items() if queue < queues}


class Process(Struct):
    """A process. cpu: where it runs."""

    pid: int
    cpu: int
    affinity: str
    cpu_share: float = 0.1
    threads: int = 1
    name: str = "nginx"


class Plant:
    """The machine. rfs_s: CPU time for each byte that RFS passes on to another CPU."""

    def __init__(self, topology: Topology, nics: list[Nic], processes: list[Process], flows: list[Flow]) -> None:
        self.topology, self.nics, self.processes, self.flows = topology, nics, processes, flows
        self.entries = 0
        self.rfs_s = 0.0
        self.time_s = 1000.0
        self.written: list[str] = []
        self.moved: dict[Flow, list[float]] = {}
        """When each flow changed its queue."""
        self._by_port: dict[str, tuple[dict[int, str] | None, dict[tuple[str, str], int]]] = {}
        self._queue_of = {flow: self.queue(flow)[0] for flow in flows}

    def hot_plug(self, topology: Topology) -> None:
        """Other CPUs are online: interrupts and processes without one of theirs go to others."""
        self.topology, online = topology, topology.online()
        for nic in self.nics:
            nic.irq_cpus = [cpu if cpu in online else min(online) for cpu in nic.irq_cpus]
        for process in self.processes:
            if not parse_cpu_list(process.affinity) & online:
                process.affinity = format_cpu_list(online)
            if process.cpu not in online:
                process.cpu = min(parse_cpu_list(process.affinity) & online)

    def remove(self, nic: Nic) -> None:
        """A function is passed through to a virtual machine, with its flows."""
        self.nics = [each for each in self.nics if each is not nic]
        self.flows = [flow for flow in self.flows if flow.netdev != nic.name]

    def queue(self, flow: Flow) -> tuple[int, str]:
        """The queue that a flow arrives at, and by which mechanism."""
        nic = self._nic(flow.netdev)
        rules, by_port = self._by_port.get(nic.name, (None, {}))
        if rules is not nic.rules:
            by_port = _by_port(nic)
            self._by_port[nic.name] = nic.rules, by_port
        if (queue := by_port.get((flow.protocol, str(flow.peer_port)))) is not None:
            return queue, "rule"
        return nic.table[flow.hash % len(nic.table)], "rss"

    def apply(self, writes: Iterable[tuple[str, str]]) -> None:
        """Carry out writes of settings."""
        for key, value in writes:
            self.written.append(key)
            match key.split("/"):
                case ["kernel", "rps_sock_flow_entries"]:
                    self.entries = int(value)
                case ["netdev", name, "rss"]:
                    nic = self._nic(name)
                    nic.table = RssTable.table(value, len(nic.table))
                case ["netdev", name, "flow-rule", location]:
                    nic = self._nic(name)
                    assert int(location) not in nic.foreign, "a rule of another program was changed"
                    assert nic.slots is not None and 0 <= int(location) < nic.slots
                    nic.rules = {at: rule for at, rule in nic.rules.items() if at != int(location)}
                    if value != "none" and (nic.refused is None or nic.refused not in value):
                        nic.rules[int(location)] = value
                case ["netdev", name, rx_queue, "rps_flow_cnt"]:
                    nic = self._nic(name)
                    nic.flow_cnt = {**nic.flow_cnt, int(rx_queue[3:]): int(value)}
                case ["task", pid, "affinity"]:
                    process = next(process for process in self.processes if process.pid == int(pid))
                    process.affinity = value
                    if process.cpu not in parse_cpu_list(value):
                        process.cpu = min(parse_cpu_list(value))
                case _:
                    raise AssertionError(key)
        self.time_s += ROUND_PERIOD_S
        for flow in self.flows:
            queue = self.queue(flow)[0]
            if self._queue_of.get(flow, queue) != queue:
                self.moved.setdefault(flow, []).append(self.time_s)
            self._queue_of[flow] = queue

    def settings(self) -> Mapping[str, str]:
        """Everything that the policy may change, by key; rules that are not there are missing."""
        found = {"kernel/rps_sock_flow_entries": str(self.entries)}
        for nic in self.nics:
            found[f"netdev/{nic.name}/rss"] = RssTable.pattern(nic.table)
            found |= {
                f"netdev/{nic.name}/rx-{n}/rps_flow_cnt": str(count) for n, count in nic.flow_cnt.items() if count
            }
            found |= {f"netdev/{nic.name}/flow-rule/{at}": rule for at, rule in nic.rules.items()}
        return found

    def view(self) -> View:
        """What an agent would report."""
        rows = cpu_distances(self.topology, Smt.FIRST).rows
        cpus = max(cpu.cpu for cpu in self.topology.cpus) + 1
        busy, softirq, system = [0.02] * cpus, [0.0] * cpus, [0.01] * cpus
        heaviest = sorted(self.flows, key=lambda flow: -flow.rx_bytes_per_s)[:MAX_HEAVY_FLOWS]
        listed: dict[int, list[HeavyFlow]] = {}
        summed: dict[int, dict[tuple[str, int, str, bool], list[float]]] = {}
        by_pid = {process.pid: process for process in self.processes}
        for process in self.processes:
            busy[process.cpu] += process.cpu_share
        for flow in self.flows:
            nic, process = self._nic(flow.netdev), by_pid[flow.pid]
            if nic.resetting:
                continue  # nothing arrives
            queue, how = self.queue(flow)
            polled = nic.irq_cpus[queue]
            rfs = self._rfs(nic, queue)
            protocol = process.cpu if rfs else polled
            far = _FAR_S * rows[protocol][process.cpu]
            extra = self.rfs_s if rfs and protocol != polled else 0.0
            for at, column, cost in (
                (polled, softirq, _POLL_S + extra),
                (protocol, softirq, _PROTOCOL_S),
                (process.cpu, system, _COPY_S + far),
            ):
                column[at] += cost * flow.rx_bytes_per_s
                busy[at] += cost * flow.rx_bytes_per_s
            if nic.bond is not None or (rfs and nic.opaque):
                queue, how, rfs = -1, "", rfs and nic.bond is None
            key = ("", -1, "", False) if flow.unplaced else (nic.bond or nic.name, queue, how, rfs)
            sums = summed.setdefault(flow.pid, {}).setdefault(key, [0, 0.0])
            sums[0] += 1
            sums[1] += flow.rx_bytes_per_s
        for flow in heaviest:
            nic = self._nic(flow.netdev)
            if nic.resetting or flow.unplaced:
                continue
            queue, how = self.queue(flow)
            known = nic.bond is None and not (nic.opaque and self._rfs(nic, queue))
            entry = flow.hash % len(nic.table) if how == "rss" and known else None
            listed.setdefault(flow.pid, []).append(
                HeavyFlow(
                    flow.protocol, "10.0.0.1", 80, "10.0.0.2", flow.peer_port, nic.bond or nic.name,
                    f"rx-{queue}" if known else None, nic.irq_cpus[queue] if known else None,
                    entry, flow.rx_bytes_per_s,
                )
            )  # fmt: skip
        everywhere = f"0-{cpus - 1}"
        tasks = [
            NetTask(
                process.pid, 1, process.name, None, process.threads, process.affinity, everywhere, process.cpu,
                process.cpu_share, 0.0,
                [
                    RxPlacement(
                        netdev, f"rx-{queue}", self._nic(netdev).first_irq + queue,
                        self._nic(netdev).irq_cpus[queue], how, int(count), per_s, 0.0, rfs,
                    )
                    if how
                    else RxPlacement(netdev, None, None, None, None, int(count), per_s, 0.0, rfs)
                    for (netdev, queue, how, rfs), (count, per_s) in sorted(summed.get(process.pid, {}).items())
                ],
                flows=listed.get(process.pid, []),
            )
            for process in self.processes
        ]  # fmt: skip
        received = {
            nic.name: sum(f.rx_bytes_per_s for f in self.flows if f.netdev == nic.name and not nic.resetting)
            for nic in self.nics
        }
        load = Load(
            seconds=ROUND_PERIOD_S,
            busy=[min(1.0, share) for share in busy],
            softirq=[min(1.0, share) for share in softirq],
            system=[min(1.0, share) for share in system],
            netdevs=[NetdevLoad(name, per_s / 1448, per_s, 0.0, 0.0, 0.0) for name, per_s in received.items()],
        )
        inventory = Inventory(
            [
                *(self._netdev(nic) for nic in self.nics),
                *(
                    make_netdev(
                        bond,
                        None,
                        virtual=True,
                        queues=[Queue("rx-0", params={"rps_flow_cnt": "0"})],
                        lower=[nic.name for nic in self.nics if nic.bond == bond],
                    )
                    for bond in sorted({nic.bond for nic in self.nics if nic.bond})
                ),
            ],
            [irq for nic in self.nics if not nic.resetting for irq in self._irqs(nic)],
            settings={"kernel/rps_sock_flow_entries": str(self.entries)},
        )
        return View(self.topology, inventory, load, tasks, self.time_s)

    def _rfs(self, nic: Nic, queue: int) -> bool:
        return self.entries > 0 and nic.flow_cnt.get(queue, 0) > 0

    def _nic(self, name: str) -> Nic:
        return next(nic for nic in self.nics if nic.name == name)

    def _netdev(self, nic: Nic) -> Netdev:
        queues = [
            Queue(
                f"rx-{n}",
                None if nic.resetting else nic.first_irq + n,
                "name",
                params={"rps_flow_cnt": str(nic.flow_cnt.get(n, 0))},
            )
            for n in range(len(nic.irq_cpus))
        ]
        rules = None
        if nic.slots is not None:
            found = [FlowRule(at, rule, at not in nic.foreign) for at, rule in sorted(nic.rules.items())]
            rules = FlowRuleTable(nic.slots, [] if nic.resetting else found, not nic.resetting)
        table = RssTable.pattern(nic.table) if nic.rss_writable else None
        entries = len(nic.table) if nic.rss_writable else None
        return make_netdev(nic.name, queues=queues, rss=table, rss_entries=entries, flow_rules=rules)

    @staticmethod
    def _irqs(nic: Nic) -> list[Irq]:
        return [
            Irq(nic.first_irq + n, f"{nic.name}-rx-{n}", "PCI", str(c), str(c), 0, True, None, nic.name, [f"rx-{n}"])
            for n, c in enumerate(nic.irq_cpus)
        ]


def _by_port(nic: Nic) -> dict[tuple[str, str], int]:
    """The queue of the rule with the lowest location by protocol and port of the peer."""
    found: dict[tuple[str, str], int] = {}
    for location in sorted(nic.rules, reverse=True):
        words = nic.rules[location].split()
        fields = dict(zip(words[::2], words[1::2], strict=True))
        found[fields["flow-type"][:3], fields.get("src-port", "")] = int(fields["action"])
    return found


def spread_flows(random: Random, pids: list[int], count: int, bytes_per_s: float, netdev: str = "eth0") -> list[Flow]:
    """As many flows, in turn of these processes, with any hashes."""
    return [Flow(pids[n % len(pids)], 20_000 + n, bytes_per_s, random.getrandbits(31), netdev) for n in range(count)]
