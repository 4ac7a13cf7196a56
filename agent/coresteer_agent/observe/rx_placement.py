"""Where a flow's received packets are handled: netdev, queue, interrupt, CPU.

What is not sure is None. It is sure when the NIC tells how it spreads flows and nothing else steers them: the hash
over its key picks the queue in its table, the queue's interrupt the CPU; RPS hands on to another one
(kernel: net/core/dev.c get_rps_cpu).
"""

import logging
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path

from msgspec import Struct

from coresteer_agent.collect.errors import ParseError
from coresteer_agent.collect.files import names, read_bytes, read_cpus, read_int, read_text
from coresteer_agent.collect.netdev import CLASS
from coresteer_agent.collect.tcp_sockets import Flow, TcpSocket
from coresteer_agent.linux.addresses import Addresses
from coresteer_agent.linux.ethtool import Rss, rss
from coresteer_agent.linux.flow_steering import Steering, read_steering
from coresteer_core.cpuset import CpuListError, parse_cpu_list
from coresteer_core.node.inventory import Inventory, Netdev, Queue
from coresteer_core.node.rates import Rates
from coresteer_core.node.rss import Toeplitz, indirect, scale

_log = logging.getLogger(__name__)

_ROOT = Path("/")
_KERNEL_KEY = "proc/sys/net/core/netdev_rss_key"
_FLOW_LIMIT = "proc/sys/net/core/rps_sock_flow_entries"
_ONLINE = "sys/devices/system/cpu/online"
_KEY_BYTES = 40
_OWN_KEY_UNTOLD = frozenset({"igb", "igc"})
"""Drivers that use the kernel's key (netdev_rss_key_fill) and do not tell it by ethtool."""
_RPS_TAKES_HASH = frozenset({"ixgbe", "ixgbevf", "i40e", "iavf", "ice", "mlx5_core"})
"""Drivers that mark the NIC's hash of a TCP packet as one over ports, so that the kernel makes none of its own."""
_MOSTLY = 0.95
"""Of the machine's received packets: the CPU that took so many of them took a virtual netdev's too."""


class Place(Struct, frozen=True):
    """Where packets are handled: the fields of a RxPlacement that say where."""

    netdev: str
    queue: str | None = None
    irq: int | None = None
    cpu: int | None = None
    how: str | None = None


class _Way(Struct):
    """How a netdev spreads its flows. alone: where all of them go; otherwise the hash says.

    tcp_4, tcp_6: whether ports are hashed, None where the hash is not known. places: by entry of the table.
    rps: by entry of the table, the places among which the hash over ports picks anew; often none.
    """

    alone: Place
    toeplitz: Toeplitz | None = None
    tcp_4: bool | None = None
    tcp_6: bool | None = None
    places: list[Place] = []
    rps: list[list[Place]] = []


def softirq_cpu(rates: Iterable[Rates]) -> int | None:
    """The CPU that handled nearly all received packets during some intervals; None where several did."""
    raised: dict[int, int] = {}
    for one in rates:
        column = one.counts.get("net_rx")
        if column is None:
            return None
        for cpu, count in enumerate(memoryview(column).cast("I")):
            if 0 < count < 0xFFFF_FFFF:
                raised[cpu] = raised.get(cpu, 0) + count
    busiest = max(raised, key=raised.__getitem__, default=None)
    return busiest if busiest is not None and raised[busiest] >= _MOSTLY * sum(raised.values()) else None


class RxPlacements:
    """Where the flows of one look land. The netdevs' settings are read as they are needed, once.

    rates: what happened since the previous look.
    """

    def __init__(
        self,
        inventory: Inventory,
        addresses: Addresses,
        rates: Iterable[Rates] = (),
        *,
        rss_of: Callable[[str], Rss | None] = rss,
        steering_of: Callable[[str], Steering] = read_steering,
        root: Path = _ROOT,
    ) -> None:
        self._inventory = inventory
        self._netdevs = {netdev.name: netdev for netdev in inventory.netdevs}
        self._addresses = addresses
        self._rss_of = rss_of
        self._steering_of = steering_of
        self._root = root
        self._ways: dict[str, _Way] = {}
        self._softirq_cpu = softirq_cpu(rates)
        self._online: frozenset[int] | None = None

    def place(self, tcp: TcpSocket, flow: Flow) -> Place:
        """Where what this socket receives is handled; places that are equal are mostly the same object."""
        netdev = self._addresses.netdev(flow.local, flow.peer, flow.ifindex)
        way = self._ways.get(netdev)
        if way is None:
            way = self._ways[netdev] = self._read_way(netdev)
        if way.toeplitz is None:
            return way.alone
        ports = way.tcp_4 if len(flow.local) == 4 else way.tcp_6
        if ports is None:
            return way.alone
        if tcp.rss is None or tcp.rss[0] is not way.toeplitz or tcp.rss[1] != ports:
            data = flow.peer + flow.local + flow.ports if ports else flow.peer + flow.local
            tcp.rss = (way.toeplitz, ports, way.toeplitz.hash(data))
        flow_hash = tcp.rss[2]
        place = indirect(flow_hash, way.places)
        if not (choices := indirect(flow_hash, way.rps)) or not ports:
            return place
        return scale(flow_hash, choices)

    def _read_way(self, name: str) -> _Way:
        unknown = _Way(Place(name))
        below = self._below(name)
        netdev = self._netdevs.get(below) if below is not None else None
        try:
            if netdev is None:
                return unknown
            queues = [queue for queue in netdev.queues if queue.name.startswith("rx-")]
            if netdev.virtual:
                return _Way(self._virtual(netdev.name, queues))
            steering = self._steering_of(netdev.name)
            rfs = self._flow_steered(netdev.name, queues)
            if steering.rules or (steering.ntuple and rfs):
                return _Way(Place(netdev.name))
            threaded = bool(read_int(self._root, f"{CLASS}/{netdev.name}/threaded"))
            places = [self._queue(netdev.name, queue, threaded or queue.name in rfs) for queue in queues]
            if len(places) == 1:
                place = places[0]
                how = place.how and ("queue" if place.how == "rss" else place.how)
                return _Way(Place(place.netdev, place.queue, place.irq, place.cpu, how))
            return self._spread(netdev, steering, queues, places, rfs)
        except (OSError, ParseError, CpuListError) as error:
            _log.debug("How %s spreads flows is not known: %s", name, error)
            return unknown

    def _below(self, name: str) -> str | None:
        """The netdev whose queues the packets come in by: of a VLAN the one below, of a bond the one in use."""
        for _ in range(4):
            if active := read_text(self._root, f"{CLASS}/{name}/bonding/active_slave"):
                name = active
                continue
            lower = [n.removeprefix("lower_") for n in names(self._root, f"{CLASS}/{name}") if n.startswith("lower_")]
            if not lower:
                return name
            if len(lower) > 1:
                return None
            [name] = lower
        return None

    def _virtual(self, name: str, queues: list[Queue]) -> Place:
        if len(queues) == 1 and (cpus := self._rps(queues[0])):
            return Place(name, queues[0].name, None, cpus[0], "rps") if len(cpus) == 1 else Place(name, queues[0].name)
        if any(self._rps(queue) for queue in queues) or self._flow_steered(name, queues) or self._softirq_cpu is None:
            return Place(name)
        return Place(name, None, None, self._softirq_cpu, "softirq")

    def _queue(self, name: str, queue: Queue, steered: bool) -> Place:
        """Where a queue's packets are handled. steered: by flow, or by a thread of the kernel; not by interrupt."""
        cpus = self._rps(queue)
        if steered or len(cpus) > 1:
            return Place(name, queue.name, queue.irq)
        if cpus:
            return Place(name, queue.name, queue.irq, cpus[0], "rps")
        irq = self._inventory.irq(queue.irq) if queue.irq is not None else None
        where = parse_cpu_list((irq.effective or irq.requested or "") if irq is not None else "")
        cpu = next(iter(where)) if len(where) == 1 else None
        return Place(name, queue.name, queue.irq, cpu, None if cpu is None else "rss")

    def _spread(
        self, netdev: Netdev, steering: Steering, queues: list[Queue], places: list[Place], rfs: frozenset[str]
    ) -> _Way:
        told = self._rss_of(netdev.name)
        alone = Place(netdev.name)
        if told is None or told.hash_function not in ("toeplitz", "") or not told.table:
            return _Way(alone)
        key = told.key
        if not any(key) and netdev.driver in _OWN_KEY_UNTOLD:
            key = self._kernel_key()
        numbers = {queue.name: number for number, queue in enumerate(queues)}
        if len(key) < _KEY_BYTES or not any(key) or any(f"rx-{entry}" not in numbers for entry in told.table):
            return _Way(alone)
        entries = [numbers[f"rx-{entry}"] for entry in told.table]
        rps: list[list[Place]] = [[] for _ in queues]
        if netdev.driver in _RPS_TAKES_HASH:
            for number, queue in enumerate(queues):
                if queue.name not in rfs and len(cpus := self._rps(queue)) > 1:
                    rps[number] = [Place(netdev.name, queue.name, queue.irq, cpu, "rps") for cpu in cpus]
        return _Way(
            alone,
            _toeplitz(key[:_KEY_BYTES]),
            steering.tcp_4,
            steering.tcp_6,
            [places[entry] for entry in entries],
            [rps[entry] for entry in entries],
        )

    def _kernel_key(self) -> bytes:
        try:
            return bytes.fromhex((read_text(self._root, _KERNEL_KEY) or "").replace(":", ""))
        except ValueError:
            return b""

    def _flow_steered(self, name: str, queues: list[Queue]) -> frozenset[str]:
        """The queues whose packets are handed to the CPU where their flow is read (RFS)."""
        if not read_int(self._root, _FLOW_LIMIT):
            return frozenset()
        return frozenset(
            queue.name
            for queue in queues
            if (read_bytes(self._root, f"{CLASS}/{name}/queues/{queue.name}/rps_flow_cnt") or b"0").strip() != b"0"
        )

    def _rps(self, queue: Queue) -> list[int]:
        """The online CPUs of a queue's RPS, in the kernel's order."""
        if not queue.rps:
            return []
        if self._online is None:
            self._online = read_cpus(self._root, _ONLINE) or frozenset()
        return sorted(parse_cpu_list(queue.rps) & self._online)


@lru_cache(maxsize=4)
def _toeplitz(key: bytes) -> Toeplitz:
    return Toeplitz(key)
