"""Determines where a flow's received packets are handled: netdev, queue, interrupt, CPU.

Uncertain parts are None. They are certain if the NIC reports its RSS and its flow rules: a rule that matches selects
the queue, else the hash with the NIC's key in its indirection table; the queue's interrupt selects the CPU that polls.
RPS passes packets on to another CPU, RFS to the one on which the process reads them; RFS precedes RPS (kernel:
net/core/dev.c get_rps_cpu). With accelerated RFS the kernel itself adds rules, so the queue is unknown.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from coresteer_agent.collect.files import names, read_bytes, read_cpus, read_int, read_text
from coresteer_agent.collect.netdev import NETDEV_FOLDER
from coresteer_agent.collect.tcp_sockets import Flow, TcpSocket
from coresteer_agent.linux.addresses import Addresses
from coresteer_agent.linux.ethtool import Rss, read_rss
from coresteer_agent.linux.flow_steering import Steering, read_steering
from coresteer_agent.observe.flow_rules import rule_targets
from coresteer_core.cpuset import CpuListError, parse_cpu_list
from coresteer_core.node.inventory import Inventory, Netdev, Queue
from coresteer_core.node.rates import Rates
from coresteer_core.node.rss import SYM_OR_XOR, SYM_XOR, Toeplitz, indirection_entry, reciprocal_scale
from coresteer_core.settings.flow_rule_index import FlowRuleIndex

_log = logging.getLogger(__name__)

_ROOT = Path("/")
_KERNEL_KEY = "proc/sys/net/core/netdev_rss_key"
_FLOW_LIMIT = "proc/sys/net/core/rps_sock_flow_entries"
_ONLINE = "sys/devices/system/cpu/online"
_KEY_BYTES = 40
_KERNEL_KEY_DRIVERS = frozenset({"igb", "igc"})
"""Drivers that use the kernel's key (netdev_rss_key_fill) and do not report it by ethtool."""
_SYMMETRIC_UNREPORTED = "mlx5_core"
"""A driver whose hash was always symmetric before Linux 6.15; since then it is reported, but only while it is."""
_RPS_USES_NIC_HASH = frozenset({"ixgbe", "ixgbevf", "i40e", "iavf", "ice", "mlx5_core"})
"""Drivers that mark the NIC's hash of a TCP packet as one over ports, so that RPS uses it instead of its own."""
_NEARLY_ALL = 0.95
"""Share of the machine's received packets; a CPU that handled this many also handled a virtual netdev's."""


class RxTarget(Struct, frozen=True):
    """The queue, interrupt and CPU that handle received packets: an RxPlacement without its traffic."""

    netdev: str
    queue: str | None = None
    irq: int | None = None
    cpu: int | None = None
    how: str | None = None
    rfs: bool = False


class _Spreading(Struct):
    """How a netdev distributes flows: all to one target (single), or by hash if toeplitz is set.

    tcp_4, tcp_6: whether the hash includes ports, None where it is unknown. targets: by entry of the indirection table.
    rps: by entry of the table, the targets among which RPS selects by the hash over ports; often none. rules: the
    targets of flows that a flow rule matches, None without rules.
    """

    single: RxTarget
    toeplitz: Toeplitz | None = None
    tcp_4: bool | None = None
    tcp_6: bool | None = None
    targets: list[RxTarget] = []
    rps: list[list[RxTarget]] = []
    rules: FlowRuleIndex[RxTarget] | None = None


def softirq_cpu(rates: Iterable[Rates]) -> int | None:
    """Return the CPU that handled nearly all received packets in some intervals, None if there is none."""
    handled: dict[int, int] = {}
    for one in rates:
        column = one.counts.get("net_rx")
        if column is None:
            return None
        for cpu, count in enumerate(memoryview(column).cast("I")):
            if 0 < count < 0xFFFF_FFFF:
                handled[cpu] = handled.get(cpu, 0) + count
    busiest = max(handled, key=handled.__getitem__, default=None)
    return busiest if busiest is not None and handled[busiest] >= _NEARLY_ALL * sum(handled.values()) else None


class RxPlacements:
    """Determines RX placements of flows in one round; reads each netdev's settings once, when needed.

    rates: since the previous round.
    """

    def __init__(
        self,
        inventory: Inventory,
        addresses: Addresses,
        rates: Iterable[Rates] = (),
        *,
        rss_of: Callable[[str], Rss | None] = read_rss,
        steering_of: Callable[[str], Steering] = read_steering,
        root: Path = _ROOT,
    ) -> None:
        self._inventory = inventory
        self._netdevs = {netdev.name: netdev for netdev in inventory.netdevs}
        self._addresses = addresses
        self._rss_of = rss_of
        self._steering_of = steering_of
        self._root = root
        self._spreadings: dict[str, _Spreading] = {}
        self._softirq_cpu = softirq_cpu(rates)
        self._online: frozenset[int] | None = None

    def target(self, tcp: TcpSocket, flow: Flow) -> RxTarget:
        """Return where a TCP or UDP flow's received packets are handled; equal targets are mostly one object."""
        netdev = self._addresses.netdev(flow.local, flow.peer, flow.ifindex)
        spreading = self._spreadings.get(netdev)
        if spreading is None:
            spreading = self._spreadings[netdev] = self._read_spreading(netdev)
        if spreading.rules is not None:
            flow_type = "tcp4" if len(flow.local) == 4 else "tcp6"
            matched = spreading.rules.find(flow_type, flow.peer, flow.local, flow.ports)
            if matched is not None:
                return matched
        if spreading.toeplitz is None:
            return spreading.single
        ports = spreading.tcp_4 if len(flow.local) == 4 else spreading.tcp_6
        if ports is None:
            return spreading.single
        if tcp.rss is None or tcp.rss[0] is not spreading.toeplitz or tcp.rss[1] != ports:
            of_flow = spreading.toeplitz.hash_flow(flow.peer, flow.local, flow.ports if ports else b"")
            tcp.rss = (spreading.toeplitz, ports, of_flow)
        flow_hash = tcp.rss[2]
        target = indirection_entry(flow_hash, spreading.targets)
        if not (choices := indirection_entry(flow_hash, spreading.rps)) or not ports:
            return target
        return reciprocal_scale(flow_hash, choices)

    def rss_entry(self, tcp: TcpSocket, flow: Flow) -> int | None:
        """Return the entry of the NIC's RSS table that a TCP flow's hash selects; None where the hash is not known.

        The hash is that of the last target(); a flow that a rule matched has none.
        """
        spreading = self._spreadings.get(self._addresses.netdev(flow.local, flow.peer, flow.ifindex))
        if spreading is None or tcp.rss is None or tcp.rss[0] is not spreading.toeplitz:
            return None
        return indirection_entry(tcp.rss[2], range(len(spreading.targets)))

    def _read_spreading(self, name: str) -> _Spreading:
        unknown = _Spreading(RxTarget(name))
        lower = self._lower_netdev(name)
        netdev = self._netdevs.get(lower) if lower is not None else None
        try:
            if netdev is None:
                return unknown
            queues = [queue for queue in netdev.queues if queue.name.startswith("rx-")]
            if netdev.virtual:
                return _Spreading(self._virtual(netdev.name, queues))
            return self._read_nic(netdev, queues)
        except (OSError, CpuListError) as error:
            _log.debug("The distribution of flows by netdev %s cannot be determined: %s", name, error)
            return unknown

    def _read_nic(self, netdev: Netdev, queues: list[Queue]) -> _Spreading:
        steering = self._steering_of(netdev.name)
        rfs = self._flow_steered(netdev.name, queues)
        single = _Spreading(RxTarget(netdev.name, rfs=len(rfs) == len(queues) > 0))
        if steering.ntuple and rfs:
            return single
        threaded = bool(read_int(self._root, f"{NETDEV_FOLDER}/{netdev.name}/threaded"))
        targets = {
            queue.name: self._queue(netdev.name, queue, threaded=threaded, rfs=queue.name in rfs) for queue in queues
        }
        if len(targets) == 1:
            [target] = targets.values()
            return _Spreading(replace(target, how="queue") if target.how == "rss" else target)
        if not steering.rules:
            return self._spread(netdev, steering, queues, targets) or single
        by_rule = {n: replace(target, how="rule") if target.how == "rss" else target for n, target in targets.items()}
        rules = rule_targets(netdev.flow_rules, steering.rules, by_rule)
        return (
            single if rules is None else replace(self._spread(netdev, steering, queues, targets) or single, rules=rules)
        )

    def _lower_netdev(self, name: str) -> str | None:
        """Return the netdev that receives the packets: the lower one of a VLAN, the active one of a bond."""
        for _ in range(4):
            if active := read_text(self._root, f"{NETDEV_FOLDER}/{name}/bonding/active_slave"):
                name = active
                continue
            lower = [
                n.removeprefix("lower_") for n in names(self._root, f"{NETDEV_FOLDER}/{name}") if n.startswith("lower_")
            ]
            if not lower:
                return name
            if len(lower) > 1:
                return None
            [name] = lower
        return None

    def _virtual(self, name: str, queues: list[Queue]) -> RxTarget:
        if rfs := self._flow_steered(name, queues):
            return RxTarget(name, queues[0].name if len(queues) == 1 else None, rfs=len(rfs) == len(queues))
        if len(queues) == 1 and (cpus := self._rps(queues[0])):
            return (
                RxTarget(name, queues[0].name, None, cpus[0], "rps")
                if len(cpus) == 1
                else RxTarget(name, queues[0].name)
            )
        if any(self._rps(queue) for queue in queues) or self._softirq_cpu is None:
            return RxTarget(name)
        return RxTarget(name, None, None, self._softirq_cpu, "softirq")

    def _queue(self, name: str, queue: Queue, *, threaded: bool, rfs: bool) -> RxTarget:
        """Return where a queue's packets are handled. threaded: by a kernel thread, not by interrupt."""
        cpus = [] if rfs else self._rps(queue)
        if threaded or len(cpus) > 1:
            return RxTarget(name, queue.name, queue.irq, rfs=rfs)
        if cpus:
            return RxTarget(name, queue.name, queue.irq, cpus[0], "rps")
        irq = self._inventory.irq(queue.irq) if queue.irq is not None else None
        cpus_of_irq = parse_cpu_list((irq.effective or irq.requested or "") if irq is not None else "")
        cpu = next(iter(cpus_of_irq)) if len(cpus_of_irq) == 1 else None
        return RxTarget(name, queue.name, queue.irq, cpu, None if cpu is None else "rss", rfs)

    def _spread(
        self, netdev: Netdev, steering: Steering, queues: list[Queue], targets: Mapping[str, RxTarget]
    ) -> _Spreading | None:
        """Return how the NIC's hash distributes flows, None where that is not known. targets: by queue."""
        nic_rss = self._rss_of(netdev.name)
        if nic_rss is None or nic_rss.hash_function not in ("toeplitz", "") or not nic_rss.table:
            return None
        if nic_rss.input_xfrm not in (0, SYM_XOR, SYM_OR_XOR):
            return None
        if nic_rss.input_xfrm == 0 and netdev.driver == _SYMMETRIC_UNREPORTED:
            return None
        key = nic_rss.key
        if not any(key) and netdev.driver in _KERNEL_KEY_DRIVERS:
            key = self._kernel_key()
        names = [f"rx-{entry}" for entry in nic_rss.table]
        if len(key) < _KEY_BYTES or not any(key) or any(name not in targets for name in names):
            return None
        rps: dict[str, list[RxTarget]] = {}
        if netdev.driver in _RPS_USES_NIC_HASH:
            for queue in queues:
                if not targets[queue.name].rfs and len(cpus := self._rps(queue)) > 1:
                    rps[queue.name] = [RxTarget(netdev.name, queue.name, queue.irq, cpu, "rps") for cpu in cpus]
        return _Spreading(
            RxTarget(netdev.name, rfs=all(target.rfs for target in targets.values())),
            _toeplitz(key[:_KEY_BYTES], nic_rss.input_xfrm),
            steering.tcp_4,
            steering.tcp_6,
            [targets[name] for name in names],
            [rps.get(name, []) for name in names],
        )

    def _kernel_key(self) -> bytes:
        try:
            return bytes.fromhex((read_text(self._root, _KERNEL_KEY) or "").replace(":", ""))
        except ValueError:
            return b""

    def _flow_steered(self, name: str, queues: list[Queue]) -> frozenset[str]:
        """Return the queues whose packets are passed to the CPU of the reading process (RFS)."""
        if not read_int(self._root, _FLOW_LIMIT):
            return frozenset()
        return frozenset(
            queue.name
            for queue in queues
            if (read_bytes(self._root, f"{NETDEV_FOLDER}/{name}/queues/{queue.name}/rps_flow_cnt") or b"0").strip()
            != b"0"
        )

    def _rps(self, queue: Queue) -> list[int]:
        """Return the online CPUs in a queue's RPS mask, in the kernel's order."""
        if not queue.rps:
            return []
        if self._online is None:
            self._online = read_cpus(self._root, _ONLINE) or frozenset()
        return sorted(parse_cpu_list(queue.rps) & self._online)


@lru_cache(maxsize=4)
def _toeplitz(key: bytes, input_xfrm: int) -> Toeplitz:
    return Toeplitz(key, input_xfrm)
