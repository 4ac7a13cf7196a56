"""Finds the processes that use the network, their traffic, and where their packets are handled."""

import logging
import os
import time
from collections.abc import Iterable, Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from coresteer_agent.collect.cgroups import CgroupWeights
from coresteer_agent.collect.irq import is_running_kernel
from coresteer_agent.collect.tcp_sockets import SocketTraffic, TcpSockets
from coresteer_agent.linux.addresses import Addresses
from coresteer_agent.linux.bpf import BpfRefusedError
from coresteer_agent.linux.byte_counters import TCP, ByteCounters
from coresteer_agent.observe.heavy_flows import HeavyFlows
from coresteer_agent.observe.net_tasks import TICKS_PER_S, TaskFacts, TaskReader, read_cgroup_ids, read_cgroup_processes
from coresteer_agent.observe.rx_placement import RxPlacements, RxTarget
from coresteer_agent.observe.socket_owners import SocketOwners
from coresteer_core.node.inventory import Inventory
from coresteer_core.node.rates import Rates
from coresteer_core.node.tasks import HeavyFlow, NetTask, RxPlacement

_log = logging.getLogger(__name__)

MAX_TASKS = 200
"""Maximum number of reported tasks; those with the most traffic come first."""
_RETENTION_S = 600.0
"""A process without traffic for longer is not reported."""
_MAX_SEARCHED = 2_000
"""Maximum number of sockets whose process is searched at once; those with the most traffic."""
_MAX_HINTS = 32
"""Maximum number of processes in a cgroup that are searched first."""
_ADDRESSES_S = 60.0
_CGROUPS_S = 60.0
_NOISE = 0.1
_LISTENER_READS = 4
"""Processes of listening sockets are searched at every fourth read, and when there is a new socket."""
_MAX_CLIENTS = 64
"""Maximum number of client addresses counted per process and read; the busiest of them are reported."""
_MAX_CLIENTS_REPORTED = 8
_MAX_PORTS_REPORTED = 1024
_UNKNOWN_TARGET = RxTarget("")
_Bytes: TypeAlias = tuple[int, int]
"""Received and sent bytes."""


class _Traffic(Struct):
    """Traffic of one process's sockets with the same target since the last read."""

    target: RxTarget
    sockets: int = 0
    received: int = 0
    sent: int = 0
    idle_ms: int = 1 << 32


class _ServedTraffic(Struct):
    """Traffic of the connections that a process accepted, in one read. clients: bytes by address."""

    ports: set[int] = set()
    clients: dict[bytes, int] = {}


class _Process(Struct):
    """A process that has network traffic or listens.

    active_s: monotonic time of its last traffic, None before any. listens: ports at which it accepts connections.
    clients: bytes by client address, of the last read with traffic.
    """

    active_s: float | None = None
    started_ticks: int | None = None
    listens: set[int] = set()
    clients: dict[bytes, int] = {}


class Connection(Struct, frozen=True):
    """A TCP connection that a process accepted and that had traffic since the last read.

    client: its address, 4 or 16 bytes. rtt_us: the smoothed round-trip time, None before it is measured.
    """

    pid: int
    client: bytes
    port: int
    rtt_us: int | None


class FlowReader:
    """Finds the processes with TCP traffic in this network namespace; call read() every few seconds.

    Bytes are the kernel's counters of each TCP socket that is open at a read; UDP sockets, those closed before the next
    read and those of other network namespaces are not included. exact: eBPF programs count as well, so that all bytes
    of a process are included; those of no listed socket have an RX placement without a netdev.

    A captured tree has no sockets. If the kernel does not list them there are no tasks, which is logged once.
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
        self._reads = 0
        self._task_reader = TaskReader(root)
        self._processes: dict[int, _Process] = {}
        self._cgroups: dict[int, str] = {}
        self._cgroups_read_s = float("-inf")
        self._read_s: float | None = None
        self._counters: ByteCounters | None = None
        self._counts: dict[tuple[int, int], tuple[int, int]] = {}
        self._moved: list[SocketTraffic] = []
        self._listening: dict[int, int] = {}
        self._ports: frozenset[int] = frozenset()
        self._served: dict[int, _ServedTraffic] = {}
        self._weights = CgroupWeights(root)
        self.exact = False

    def read(self, inventory: Inventory, rates: Iterable[Rates] = ()) -> list[NetTask]:
        """Return the processes that use the network, the busiest first; none at the first read.

        rates: of the intervals since the last read. RX placements are of the sockets with traffic since then.
        """
        if not self._live:
            return []
        try:
            return self._read(inventory, rates)
        except OSError as error:
            if not self._refused:
                _log.warning("The processes that use the network cannot be determined: %s.", error)
            self._refused = True
            self.close()
            return []

    def connections(self) -> Iterator[Connection]:
        """Yield the accepted connections that had traffic between the last two reads."""
        for tcp, flow, *_ in self._moved:
            if flow.port in self._ports and (pid := self._owners.pid(tcp.inode)) is not None:
                yield Connection(pid, flow.peer, flow.port, tcp.rtt_us or None)

    def cgroups(self, tasks: Iterable[NetTask]) -> dict[str, dict[str, str]]:
        """Return the weights of the tasks' cgroups, by cgroup path and weight name."""
        paths = [path.lstrip("/") for task in tasks for path in (task.cgroup, task.cpu_cgroup) if path is not None]
        return self._weights.read(paths)

    def close(self) -> None:
        """Close the netlink socket and stop the eBPF byte counters."""
        self._moved, self._listening = [], {}
        if self._counters is not None:
            self._counters.close()
            self._counters = None
        if self._sockets is not None:
            self._sockets.close()
            self._sockets = None
        self._read_s = None

    def _read(self, inventory: Inventory, rates: Iterable[Rates]) -> list[NetTask]:
        if self._sockets is None:
            self._sockets = TcpSockets()
            self._open_counters()
        moved, gone = self._sockets.read()
        self._find_listeners()
        self._served = {}
        exact = self._exact_bytes()
        before_s, now_s = self._read_s, time.monotonic()
        self._read_s = now_s
        if before_s is None:
            return []
        self._owners.forget_sockets(gone)
        placements = RxPlacements(inventory, self._current_addresses(now_s), rates)
        traffic: dict[int, dict[int, _Traffic]] = {}
        self._moved = moved
        heavy = HeavyFlows(placements, now_s - before_s)
        unknown = self._count(moved, placements, traffic, heavy)
        if unknown:
            self._find_owners(unknown, now_s)
            self._count(unknown, placements, traffic, heavy)
        for pid, (tcp, udp) in exact.items():
            self._add_unlisted(traffic.setdefault(pid, {}), tcp, udp)
        return self._tasks(traffic, heavy, now_s - before_s, now_s)

    def _find_listeners(self) -> None:
        """Find the processes of listening sockets, in a separate search so that active sockets do not wait for it."""
        if self._sockets is None:
            return
        before, self._listening = self._listening, self._sockets.listening()
        self._ports = frozenset(self._listening.values())
        self._listeners.forget_sockets(before.keys() - self._listening.keys())
        unknown = [inode for inode in self._listening if self._listeners.pid(inode) is None]
        self._reads += 1
        if unknown and (self._reads % _LISTENER_READS == 1 or not self._listening.keys() <= before.keys()):
            self._listeners.find(unknown)

    def _open_counters(self) -> None:
        try:
            self._counters = ByteCounters(self._root)
        except BpfRefusedError as error:
            _log.info("Bytes of UDP and of short TCP connections are not counted: eBPF is not permitted: %s.", error)
        self._counts = {}
        self.exact = self._counters is not None

    def _exact_bytes(self) -> dict[int, tuple[_Bytes, _Bytes]]:
        """Return the bytes of each process since the last read, over TCP and over UDP."""
        if self._counters is None:
            return {}
        before, self._counts = self._counts, self._counters.read()
        exact: dict[int, tuple[_Bytes, _Bytes]] = {}
        for (pid, protocol), now in self._counts.items():
            previous = before.get((pid, protocol), (0, 0))
            if now == previous:
                continue
            if now[0] < previous[0] or now[1] < previous[1]:
                previous = (0, 0)  # the entry was evicted in the meantime and started at 0
            moved = (now[0] - previous[0], now[1] - previous[1])
            tcp, udp = exact.get(pid, ((0, 0), (0, 0)))
            exact[pid] = (moved, udp) if protocol == TCP else (tcp, moved)
        return exact

    @staticmethod
    def _add_unlisted(targets: dict[int, _Traffic], tcp: _Bytes, udp: _Bytes) -> None:
        """Add bytes that eBPF counted but no listed socket accounts for, with an unknown target.

        The kernel counts bytes of a listed socket when they are acknowledged, eBPF when they are written; a small
        difference is therefore ignored.
        """
        rest = list(udp)
        for direction, listed in enumerate(
            (sum(one.received for one in targets.values()), sum(one.sent for one in targets.values()))
        ):
            if tcp[direction] - listed > _NOISE * tcp[direction]:
                rest[direction] += tcp[direction] - listed
        if any(rest):
            targets[id(_UNKNOWN_TARGET)] = _Traffic(_UNKNOWN_TARGET, 0, rest[0], rest[1], 0)

    def _find_owners(self, unknown: list[SocketTraffic], now_s: float) -> None:
        if len(unknown) > _MAX_SEARCHED:
            unknown.sort(key=lambda one: -(one[2] + one[3]))
            del unknown[_MAX_SEARCHED:]
        groups = {flow.cgroup_id for _, flow, *_ in unknown if flow.cgroup_id is not None}
        if not groups <= self._cgroups.keys() and now_s - self._cgroups_read_s >= _CGROUPS_S:
            self._cgroups_read_s = now_s
            self._cgroups = read_cgroup_ids(self._root)
        hints = []
        for folder in [self._cgroups[group] for group in groups if group in self._cgroups]:
            processes = read_cgroup_processes(self._root, folder)
            if len(processes) <= _MAX_HINTS:
                hints += processes
        self._owners.find([one[0].inode for one in unknown], hints)

    def _current_addresses(self, now_s: float) -> Addresses:
        if self._addresses is None:
            self._addresses = Addresses()
            self._addresses_read_s = now_s
        elif self._addresses.missed or now_s - self._addresses_read_s >= _ADDRESSES_S:
            self._addresses.read()
            self._addresses_read_s = now_s
        return self._addresses

    def _count(
        self,
        moved: list[SocketTraffic],
        placements: RxPlacements,
        traffic: dict[int, dict[int, _Traffic]],
        heavy: HeavyFlows,
    ) -> list[SocketTraffic]:
        """Add the sockets' traffic by process and target; return the sockets whose process is not known."""
        unknown = []
        ports = self._ports
        pid_of = self._owners.pid
        target_of = placements.target
        least = heavy.least
        for one in moved:
            tcp, flow, sent, received, idle_ms = one
            pid = pid_of(tcp.inode)
            if pid is None:
                unknown.append(one)
                continue
            target = target_of(tcp, flow)
            if (by_target := traffic.get(pid)) is None:
                by_target = traffic[pid] = {}
            if (part := by_target.get(id(target))) is None:
                part = by_target[id(target)] = _Traffic(target)
            part.sockets += 1
            part.received += received
            part.sent += sent
            if idle_ms < part.idle_ms:  # noqa: PLR1730 - for each socket; min() costs three times as much
                part.idle_ms = idle_ms
            if received > least:
                heavy.add(pid, received, tcp, flow, target)
            if flow.port in ports:
                if (served := self._served.get(pid)) is None:
                    served = self._served[pid] = _ServedTraffic()
                served.ports.add(flow.port)
                if flow.peer in served.clients or len(served.clients) < _MAX_CLIENTS:
                    served.clients[flow.peer] = served.clients.get(flow.peer, 0) + sent + received
        return unknown

    def _tasks(
        self, traffic: dict[int, dict[int, _Traffic]], heavy: HeavyFlows, elapsed_s: float, now_s: float
    ) -> list[NetTask]:
        moved = {}
        for pid, targets in traffic.items():
            moved[pid] = sum(part.received + part.sent for part in targets.values())
            active_s = now_s - min(part.idle_ms for part in targets.values()) / 1000
            process = self._processes.setdefault(pid, _Process())
            process.active_s = active_s if process.active_s is None else max(process.active_s, active_s)
        self._update_listeners()
        self._task_reader.begin_round()
        tasks: list[NetTask] = []
        for pid in sorted(
            self._processes, key=lambda pid: (-moved.get(pid, 0), -(self._processes[pid].active_s or 0.0))
        ):
            process = self._processes[pid]
            silent = process.active_s is None or now_s - process.active_s > _RETENTION_S
            if len(tasks) == MAX_TASKS or (silent and not process.listens):
                if pid not in moved:
                    self._forget(pid)
                continue
            facts = self._task_reader.read(pid)
            if facts is None or process.started_ticks not in (None, facts.started_ticks):
                self._forget(pid)
                self._owners.forget_process(pid)
                self._listeners.forget_process(pid)
                continue
            process.started_ticks = facts.started_ticks
            placements = [_rx_placement(part, elapsed_s) for part in traffic.get(pid, {}).values()]
            tasks.append(_task(pid, facts, process, now_s, placements=placements, flows=heavy.take(pid)))
        return tasks

    def _update_listeners(self) -> None:
        """Update the listening ports of processes that hold a listening socket or accepted a connection."""
        for process in self._processes.values():
            process.listens &= self._ports
        for inode, port in self._listening.items():
            if (pid := self._listeners.pid(inode)) is not None:
                self._processes.setdefault(pid, _Process()).listens.add(port)
        for pid, served in self._served.items():
            process = self._processes[pid]
            process.listens |= served.ports
            process.clients = served.clients

    def _forget(self, pid: int) -> None:
        del self._processes[pid]
        self._task_reader.forget(pid)


def _rx_placement(part: _Traffic, elapsed_s: float) -> RxPlacement:
    target = part.target
    return RxPlacement(
        netdev=target.netdev,
        queue=target.queue,
        irq=target.irq,
        cpu=target.cpu,
        how=target.how,
        sockets=part.sockets,
        rx_bytes_per_s=part.received / elapsed_s,
        tx_bytes_per_s=part.sent / elapsed_s,
        rfs=target.rfs,
    )


def _task(
    pid: int,
    facts: TaskFacts,
    process: _Process,
    now_s: float,
    *,
    placements: list[RxPlacement],
    flows: list[HeavyFlow],
) -> NetTask:
    identity, scheduling = facts.identity, facts.scheduling
    active_s = process.active_s
    if active_s is None:  # no traffic was observed since its start
        active_s = now_s - time.clock_gettime(time.CLOCK_BOOTTIME) + facts.started_ticks / TICKS_PER_S
    busiest = sorted(process.clients, key=lambda address: -process.clients[address])[:_MAX_CLIENTS_REPORTED]
    has_nice = not (scheduling.kernel or scheduling.realtime)
    return NetTask(
        pid=pid,
        started_ticks=facts.started_ticks,
        name=facts.name,
        cgroup=identity.groups.unified,
        threads=facts.threads,
        affinity=facts.affinity,
        allowed=facts.allowed,
        cpu=facts.cpu,
        cpu_share=facts.cpu_share,
        idle_s=max(now_s - active_s, 0.0),
        rx_placements=sorted(placements, key=lambda placement: -placement.bytes_per_s),
        user=identity.user,
        command=identity.command,
        unit=identity.groups.unit,
        listens=sorted(process.listens)[:_MAX_PORTS_REPORTED],
        clients=[str(ip_address(address)) for address in busiest],
        params={"nice": str(scheduling.nice)} if has_nice else {},
        cpu_cgroup=identity.groups.cpu,
        kernel=scheduling.kernel,
        realtime=scheduling.realtime,
        agent=pid == os.getpid(),
        flows=flows,
        pod=identity.pod,
        threads_differ=facts.threads_differ,
    )
