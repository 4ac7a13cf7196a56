"""Keeps the boosts of the policy ``coscheduling`` between two rounds of the policy engine.

Every period it reads the receive queues of the job's processes and how they were scheduled, exchanges loads with the
agents of the peers, and boosts the first processes of the order (coresteer_core/policies/coscheduling) by their nice
values until the next period. The engine has enrolled the processes, so their originals are in the journal; a boost that
a killed agent left behind ends in the first period of the next one, or by ``coresteer-agent restore``.

A load belongs to a set of CPUs with its own run queue, found by the remote address of a socket: the CPUs of the process
at the other end where that is one of the job on this machine, otherwise the whole node of that address.
"""

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Protocol

from msgspec.structs import replace

from coresteer_agent.collect.cgroups import find_version_2
from coresteer_agent.collect.irq import is_running_kernel
from coresteer_agent.collect.schedstat import read_activity
from coresteer_agent.linux.bpf import BpfRefusedError
from coresteer_agent.linux.tcp_option import TcpOption
from coresteer_agent.observe.job_sockets import JobSockets, local_peer
from coresteer_agent.transport.load_beacon import LoadBeacon
from coresteer_agent.transport.load_carrier import Heard, LoadCarrier
from coresteer_agent.transport.load_option import LoadOption
from coresteer_core.changes.plan import Action
from coresteer_core.changes.report import Result
from coresteer_core.cpuset import format_cpu_list, parse_cpu_list
from coresteer_core.node.tasks import Coscheduled, NetTask, ThreadActivity
from coresteer_core.node.view import View
from coresteer_core.policies.base import Mode
from coresteer_core.policies.coscheduling.boost import (
    BY_AGE,
    ArrivalLoads,
    PendingMessage,
    Received,
    Reordering,
    Urgency,
    choose,
    order,
)
from coresteer_core.policies.coscheduling.load import LoadMeter, PeerLoad
from coresteer_core.policies.coscheduling.policy import find_members
from coresteer_core.policies.coscheduling.spec import Coscheduling
from coresteer_core.policies.engine_state import PolicyInForce
from coresteer_core.settings import TaskNice

log = logging.getLogger("coresteer.coscheduling")

MAX_RECORDS = 1024
"""Reorderings kept, the latest: 51 s of one set of CPUs at the default period."""
MAX_MEMBERS = 128
"""Processes of the job on a node that are observed, those with the most traffic."""
_LEAST_PERIOD = 10
"""A period is at least this many times as long as the CPU time that its start uses: at most a tenth of a CPU."""
_PAUSE_S = 30.0
"""A process that could not be boosted is not tried again for this long."""
_ORDER = {Mode.ENFORCE: 0, Mode.RECOMMEND: 1, Mode.OBSERVE: 2}


class SteerableSettings(Protocol):
    """Provides the settings whose values may be steered: the PolicyRunner."""

    def steerable(self, policy_id: str) -> dict[str, str]:
        """Return the values of the settings that an enforced policy may steer now, by key."""

    def original(self, key: str) -> str:
        """Return the value of a steerable setting from before any policy set it."""

    def record_steering(self, key: str, value: str) -> None:
        """Record another value of a steerable setting."""


class CoschedulingRunner:
    """Boosts the processes of one job. A node has one such policy: that with the strongest mode, then the lowest rank.

    write: gives a held setting another value. option_ports: TCP ports whose messages carry loads instead of datagrams.
    """

    def __init__(
        self,
        root: Path,
        steerable: SteerableSettings,
        write: Callable[[Action], Result],
        option_ports: Sequence[range] = (),
    ) -> None:
        self._root = root
        self._live = is_running_kernel(root)
        self._steerable = steerable
        self._write = write
        self._option = open_tcp_option(root, option_ports)
        """Of the agent's whole run, since connections from before do not carry loads."""
        self._carrier: LoadCarrier | None = None
        self._carrier_failed = False
        self._sockets = JobSockets()
        self._policy: PolicyInForce | None = None
        self._spec = Coscheduling()
        self._members: dict[int, NetTask] = {}
        self._cpus: dict[int, str] = {}
        self._meters: dict[str, LoadMeter] = {}
        self._node_meter = LoadMeter()
        self._arrivals = ArrivalLoads()
        self._paused: dict[str, float] = {}
        self._boosted: dict[str, str] = {}
        """The own values of the settings boosted in this period, by key."""
        self._reports: dict[int, Coscheduled] = {}
        self._due_s = math.inf
        self.records: deque[Reordering] = deque(maxlen=MAX_RECORDS)
        """The last choices with their inputs, from which each can be computed again."""

    @property
    def active(self) -> bool:
        """Return whether a policy is in force."""
        return self._policy is not None

    @property
    def due(self) -> float:
        """Return when the next period begins, in monotonic seconds."""
        return self._due_s

    def set_policies(self, policies: Iterable[PolicyInForce]) -> None:
        """Replace the policies in force; boosts of one that is not enforced any more end now."""
        ours = [policy for policy in policies if isinstance(policy.spec, Coscheduling)]
        policy = min(ours, key=lambda each: (_ORDER[each.mode], *each.precedence), default=None) if self._live else None
        if policy == self._policy:
            return
        self.close()
        if policy is not None and isinstance(policy.spec, Coscheduling):
            self._policy, self._spec = policy, policy.spec

    def stop(self) -> None:
        """End everything with the agent: boosts, sockets, and the eBPF program."""
        try:
            self.close()
        finally:
            if self._option is not None:
                self._option.close()

    def close(self) -> None:
        """End all boosts and close the sockets."""
        self._end_boosts()
        if self._carrier is not None:
            self._carrier.close()
        self._sockets.close()
        self._policy, self._carrier, self._carrier_failed, self._due_s = None, None, False, math.inf
        self._members, self._cpus, self._reports, self._paused = {}, {}, {}, {}
        self._meters, self._node_meter, self._arrivals = {}, LoadMeter(), ArrivalLoads()

    def observe(self, view: View) -> None:
        """Update the processes of the job from a new View."""
        if self._policy is None:
            return
        tasks = find_members(view, self._spec, self._policy.scope).tasks[:MAX_MEMBERS]
        online = view.topology.online()
        self._members = {task.pid: task for task in tasks}
        cpus = {task.pid: parse_cpu_list(task.affinity) & online or online for task in tasks}
        self._cpus = {pid: format_cpu_list(each) for pid, each in cpus.items()}
        self._meters = {each: self._meters.get(each) or LoadMeter() for each in self._cpus.values()}
        self._sockets.follow(self._members)
        if not self._members:
            self._end_boosts()
            self._due_s = math.inf
        elif self._due_s == math.inf:
            self._due_s = time.monotonic()

    def annotate(self, tasks: list[NetTask]) -> list[NetTask]:
        """Return the tasks with what was done with those of the job since the last call."""
        reports, self._reports = self._reports, {}
        return [replace(task, coscheduled=reports.get(task.pid)) for task in tasks] if reports else tasks

    def step(self) -> None:
        """Begin a period: end the boosts of the last one, and boost the processes that are first now. Raises OSError.

        If the sockets cannot be read, nothing is boosted.
        """
        if self._policy is None:
            return
        now_s, used_s = time.monotonic(), time.thread_time()
        self._due_s = now_s + self._spec.period_ms / 1000
        try:
            boosted = self._choose(now_s)
        except BaseException:
            self._end_boosts()
            raise
        if self._policy.mode is Mode.ENFORCE:
            self._boost(boosted, now_s)
        used_s = time.thread_time() - used_s
        self._due_s = max(self._due_s, now_s + _LEAST_PERIOD * used_s)

    def _choose(self, now_s: float) -> frozenset[int]:
        """Observe the job, and return the PIDs of the processes that are first on their CPUs now. Raises OSError."""
        received = self._sockets.read(self._cpus, now_s)
        activities = {pid: found for pid in self._members if (found := read_activity(self._root, pid)) is not None}
        messages = self._arrivals.messages(received, loads := self._loads(received, activities, now_s))
        boosted: set[int] = set()
        for cpus in self._meters:
            chosen = self._reorder(cpus, received, messages, loads, now_s)
            boosted.update(chosen.boosted)
        return frozenset(boosted)

    def _loads(
        self, received: list[Received], activities: Mapping[int, ThreadActivity], now_s: float
    ) -> dict[str, PeerLoad]:
        """Measure this node's loads, exchange them with other nodes, and return the recent ones by peer."""
        pending = {each.pid for each in received if each.pending_bytes}
        loads: dict[str, PeerLoad] = {}
        is_sum = self._spec.is_sum
        for cpus, meter in self._meters.items():
            of_set = {pid: each for pid, each in activities.items() if self._cpus[pid] == cpus}
            load = meter.measure(of_set, pending, len(parse_cpu_list(cpus)), is_sum=is_sum)
            if load is not None:
                loads[local_peer(cpus)] = load
        everywhere = frozenset[int]().union(*(parse_cpu_list(cpus) for cpus in self._meters))
        own = self._node_meter.measure(activities, pending, max(1, len(everywhere)), is_sum=is_sum)
        for address, heard in self._exchange(own, now_s).items():
            if now_s - heard.heard_s <= self._spec.max_age_s:
                loads[str(ip_address(address))] = heard.load
        return loads

    def _exchange(self, own: PeerLoad | None, now_s: float) -> Mapping[bytes, Heard]:
        peers = self._sockets.remote
        if self._carrier is None and peers and not self._carrier_failed:
            try:
                if self._option is None:
                    self._carrier = LoadBeacon()
                else:
                    self._carrier = LoadOption(self._option, self._spec.max_age_s / 2)
            except OSError as error:
                self._carrier_failed = True
                log.warning("Loads are not exchanged with other nodes: the beacon's port: %s.", error.strerror)
        return {} if self._carrier is None else self._carrier.exchange(own, peers, now_s)

    def _reorder(
        self,
        cpus: str,
        received: list[Received],
        messages: list[PendingMessage],
        loads: Mapping[str, PeerLoad],
        now_s: float,
    ) -> Reordering:
        """Choose the processes to boost on one set of CPUs, and record the choice."""
        peers = {each.peer for each in received if self._cpus[each.pid] == cpus}
        chosen = choose(
            Reordering(
                now_s,
                cpus,
                self._spec.sign,
                self._spec.max_boosted_per_cpu * len(parse_cpu_list(cpus)),
                len(peers & loads.keys()),
                self._spec.min_peers,
                [each for each in messages if self._cpus[each.pid] == cpus],
            )
        )
        if chosen.messages:
            self.records.append(chosen)
        self._note(chosen)
        return chosen

    def _note(self, chosen: Reordering) -> None:
        """Add a choice to the reports of the processes of its CPUs."""
        urgencies = {each.pid: each for each in order(chosen)}
        for pid in [pid for pid, cpus in self._cpus.items() if cpus == chosen.cpus]:
            before = self._reports.get(pid) or Coscheduled(0, None, 0, 0, "No message was pending.")
            urgency = urgencies.get(pid)
            boosted = pid in chosen.boosted
            explains = boosted or not before.boosts
            self._reports[pid] = Coscheduled(
                0 if urgency is None else urgency.pending_bytes,
                urgency.ert_s if urgency is not None and _is_predicted(urgency, chosen) else None,
                before.boosts + boosted,
                before.periods + 1,
                explain(urgency, chosen, len(urgencies)) if urgency is not None and explains else before.why,
            )

    def _boost(self, boosted: frozenset[int], now_s: float) -> None:
        """Give each enrolled process its value for this period; end boosts before others begin."""
        if self._policy is None:
            return
        held = self._steerable.steerable(self._policy.policy_id)
        own = {key: value for key, value in self._boosted.items() if key in held}  # also of one that left the job
        for pid in self._members:
            if (key := TaskNice(pid).key) in held:
                own[key] = TaskNice(pid).value_in_view(self._steerable.original(key))
        boost = str(self._spec.nice_boost)
        first = {TaskNice(pid).key for pid in boosted} & own.keys()
        self._boosted = {key: own[key] for key in first}
        wanted = own | dict.fromkeys(first, boost)
        for key in sorted(wanted, key=lambda key: key in first):
            if (
                held[key] != wanted[key]
                and now_s >= self._paused.get(key, 0.0)
                and not self._set(key, held[key], wanted[key])
            ):
                self._paused[key] = now_s + _PAUSE_S

    def _end_boosts(self) -> None:
        """Give the processes that are boosted their own values back."""
        boosted, self._boosted = self._boosted, {}
        for key, own in boosted.items():
            self._set(key, str(self._spec.nice_boost), own)

    def _set(self, key: str, was: str, value: str) -> bool:
        """Write a nice value, and record it if it is still held; return whether it was written."""
        result = self._write(Action(key, was, value, "The process is boosted, or its boost ended."))
        if result.done:
            with suppress(KeyError):  # the policy has ended and its setting is restored already
                self._steerable.record_steering(key, value)
        else:
            log.info("%s is not steered for %g s. %s", key, _PAUSE_S, result.sentence)
        return result.done


def _is_predicted(urgency: Urgency, chosen: Reordering) -> bool:
    """Return whether a process's ERT is one; by age alone, or without the peer's load, it is only the message's age."""
    return chosen.sign != BY_AGE and urgency.message.load is not None


def explain(urgency: Urgency, chosen: Reordering, count: int) -> str:
    """Return why a process was boosted or not, in a sentence. count: processes with pending messages on the CPUs."""
    message, load = urgency.message, urgency.message.load
    age = f"{(chosen.time_s - message.heard_s) * 1000:.1f} ms"
    if chosen.sign == BY_AGE:
        said = f"the message of {message.peer} is {age} old"
    elif load is None:
        said = f"the load of {message.peer} is unknown, and its message is {age} old"
    else:
        away = f"{abs(urgency.ert_s) * 1000:.1f} ms"
        when = f"was expected to run {away} ago" if urgency.ert_s < 0 else f"is expected to run in {away}"
        said = f"{message.peer} {when} (TS {load.ts_s * 1000:.1f} ms, ENP {load.enp:.1f}, message {age} old)"
    of = f"of {count} process{'' if count == 1 else 'es'} with pending messages on CPUs {chosen.cpus}"
    if urgency.pid in chosen.boosted:
        return f"First: {said}; number {chosen.boosted.index(urgency.pid) + 1} {of}."
    if chosen.lacks_loads:
        return f"Not boosted: known loads of peers: {chosen.peers}, required: {chosen.min_peers}."
    return f"Not boosted: {said}; others are first {of}."


def open_tcp_option(root: Path, ports: Sequence[range]) -> TcpOption | None:
    """Return the eBPF program for messages of these ports; None without ports, or if it is refused, which is logged."""
    if not ports:
        return None
    try:
        if not is_running_kernel(root):
            raise BpfRefusedError(f"{root} is not the running machine")
        if (cgroups := find_version_2(root)) is None:
            raise BpfRefusedError("no cgroup of version 2 is mounted")
        option = TcpOption(ports, root / cgroups)
    except BpfRefusedError as error:
        log.warning("Loads are sent in datagrams. They cannot be written into messages by eBPF: %s.", error)
        return None
    log.info("An eBPF program is ready to write this node's load into messages of the chosen TCP ports.")
    return option
