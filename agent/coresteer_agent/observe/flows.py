"""Which processes talk over the network, how much, and where their packets arrive."""

import logging
import time
from collections.abc import Iterable, Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from coresteer_agent.collect.cgroups import CgroupWeights
from coresteer_agent.collect.irq import is_running_kernel
from coresteer_agent.collect.tcp_sockets import Moved, TcpSockets
from coresteer_agent.linux.addresses import Addresses
from coresteer_agent.linux.bpf import TCP, BpfRefusedError, ByteCounters
from coresteer_agent.observe.net_tasks import TICKS_PER_S, Facts, NetTasks, read_cgroup_ids, read_cgroup_processes
from coresteer_agent.observe.rx_placement import Place, RxPlacements
from coresteer_agent.observe.socket_owners import SocketOwners
from coresteer_core.node.inventory import Inventory
from coresteer_core.node.rates import Rates
from coresteer_core.node.tasks import NetTask, RxPlacement

_log = logging.getLogger(__name__)

MAX_TASKS = 200
"""So many are told, those that move most bytes first."""
_REMEMBERED_S = 600.0
"""A process that was silent for longer is told no more."""
_NEWCOMERS = 2_000
"""Sockets looked for at once, those that move most bytes."""
_FEW = 32
"""A control group of more processes is no hint where to look first."""
_ADDRESSES_S = 60.0
_CGROUPS_S = 60.0
_NOISE = 0.1
_LISTENERS = 4
"""Who holds a listening socket is searched for at every fourth look, and when there is a new one."""
_CLIENTS = 64
"""Addresses counted of one process at a look, the first that moved bytes; of them the busiest are told."""
_CLIENTS_TOLD = 8
_PORTS_TOLD = 1024
_NOWHERE = Place("")
_Bytes: TypeAlias = tuple[int, int]
"""Received and sent."""


class _Traffic(Struct):
    """What the sockets of one process that land in one place did since the last look."""

    place: Place
    sockets: int = 0
    received: int = 0
    sent: int = 0
    idle_ms: int = 1 << 32


class _Served(Struct):
    """What a process did for others at one look. clients: bytes by address."""

    ports: set[int] = set()
    clients: dict[bytes, int] = {}


class _Talker(Struct):
    """A process that communicates or listens.

    active_s: monotonic time of its last byte, None as long as no look saw any. listens: ports it accepts connections
    at. clients: bytes by address of those whose connections it accepted, of the last look at which they moved any.
    """

    active_s: float | None = None
    started_ticks: int | None = None
    listens: set[int] = set()
    clients: dict[bytes, int] = {}


class Connection(Struct, frozen=True):
    """A connection that a process accepted and that moved bytes since the last look.

    client: its address, 4 or 16 bytes. rtt_us: the smoothed round-trip time, None where it was never measured.
    """

    pid: int
    client: bytes
    port: int
    rtt_us: int | None


class FlowReader:
    """Follows the TCP sockets of this network namespace; call read() every few seconds.

    Bytes are what the kernel lists of each TCP socket that is open at a look; UDP sockets, those closed before the next
    look and those of other network namespaces tell nothing. exact: the kernel lets eBPF programs count as well, so
    that a process's bytes are all there; those that no listed socket tells of have a rx_placement without a netdev.

    A captured tree has no sockets. Where the kernel does not list them there are no tasks, which is logged once.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._live = is_running_kernel(root)
        self._refused = False
        self._sockets: TcpSockets | None = None
        self._addresses: Addresses | None = None
        self._addresses_read_s = 0.0
        self._owners = SocketOwners()
        self._listeners = SocketOwners()
        self._looks = 0
        self._facts = NetTasks(root)
        self._talkers: dict[int, _Talker] = {}
        self._cgroups: dict[int, str] = {}
        self._cgroups_read_s = float("-inf")
        self._looked_s: float | None = None
        self._counters: ByteCounters | None = None
        self._counted: dict[tuple[int, int], tuple[int, int]] = {}
        self._moved: list[Moved] = []
        self._listening: dict[int, int] = {}
        self._ports: frozenset[int] = frozenset()
        self._served: dict[int, _Served] = {}
        self._weights = CgroupWeights(root)
        self.exact = False

    def read(self, inventory: Inventory, rates: Iterable[Rates] = ()) -> list[NetTask]:
        """The processes that communicate, the busiest first; none at the first look. rates: since the last look.

        RxPlacements are of the sockets that moved bytes since then; a process that has been silent has none.
        """
        if not self._live:
            return []
        try:
            return self._read(inventory, rates)
        except OSError as error:
            if not self._refused:
                _log.warning("Which processes use the network is not known: %s.", error)
            self._refused = True
            self.close()
            return []

    def connections(self) -> Iterator[Connection]:
        """Those that moved bytes between the last two looks, each with its process."""
        for tcp, flow, *_ in self._moved:
            if flow.port in self._ports and (pid := self._owners.pid(tcp.inode)) is not None:
                yield Connection(pid, flow.peer, flow.port, tcp.rtt_us or None)

    def cgroups(self, tasks: Iterable[NetTask]) -> dict[str, dict[str, str]]:
        """The weights of the control groups that these are in, as View has them."""
        paths = [path.lstrip("/") for task in tasks for path in (task.cgroup, task.cpu_cgroup) if path is not None]
        return self._weights.read(paths)

    def close(self) -> None:
        """Let the kernel's sockets and counters go."""
        self._moved, self._listening = [], {}
        if self._counters is not None:
            self._counters.close()
            self._counters = None
        if self._sockets is not None:
            self._sockets.close()
            self._sockets = None
        self._looked_s = None

    def _read(self, inventory: Inventory, rates: Iterable[Rates]) -> list[NetTask]:
        if self._sockets is None:
            self._sockets = TcpSockets()
            self._begin_counting()
        moved, gone = self._sockets.read()
        self._look_for_listeners()
        self._served = {}
        exact = self._exact_bytes()
        before_s, now_s = self._looked_s, time.monotonic()
        self._looked_s = now_s
        if before_s is None:
            return []
        self._owners.forget_sockets(gone)
        rx_placements = RxPlacements(inventory, self._fresh_addresses(now_s), rates)
        traffic: dict[int, dict[int, _Traffic]] = {}
        self._moved = moved
        unknown = self._count(moved, rx_placements, traffic)
        if unknown:
            self._find_owners(unknown, now_s)
            self._count(unknown, rx_placements, traffic)
        for pid, (tcp, udp) in exact.items():
            self._add_rest(traffic.setdefault(pid, {}), tcp, udp)
        return self._tasks(traffic, now_s - before_s, now_s)

    def _look_for_listeners(self) -> None:
        """Their processes are searched apart, and seldom: no search for a socket that moves bytes waits for it."""
        if self._sockets is None:
            return
        before, self._listening = self._listening, self._sockets.listening()
        self._ports = frozenset(self._listening.values())
        self._listeners.forget_sockets(before.keys() - self._listening.keys())
        unknown = [inode for inode in self._listening if self._listeners.pid(inode) is None]
        self._looks += 1
        if unknown and (self._looks % _LISTENERS == 1 or not self._listening.keys() <= before.keys()):
            self._listeners.find(unknown)

    def _begin_counting(self) -> None:
        try:
            self._counters = ByteCounters(self._root)
        except BpfRefusedError as error:
            _log.info("Bytes of UDP and of short TCP connections are not known, because eBPF is refused: %s.", error)
        self._counted = {}
        self.exact = self._counters is not None

    def _exact_bytes(self) -> dict[int, tuple[_Bytes, _Bytes]]:
        """What each process received and sent since the last look, over TCP and UDP."""
        if self._counters is None:
            return {}
        before, self._counted = self._counted, self._counters.read()
        exact: dict[int, tuple[_Bytes, _Bytes]] = {}
        for (pid, protocol), now in self._counted.items():
            was = before.get((pid, protocol), (0, 0))
            if now == was:
                continue
            if now[0] < was[0] or now[1] < was[1]:
                was = (0, 0)  # it was dropped meanwhile, and began anew
            moved = (now[0] - was[0], now[1] - was[1])
            tcp, udp = exact.get(pid, ((0, 0), (0, 0)))
            exact[pid] = (moved, udp) if protocol == TCP else (tcp, moved)
        return exact

    @staticmethod
    def _add_rest(places: dict[int, _Traffic], tcp: _Bytes, udp: _Bytes) -> None:
        """Bytes that no listed socket tells of are added at an unknown place.

        Bytes of a listed socket count there when they are acknowledged, here when they are written; so a small
        difference means nothing.
        """
        rest = list(udp)
        for side, listed in enumerate(
            (sum(one.received for one in places.values()), sum(one.sent for one in places.values()))
        ):
            if tcp[side] - listed > _NOISE * tcp[side]:
                rest[side] += tcp[side] - listed
        if any(rest):
            places[id(_NOWHERE)] = _Traffic(_NOWHERE, 0, rest[0], rest[1], 0)

    def _find_owners(self, unknown: list[Moved], now_s: float) -> None:
        if len(unknown) > _NEWCOMERS:
            unknown.sort(key=lambda one: -(one[2] + one[3]))
            del unknown[_NEWCOMERS:]
        groups = {flow.cgroup_id for _, flow, *_ in unknown if flow.cgroup_id is not None}
        if not groups <= self._cgroups.keys() and now_s - self._cgroups_read_s >= _CGROUPS_S:
            self._cgroups_read_s = now_s
            self._cgroups = read_cgroup_ids(self._root)
        hints = []
        for folder in [self._cgroups[group] for group in groups if group in self._cgroups]:
            processes = read_cgroup_processes(self._root, folder)
            if len(processes) <= _FEW:
                hints += processes
        self._owners.find([one[0].inode for one in unknown], hints)

    def _fresh_addresses(self, now_s: float) -> Addresses:
        if self._addresses is None:
            self._addresses = Addresses()
            self._addresses_read_s = now_s
        elif self._addresses.missed or now_s - self._addresses_read_s >= _ADDRESSES_S:
            self._addresses.read()
            self._addresses_read_s = now_s
        return self._addresses

    def _count(
        self, moved: list[Moved], rx_placements: RxPlacements, traffic: dict[int, dict[int, _Traffic]]
    ) -> list[Moved]:
        """Add to the traffic by process and place; returns what no process is known for."""
        unknown = []
        ports = self._ports
        pid_of = self._owners.pid
        place_of = rx_placements.place
        for one in moved:
            tcp, flow, sent, received, idle_ms = one
            pid = pid_of(tcp.inode)
            if pid is None:
                unknown.append(one)
                continue
            place = place_of(tcp, flow)
            if (here := traffic.get(pid)) is None:
                here = traffic[pid] = {}
            if (counted := here.get(id(place))) is None:
                counted = here[id(place)] = _Traffic(place)
            counted.sockets += 1
            counted.received += received
            counted.sent += sent
            if idle_ms < counted.idle_ms:  # noqa: PLR1730 - for each socket; min() costs three times as much
                counted.idle_ms = idle_ms
            if flow.port in ports:
                if (served := self._served.get(pid)) is None:
                    served = self._served[pid] = _Served()
                served.ports.add(flow.port)
                if flow.peer in served.clients or len(served.clients) < _CLIENTS:
                    served.clients[flow.peer] = served.clients.get(flow.peer, 0) + sent + received
        return unknown

    def _tasks(self, traffic: dict[int, dict[int, _Traffic]], elapsed_s: float, now_s: float) -> list[NetTask]:
        moved = {}
        for pid, places in traffic.items():
            moved[pid] = sum(counted.received + counted.sent for counted in places.values())
            active_s = now_s - min(counted.idle_ms for counted in places.values()) / 1000
            talker = self._talkers.setdefault(pid, _Talker())
            talker.active_s = active_s if talker.active_s is None else max(talker.active_s, active_s)
        self._note_listeners()
        self._facts.round()
        tasks: list[NetTask] = []
        for pid in sorted(self._talkers, key=lambda pid: (-moved.get(pid, 0), -(self._talkers[pid].active_s or 0.0))):
            talker = self._talkers[pid]
            silent = talker.active_s is None or now_s - talker.active_s > _REMEMBERED_S
            if len(tasks) == MAX_TASKS or (silent and not talker.listens):
                if pid not in moved:
                    self._forget(pid)
                continue
            facts = self._facts.look(pid)
            if facts is None or talker.started_ticks not in (None, facts.started_ticks):
                self._forget(pid)
                self._owners.forget_process(pid)
                self._listeners.forget_process(pid)
                continue
            talker.started_ticks = facts.started_ticks
            rx_placements = [_rx_placement(counted, elapsed_s) for counted in traffic.get(pid, {}).values()]
            tasks.append(_task(pid, facts, talker, now_s, rx_placements))
        return tasks

    def _note_listeners(self) -> None:
        """Who accepts connections: holds the socket for it, or served one that came there."""
        for talker in self._talkers.values():
            talker.listens &= self._ports
        for inode, port in self._listening.items():
            if (pid := self._listeners.pid(inode)) is not None:
                self._talkers.setdefault(pid, _Talker()).listens.add(port)
        for pid, served in self._served.items():
            talker = self._talkers[pid]
            talker.listens |= served.ports
            talker.clients = served.clients

    def _forget(self, pid: int) -> None:
        del self._talkers[pid]
        self._facts.forget(pid)


def _rx_placement(counted: _Traffic, elapsed_s: float) -> RxPlacement:
    place = counted.place
    return RxPlacement(
        netdev=place.netdev,
        queue=place.queue,
        irq=place.irq,
        cpu=place.cpu,
        how=place.how,
        sockets=counted.sockets,
        rx_bytes_per_s=counted.received / elapsed_s,
        tx_bytes_per_s=counted.sent / elapsed_s,
    )


def _task(pid: int, facts: Facts, talker: _Talker, now_s: float, rx_placements: list[RxPlacement]) -> NetTask:
    who, scheduling = facts.who, facts.scheduling
    active_s = talker.active_s
    if active_s is None:  # not since it started, as far as was seen
        active_s = now_s - time.clock_gettime(time.CLOCK_BOOTTIME) + facts.started_ticks / TICKS_PER_S
    busiest = sorted(talker.clients, key=lambda address: -talker.clients[address])[:_CLIENTS_TOLD]
    weighed = not (scheduling.kernel or scheduling.realtime)
    return NetTask(
        pid=pid,
        started_ticks=facts.started_ticks,
        name=facts.name,
        cgroup=who.groups.unified,
        threads=facts.threads,
        affinity=facts.affinity,
        allowed=facts.allowed,
        cpu=facts.cpu,
        cpu_share=facts.cpu_share,
        idle_s=max(now_s - active_s, 0.0),
        rx_placements=sorted(rx_placements, key=lambda rx_placement: -rx_placement.bytes_per_s),
        user=who.user,
        command=who.command,
        unit=who.groups.unit,
        listens=sorted(talker.listens)[:_PORTS_TOLD],
        clients=[str(ip_address(address)) for address in busiest],
        params={"nice": str(scheduling.nice)} if weighed else {},
        cpu_cgroup=who.groups.cpu,
        kernel=scheduling.kernel,
        realtime=scheduling.realtime,
    )
