"""Machines that policies are tried on: made-up ones of every shape, and the captured ones with made-up NICs.

A Machine is a View with what its work really costs, so that a policy's actions can be carried out on it and the load
follows: machine.after(actions) is the machine a round later.
"""

import tempfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from random import Random

from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace
from tests.fixtures.machines import EXPECTED, unpack
from tests.support.views import make_netdev, make_topology

from coresteer_agent.collect.topology import read_topology
from coresteer_core.changes.plan import Action
from coresteer_core.cpuset import format_cpu_list, parse_cpu_list
from coresteer_core.node.inventory import Inventory, Irq, Netdev, Queue
from coresteer_core.node.load import IrqLoad, Load
from coresteer_core.node.numa import NodeMemory, NumaState, NumaTask
from coresteer_core.node.tasks import NetTask, RxPlacement
from coresteer_core.node.topology import Topology
from coresteer_core.node.view import View
from coresteer_core.policies.base import ROUND_PERIOD_S
from coresteer_core.settings.overlay import overlay


class Machine(Struct, frozen=True):
    """A view and what the work in it costs, all as shares of one CPU.

    other: by CPU number, work that no policy moves. irqs: by IRQ, softirq time wherever it arrives. per_s: how often
    each IRQ arrives. A task costs its cpu_share, spread evenly over as many CPUs of its affinity as it has threads.
    """

    view: View
    other: list[float]
    irqs: dict[int, float]
    per_s: dict[int, float]

    def loaded(self) -> "Machine":
        """The same with the load that the work makes where everything stands now."""
        topology, inventory = self.view.topology, self.view.inventory
        online = topology.online()
        highest = max((c.cpu for c in topology.cpus), default=-1)
        softirq = [0.0] * (highest + 1)
        busy = [*self.other, *[0.0] * (highest + 1 - len(self.other))]
        cells = []
        for irq in inventory.irqs:
            cpu = first_cpu(irq.effective)
            if cpu is not None and cpu in online and irq.irq in self.irqs:
                softirq[cpu] += self.irqs[irq.irq]
                cells.append(IrqLoad(irq.irq, cpu, self.per_s[irq.irq]))
        for task in self.view.tasks:
            where = runs_on(task, online)
            for cpu in where:
                busy[cpu] += task.cpu_share / len(where)
        load = Load(
            seconds=ROUND_PERIOD_S,
            busy=[min(1.0, busy[c] + softirq[c]) if c in online else None for c in range(highest + 1)],
            softirq=[min(1.0, softirq[c]) if c in online else None for c in range(highest + 1)],
            irqs=cells,
        )
        return replace(self, view=replace(self.view, load=load))

    def after(self, actions: Iterable[Action], seconds: float = ROUND_PERIOD_S) -> "Machine":
        """The machine a round later with actions on interrupts, tasks, their memory and cgroups carried out."""
        wanted = {action.key: action.becomes for action in actions}
        pages = {key: value for key, value in wanted.items() if key.endswith("/memory-nodes")}
        online = self.view.topology.online()
        irqs = [moved_irq(irq, wanted.get(f"irq/{irq.irq}/affinity"), online) for irq in self.view.inventory.irqs]
        at = {irq.irq: first_cpu(irq.effective) for irq in irqs}
        tasks = []
        for task in self.view.tasks:
            affinity = wanted.get(f"task/{task.pid}/affinity", task.affinity)
            rx_placements = [
                replace(each, cpu=at[each.irq]) if each.irq is not None and each.how in ("rss", "queue") else each
                for each in task.rx_placements
            ]
            params = {name: wanted.get(f"task/{task.pid}/{name}", value) for name, value in task.params.items()}
            settled = replace(task, affinity=affinity, rx_placements=rx_placements, params=params)
            tasks.append(replace(settled, cpu=min(runs_on(settled, online), default=task.cpu)))
        view = replace(
            self.view,
            numa=_numa_after(overlay(self.view, pages), tasks),
            inventory=replace(self.view.inventory, irqs=irqs),
            tasks=tasks,
            cgroups={
                path: {name: wanted.get(f"cgroup/{path}/{name}", value) for name, value in weights.items()}
                for path, weights in self.view.cgroups.items()
            },
            time_s=self.view.time_s + seconds,
        )
        return replace(self, view=view).loaded()


def first_cpu(cpus: str | None) -> int | None:
    """The lowest CPU of a CPU list."""
    return min(parse_cpu_list(cpus), default=None) if cpus else None


def runs_on(task: NetTask, online: frozenset[int]) -> list[int]:
    """The CPUs that a task's threads keep busy: where it is if it may, then upwards from there."""
    may = sorted(parse_cpu_list(task.affinity) & online)
    start = next((i for i, cpu in enumerate(may) if cpu >= task.cpu), 0)
    return (may[start:] + may[:start])[: task.threads]


def moved_irq(irq: Irq, wanted: str | None, online: frozenset[int]) -> Irq:
    """An interrupt with another affinity: it stays where it arrives if it may, else arrives on the first CPU it may."""
    if wanted is None:
        return irq
    may = parse_cpu_list(wanted) & online
    stays = first_cpu(irq.effective) in may
    effective = irq.effective if stays else str(min(may)) if may else None
    return replace(irq, requested=wanted, effective=effective)


def _numa_after(view: View, tasks: list[NetTask]) -> NumaState | None:
    """What is known of memory, with the processes where they run now."""
    if view.numa is None:
        return None
    by_pid = {task.pid: task for task in tasks}
    nodes, online, found = view.topology.nodes, view.topology.online(), []
    for before in view.numa.tasks:
        task = by_pid[before.pid]
        where = runs_on(task, online)
        at: dict[int, float] = {}
        for cpu in where:
            node = nodes[cpu]
            if node is not None:
                at[node] = at.get(node, 0.0) + task.cpu_share / len(where)
        found.append(replace(before, affinity=task.affinity, allowed=task.allowed, cpu=task.cpu, cpu_nodes=at))
    return replace(view.numa, tasks=found)


def with_memory(machine: Machine, random: Random) -> Machine:
    """The machine with what its processes have in memory, and room for more on some NUMA nodes."""
    nodes = [node.id for node in machine.view.topology.numa_nodes]
    everywhere, gib = format_cpu_list(nodes), 1 << 30
    tasks = [
        NumaTask(
            task.pid, task.started_ticks, task.name, task.cgroup, task.threads, task.affinity, task.allowed, task.cpu,
            task.cpu_share, gib, 100.0, mems_allowed=everywhere,
            bytes_by_node={node: random.choice([0, 1 << 26, gib]) for node in nodes}, params=task.params,
            bytes_per_s=random.uniform(0, 2e10), memory_bound=random.random(), realtime=task.realtime,
        )
        for task in machine.view.tasks
    ]  # fmt: skip
    memory = [NodeMemory(n, 64 * gib, random.choice([32, 1, 0]) * gib, bandwidth_bytes_per_s=2e10) for n in nodes]
    return replace(machine, view=replace(machine.view, numa=NumaState(memory, tasks))).after([], 0.0)


@st.composite
def topologies(draw: st.DrawFn, max_cpus: int = 256) -> Topology:
    """Machines of 1 to max_cpus CPUs, odd counts too, with offline and isolated CPUs, SMT and NUMA nodes."""
    threads = draw(st.sampled_from([t for t in (1, 2, 4) if t <= max_cpus]))
    packages = draw(st.integers(1, min(4, max_cpus // threads)))
    nodes_per_package = draw(st.integers(1, min(2, max_cpus // (threads * packages))))
    most = max_cpus // (threads * packages * nodes_per_package)
    cores_per_node = draw(st.integers(1, most) if most <= 8 else st.integers(1, 8) | st.integers(1, most))
    total = packages * nodes_per_package * cores_per_node * threads
    missing = draw(st.integers(0, min(3, total - 1)))
    cpus = list(range(total - missing))
    some = st.one_of(st.just(set[int]()), st.sets(st.sampled_from(cpus), max_size=max(1, len(cpus) // 2)))
    offline = draw(some) - {draw(st.sampled_from(cpus))}
    return make_topology(
        packages=packages,
        nodes_per_package=nodes_per_package,
        cores_per_node=cores_per_node,
        threads=threads,
        missing=missing,
        threads_last=draw(st.booleans()),
        offline=offline,
        isolated=draw(some) - offline,
        nohz_full=draw(some) - offline,
    )


def furnish(topology: Topology, random: Random, *, netdevs: int | None = None, tasks: int | None = None) -> Machine:
    """A machine with NICs, their queues' interrupts anywhere, other interrupts, load, and tasks with rx_placements."""
    online = sorted(topology.online())
    usable = sorted(set(online) - parse_cpu_list(topology.isolated) - parse_cpu_list(topology.nohz_full)) or online
    nodes: list[int | None] = [node.id for node in topology.numa_nodes]
    irqs: list[Irq] = []
    nics: list[Netdev] = []
    for n in range(random.randint(1, 3) if netdevs is None else netdevs):
        name, node = f"eth{n}", random.choice([*nodes, None])
        habit = random.choice(["one cpu", "spread", "anywhere", "all"])
        home = random.choice(online)
        queues = []
        for q in range(random.randint(1, min(16, len(online) + 2))):
            cpu = (
                home if habit == "one cpu" else online[q % len(online)] if habit == "spread" else random.choice(online)
            )
            wide = habit == "all"
            number = 40 + len(irqs)
            locked = random.random() < 0.05
            irqs.append(
                Irq(
                    number,
                    f"{name}-TxRx-{q}",
                    "PCI-MSI",
                    format_cpu_list(online) if wide else str(cpu),
                    str(cpu),
                    node,
                    not locked,
                    "A managed interrupt." if locked else None,
                    name,
                    [f"rx-{q}", f"tx-{q}"],
                )
            )
            queues += [Queue(f"rx-{q}", number, "name"), Queue(f"tx-{q}", number, "name")]
        nics.append(make_netdev(name, speed_bits_per_s=10**10, numa_node=node, management=n == 0, queues=queues))
    for n in range(random.randint(0, 4)):
        cpu = random.choice(online)
        irqs.append(Irq(500 + n, f"nvme0q{n}", "PCI-MSI", str(cpu), str(cpu), None, random.random() < 0.5))
    calm = random.choice([0.0, 0.1, 0.5])
    costs = {irq.irq: random.choice([0.0, random.uniform(0, 0.3), random.uniform(0, 0.9)]) for irq in irqs}
    machine = Machine(
        View(topology, Inventory(nics, irqs), tasks=[], time_s=1000.0),
        other=[random.uniform(0, calm) for _ in range(max((c.cpu for c in topology.cpus), default=-1) + 1)],
        irqs=costs,
        per_s={number: cost * random.choice([5_000.0, 20_000.0]) + 1 for number, cost in costs.items()},
    )
    wanted = random.randint(0, min(12, 2 * len(online))) if tasks is None else tasks
    made = [_task(100 + n, irqs, online, usable, random) for n in range(wanted)]
    groups = {task.cgroup.lstrip("/"): {"cpu.weight": "100", "io.weight": "100"} for task in made if task.cgroup}
    return replace(machine, view=replace(machine.view, tasks=made, cgroups=groups)).loaded()


def _task(pid: int, irqs: list[Irq], online: list[int], usable: list[int], random: Random) -> NetTask:
    """A process that receives over one or two queues; some are idle, some bound, some land nobody knows where."""
    queue_irqs = [irq for irq in irqs if irq.netdev is not None]
    rx_placements = []
    for irq in random.sample(queue_irqs, min(random.randint(1, 2), len(queue_irqs))):
        how = random.choice(["rss", "rss", "queue", "rps", None])
        cpu = {"rps": random.choice(online), None: None}.get(how, first_cpu(irq.effective))
        known = how is not None
        received, sent = random.choice([0.0, 1e4, 1e6, 1e8]), random.choice([0.0, 1e5, 1e7])
        rx_placements.append(
            RxPlacement(
                irq.netdev or "",
                irq.queues[0] if known else None,
                irq.irq if known else None,
                cpu,
                how,
                random.randint(1, 8),
                received,
                sent,
            )
        )
    allowed = random.choice([online, online, usable, random.sample(online, random.randint(1, len(online)))])
    affinity = random.choice([allowed, allowed, random.sample(allowed, random.randint(1, len(allowed)))])
    threads = random.choice([1, 1, 1, 2, 8])
    idle_s = random.choice([0.0, 0.5, 5.0, 60.0])
    if idle_s >= ROUND_PERIOD_S:
        rx_placements = [replace(each, rx_bytes_per_s=0.0, tx_bytes_per_s=0.0) for each in rx_placements]
    name = random.choice(["nginx", "redis-server", "iperf3", "sshd"])
    return NetTask(
        pid=pid,
        started_ticks=pid * 100,
        name=name,
        cgroup=random.choice([None, "/web.slice", "/system.slice/ssh.service"]),
        threads=threads,
        affinity=format_cpu_list(affinity),
        allowed=format_cpu_list(allowed),
        cpu=random.choice(affinity),
        cpu_share=random.uniform(0, 0.9) * random.randint(1, threads),
        idle_s=idle_s,
        rx_placements=rx_placements,
        command=name,
        user=None if name == "iperf3" else "root",
        listens=[80] if name == "nginx" else [],
        params={"nice": str(pid % 3)},
        realtime=pid % 7 == 0,
    )


@st.composite
def machines(draw: st.DrawFn, max_cpus: int = 256) -> Machine:
    """Generated machines with everything that policies look at."""
    return furnish(draw(topologies(max_cpus)), draw(st.randoms(use_true_random=True)))


CAPTURED = sorted(EXPECTED)
"""Names of the captured machines, for captured()."""


@cache
def captured_topology(name: str) -> Topology:
    """The topology of a captured machine."""
    with tempfile.TemporaryDirectory() as folder:
        return read_topology(unpack(name, Path(folder)))


def captured(name: str, seed: int = 0) -> Machine:
    """A captured machine with made-up NICs, tasks and load, the same for the same seed."""
    return furnish(captured_topology(name), Random(f"{name} {seed}"))  # noqa: S311, a machine, not a secret
