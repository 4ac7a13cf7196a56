"""Facts about a node that experiment templates use, and common parts of their experiments. Pure."""

from collections.abc import Sequence

from msgspec import Struct

from coresteer.experiments.arm_config import NETDEV_PLACEHOLDER
from coresteer.experiments.spec import PolicyLevel
from coresteer_core.changes.guard import MAX_PLAN_ACTIONS
from coresteer_core.changes.plan import DesiredValue
from coresteer_core.cpuset import format_cpu_list
from coresteer_core.experiments.model import Observe, TcpStream, Workload
from coresteer_core.node.inventory import Inventory, Netdev
from coresteer_core.node.load import Load
from coresteer_core.node.nic import NicKnowledge
from coresteer_core.node.receive import receive_irqs
from coresteer_core.node.topology import Topology

_MBIT_PER_S_A_CLIENT = 1000
_MOST_CLIENTS = 8
"""The authors' eight clients of 1 Gbit/s each."""


class NodeFacts(Struct, frozen=True, kw_only=True):
    """Facts about a node and, if traffic comes from another node, about that peer.

    load: of the last seconds. network_process, numa: name and version of a policy of that kind. coscheduling,
    periodic_boost: of a policy that matches parallel jobs, with and without reordering. peer_id, peer_name: of
    the node that sends the traffic; None if the node itself does.
    """

    node_id: int
    name: str
    kernel: str | None
    topology: Topology
    inventory: Inventory
    learned: NicKnowledge = NicKnowledge()
    load: Load = Load()
    network_process: tuple[str, PolicyLevel] | None = None
    numa: tuple[str, PolicyLevel] | None = None
    coscheduling: tuple[str, PolicyLevel] | None = None
    periodic_boost: tuple[str, PolicyLevel] | None = None
    peer_id: int | None = None
    peer_name: str = ""

    @property
    def usable_cpus(self) -> list[int]:
        """Return the online CPUs that are not isolated, ascending; all online ones if all are isolated."""
        online = self.topology.online()
        return sorted(online - self.topology.isolated_cpus or online)

    @property
    def receiving_netdev(self) -> Netdev | None:
        """Return the network device that receives the peer's traffic; None without a peer."""
        return next(iter(self.inventory.active_nics()), None) if self.peer_id is not None else None


class TemplateUnavailable(Exception):  # noqa: N818 - no error: a template says so of itself
    """The reason why a node cannot have a template's experiment, as a sentence."""


def tcp_stream(facts: NodeFacts, *, limited: bool, server_cpus: str = "", client_cpus: str = "") -> TcpStream:
    """Return a TCP workload from the peer or the node itself, with the authors' 8 connections where it has the CPUs.

    limited: to 1 Gbit/s per client, as in the papers. Senders on the node itself need CPUs, too.
    """
    clients = max(1, min(_MOST_CLIENTS, len(facts.usable_cpus) // 2))
    limit = {"limit_mbit_per_s": clients * _MBIT_PER_S_A_CLIENT} if limited else {}
    enough = len(facts.usable_cpus) >= _MOST_CLIENTS * (1 if facts.peer_id is not None else 2)
    connections = _MOST_CLIENTS if enough else max(4, clients)
    return TcpStream(connections=connections, server_cpus=server_cpus, client_cpus=client_cpus, **limit)


def receive_settings(facts: NodeFacts, cpus: Sequence[int]) -> list[DesiredValue]:
    """Return settings with which traffic is received on these CPUs, one CPU per queue. Raises TemplateUnavailable.

    A veth pair has no interrupt, so the RPS CPU of its queue is set instead; so is RPS where the interrupts of a NIC
    cannot be moved.
    """
    if facts.peer_id is None:
        return [DesiredValue(f"netdev/{NETDEV_PLACEHOLDER}/rx-0/rps", format_cpu_list(cpus))]
    if facts.receiving_netdev is None:
        raise TemplateUnavailable(f"{facts.name} has no network card that is up and could receive a peer's traffic.")
    wire = facts.receiving_netdev
    irqs = [irq for irq in facts.inventory.irqs if irq.irq in receive_irqs(facts.inventory, wire)]
    queues = [queue for queue in wire.queues if queue.name.startswith("rx-")]
    if irqs and all(irq.movable for irq in irqs):
        keys = [f"irq/{irq.irq}/affinity" for irq in irqs]
    elif queues and all(queue.rps is not None for queue in queues):
        keys = [f"netdev/{NETDEV_PLACEHOLDER}/{queue.name}/rps" for queue in queues]
    else:
        raise TemplateUnavailable(f"The interrupts of {wire.name} cannot be moved, and its queues have no RPS.")
    if len(keys) > MAX_PLAN_ACTIONS:
        raise TemplateUnavailable(
            f"{wire.name} has {len(keys)} queues; one change has at most {MAX_PLAN_ACTIONS} settings."
        )
    return [DesiredValue(key, str(cpus[turn % len(cpus)])) for turn, key in enumerate(keys)]


def traffic_sentence(facts: NodeFacts, workload: Workload) -> str:
    """Return a sentence that says where the workload's traffic comes from."""
    if isinstance(workload, Observe):
        return (
            "No traffic is generated: the node's own traffic is measured and must be steady. Or choose another node "
            "that sends."
        )
    if facts.peer_id is None:
        return (
            "The traffic comes from a network namespace of the node itself over a veth pair, which exists only during "
            "the experiment; the sender uses CPU time of the same machine."
        )
    wire = facts.receiving_netdev
    return f"The traffic comes from {facts.peer_name} over {wire.name if wire is not None else 'the network'}."


def machine_sentence(facts: NodeFacts, authors: str) -> str:
    """Return a sentence that compares the authors' machine with this one."""
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
    return f"{authors.removesuffix('.')}; {facts.name} has {', '.join(parts)}{kernel}."
