"""What templates know of a node, and what they are made of. Pure."""

from collections.abc import Sequence

from msgspec import Struct

from coresteer.experiments.arm_config import NETDEV
from coresteer.experiments.schedule import check_spec
from coresteer.experiments.spec import Factor, PolicyLevel, Spec
from coresteer_core.changes.plan import DesiredValue
from coresteer_core.cpuset import format_cpu_list
from coresteer_core.experiments.model import Observe, TcpStream, Workload
from coresteer_core.node.inventory import Inventory, Netdev
from coresteer_core.node.load import Load
from coresteer_core.node.nic import Learned
from coresteer_core.node.receive import receive_irqs
from coresteer_core.node.topology import Topology

_MBIT_PER_S_A_CLIENT = 1000
_MOST_CLIENTS = 8
"""The authors' eight clients of 1 Gbit/s each."""
_MOST_WISHES = 64
_WARMUP_S, _MEASURE_S = 1.0, 5.0
"""Short, so that a template's fifty to seventy runs take minutes."""
_SETTLE_S = 15.0
"""A policy decides every five seconds, and moves what has been there for a while."""


class NodeFacts(Struct, frozen=True, kw_only=True):
    """A node as templates see it.

    load: of its last seconds. network_process: the version of a policy of that kind, with its name. peer_id,
    peer_name: of the node from which traffic is to come; None where it comes from the node itself.
    """

    node_id: int
    name: str
    kernel: str | None
    topology: Topology
    inventory: Inventory
    learned: Learned = Learned()
    load: Load = Load()
    network_process: tuple[str, PolicyLevel] | None = None
    peer_id: int | None = None
    peer_name: str = ""

    @property
    def usable(self) -> list[int]:
        """Online CPUs that nobody keeps free of other work; all online ones where that leaves none."""
        online = self.topology.online()
        return sorted(online - self.topology.isolated_cpus or online)

    @property
    def wire(self) -> Netdev | None:
        """By which a peer's traffic comes; None where there is no peer."""
        return next(iter(self.inventory.active_nics()), None) if self.peer_id is not None else None


class Unavailable(Exception):  # noqa: N818 - no error: a template says so of itself
    """Why a node cannot have a template's experiment, in a sentence."""


def stream(facts: NodeFacts, *, limited: bool, server_cpus: str = "", client_cpus: str = "") -> TcpStream:
    """TCP from a peer or the node itself. limited: to what half of the CPUs' number of the authors' clients sent."""
    clients = max(1, min(_MOST_CLIENTS, len(facts.usable) // 2))
    limit = {"limit_mbit_per_s": clients * _MBIT_PER_S_A_CLIENT} if limited else {}
    return TcpStream(connections=max(4, clients), server_cpus=server_cpus, client_cpus=client_cpus, **limit)


def interrupts_on(facts: NodeFacts, cpus: Sequence[int]) -> list[DesiredValue]:
    """Settings that let the traffic's packets arrive on these CPUs, queue by queue in turn. Raises Unavailable.

    Of the own namespaces' veth pair, which has no interrupt, its one queue's RPS CPU stands for the interrupt's. Where
    the interrupts of a NIC's queues cannot be moved their RPS does.
    """
    if facts.peer_id is None:
        return [DesiredValue(f"netdev/{NETDEV}/rx-0/rps", format_cpu_list(cpus))]
    if facts.wire is None:
        raise Unavailable(f"{facts.name} has no network card that is up, by which traffic of a peer could come.")
    wire = facts.wire
    irqs = [irq for irq in facts.inventory.irqs if irq.irq in receive_irqs(facts.inventory, wire)]
    queues = [queue for queue in wire.queues if queue.name.startswith("rx-")]
    if irqs and all(irq.movable for irq in irqs):
        keys = [f"irq/{irq.irq}/affinity" for irq in irqs]
    elif queues and all(queue.rps is not None for queue in queues):
        keys = [f"netdev/{NETDEV}/{queue.name}/rps" for queue in queues]
    else:
        raise Unavailable(f"The interrupts of {wire.name} cannot be moved, and its queues have no RPS.")
    if len(keys) > _MOST_WISHES:
        raise Unavailable(f"{wire.name} has {len(keys)} queues; one change moves {_MOST_WISHES} at most.")
    return [DesiredValue(key, str(cpus[turn % len(cpus)])) for turn, key in enumerate(keys)]


def spec_of(
    facts: NodeFacts,
    slug: str,
    title: str,
    workload: Workload,
    factors: list[Factor],
    *,
    primary: str,
    measure_s: float = _MEASURE_S,
) -> Spec:
    """An experiment of these factors: A/B of two levels, else a sweep. Raises Unavailable."""
    spec = Spec(
        name=title,
        kind="ab" if [len(factor.levels) for factor in factors] == [2] else "sweep",
        node_id=facts.node_id,
        peer_node_id=facts.peer_id if isinstance(workload, TcpStream) else None,
        workload=workload,
        primary=primary,
        factors=factors,
        warmup_s=_WARMUP_S,
        measure_s=measure_s,
        settle_s=_SETTLE_S,
        template=slug,
    )
    if (why := check_spec(spec)) is not None:
        raise Unavailable(why)
    return spec


def of_traffic(facts: NodeFacts, workload: Workload) -> str:
    """Where the traffic comes from, in a sentence."""
    if isinstance(workload, Observe):
        return (
            "Nothing is generated: the node's own traffic is measured, so there must be some all the time; or choose "
            "another node that sends."
        )
    if facts.peer_id is None:
        return (
            "The traffic comes from a network namespace of the node itself over a veth pair, which is there only while "
            "the experiment runs; what sends takes CPU of the same machine."
        )
    wire = facts.wire
    return f"The traffic comes from {facts.peer_name} over {wire.name if wire is not None else 'the network'}."


def machine_differs(facts: NodeFacts, authors: str) -> str:
    """The authors' machine beside this one, in a sentence."""
    topology = facts.topology
    online = [cpu for cpu in topology.cpus if cpu.online]
    last_level = max((cache.level for cache in topology.caches), default=0)
    caches = {cache.cpus for cache in topology.caches if cache.level == last_level and cache.type != "Instruction"}
    parts = [f"{len(online)} CPU{'s' if len(online) != 1 else ''}"]
    if cores := {(cpu.package, cpu.core) for cpu in online if cpu.core is not None}:
        parts.append(f"{len(cores)} core{'s' if len(cores) != 1 else ''}")
    if caches and last_level > 1:
        parts.append(f"{len(caches)} L{last_level} cache{'s' if len(caches) != 1 else ''}")
    if topology.numa_nodes:
        parts.append(f"{len(topology.numa_nodes)} NUMA node{'s' if len(topology.numa_nodes) != 1 else ''}")
    kernel = f" and runs Linux {facts.kernel}" if facts.kernel else ""
    return f"{authors}; {facts.name} has {', '.join(parts)}{kernel}."
