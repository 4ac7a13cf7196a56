"""The service classes of a node: the gate's policy, how far each class gets its target, and the weights that follow.

The decisions are coresteer_core's (policies/service_class.py); here is what they need of a machine. One policy at a
time: of several it is the one that goes furthest, and of these the first in rank, as a node has one gate.

N and S of a class come from the gate where it asks there; else from the histogram of its server's own response times;
else, with a deadline, from its TCP connections: one that moved bytes since the last look counts as a request, served
where its smoothed round-trip time is within the deadline. That is weak: it measures the network and not the server, the
same for short and long requests, and on loopback next to nothing.
"""

import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from coresteer_agent.collect.process_identity import WhoReader
from coresteer_agent.observe.flows import Connection
from coresteer_agent.runtime.gate_server import Address, GateError, GateServer
from coresteer_agent.runtime.histograms import Histograms
from coresteer_core.changes.plan import Action
from coresteer_core.changes.report import Result
from coresteer_core.node.service_classes import ClassFigures
from coresteer_core.node.tasks import NetTask
from coresteer_core.node.view import View
from coresteer_core.policies.base import Mode
from coresteer_core.policies.engine_state import PolicyInForce
from coresteer_core.policies.service_class.attainment import Attainment
from coresteer_core.policies.service_class.policy import (
    ServiceClass,
    ServiceClasses,
    assign_classes,
    class_of_connection,
    initial_weights,
    steer,
)
from coresteer_core.policies.service_class.weights import step_toward, weight_of
from coresteer_core.protocol import ClassesMessage
from coresteer_core.settings import CgroupWeight, TaskNice, parse_setting

log = logging.getLogger("coresteer.classes")

STEER_S = 0.1
TELL_S = 1.0
_PAUSE_S = 30.0
"""A setting that could not be steered is left alone for so long."""
_STALE_S = 12.0
"""A source that told nothing for so long tells nothing; connections are looked at every five seconds."""
_KNOWN_S = 5.0
_MAX_KNOWN = 4096
_ORDER = {Mode.ENFORCE: 0, Mode.RECOMMEND: 1, Mode.OBSERVE: 2}


class Holdings(Protocol):
    """What knows which settings may be steered: the PolicyKeeper."""

    def steerable(self, policy_id: str) -> dict[str, str]:
        """The settings that an enforced policy may steer now, and what it gave them last."""

    def record_steering(self, key: str, value: str) -> None:
        """One was given another value."""


class _Counted(Struct):
    """What is counted of a class that does not ask at the gate. source, heard_s: who told last, and when."""

    attainment: Attainment
    source: str | None = None
    heard_s: float = -math.inf


def ruling(policies: Iterable[PolicyInForce]) -> PolicyInForce | None:
    """The one of them that grades work here: there is one gate. One that enforces, then that of the lowest rank."""
    ours = [policy for policy in policies if isinstance(policy.spec, ServiceClasses)]
    return min(ours, key=lambda each: (_ORDER[each.mode], *each.precedence), default=None)


class ClassKeeper:
    """write: gives a held setting another value. tell: to the backend."""

    def __init__(
        self,
        root: Path,
        gate_path: Path,
        holdings: Holdings,
        write: Callable[[Action], Result],
        tell: Callable[[ClassesMessage], None],
    ) -> None:
        self._gate_path = gate_path
        self._holdings = holdings
        self._write = write
        self._tell = tell
        self._policy: PolicyInForce | None = None
        self._spec = ServiceClasses([])
        self._gate: GateServer | None = None
        self._histograms: Histograms | None = None
        self._counted: dict[str, _Counted] = {}
        self._tasks: dict[str, int] = {}
        self._settings: dict[str, str] = {}
        self._weights: dict[str, float] = {}
        self._paused: dict[str, float] = {}
        self._steered_s = -math.inf
        self._complaint = ""
        self._by_pid: dict[int, NetTask] = {}
        self._who = WhoReader(root)
        self._strangers: dict[int, tuple[float, NetTask]] = {}
        self.figures: dict[str, list[ClassFigures]] = {}
        """The last ones, by policy id."""

    @property
    def active(self) -> bool:
        """A policy with classes is in force."""
        return self._policy is not None

    @property
    def steers(self) -> bool:
        """There are weights that follow."""
        return bool(self._settings) and self._policy is not None and self._policy.mode is Mode.ENFORCE

    def told(self, policies: Iterable[PolicyInForce]) -> None:
        """These are in force from now on."""
        policy = ruling(policies)
        if policy == self._policy:
            return
        self._policy, self.figures = policy, {}
        if policy is None or not isinstance(policy.spec, ServiceClasses):
            self.close()
            return
        spec = policy.spec
        self._counted = {graded.name: self._kept(graded, spec.window_s) for graded in spec.classes}
        self._spec = spec
        self._settings, self._weights, self._paused = {}, {}, {}
        self._follow_histograms([graded.histogram for graded in spec.classes if graded.histogram is not None])
        self._open_gate()

    def close(self) -> None:
        """Close the gate; who waits goes straight on."""
        self._policy = None
        self._settings = {}
        if self._gate is not None:
            self._gate.stop()
            self._gate = None
        self._follow_histograms([])

    def looked(self, view: View, connections: Iterable[Connection]) -> None:
        """The node was looked at. connections: accepted ones that moved bytes since the last time."""
        if self._policy is None:
            return
        self._by_pid = {task.pid: task for task in view.tasks}
        enrolled = assign_classes(view, self._spec, self._policy.scope)
        self._settings = enrolled.settings
        self._tasks = {name: len(tasks) for name, tasks in enrolled.tasks.items()}
        self._count_connections(connections)

    def step(self) -> None:
        """Each second: take in what was counted, and tell."""
        if self._policy is None:
            return
        if self._gate is not None and self._gate.ended:
            self._gate.stop()
            self._gate = None
        if self._gate is None:
            self._open_gate()
        self._take_histograms()
        figures = self._measure(time.monotonic())
        self.figures = {self._policy.policy_id: figures}
        self._tell(ClassesMessage(time.time_ns() // 1_000_000, self._policy.policy_id, figures))

    def steer(self) -> None:
        """Up to ten times a second: each weight a step towards equal F."""
        if self._policy is None or not self.steers:
            return
        now_s = time.monotonic()
        elapsed_s = min(now_s - self._steered_s, 10 * STEER_S)
        self._steered_s = now_s
        held = self._holdings.steerable(self._policy.policy_id)
        if not held:
            return
        self._weights = steer(self._measure(now_s, percentiles=False), self._begun(held), self._spec, elapsed_s)
        for key, name in self._settings.items():
            self._follow(key, name, held, now_s)

    def _begun(self, held: Mapping[str, str]) -> dict[str, float]:
        """The weights that stand: of a class that has none yet what its first held setting gives, as after a start."""
        if self._weights:
            return self._weights
        weights = initial_weights(self._spec.classes)
        for key, name in reversed(self._settings.items()):
            setting = parse_setting(key)
            if key in held and isinstance(setting, TaskNice | CgroupWeight):
                weights[name] = weight_of(setting, held[key])
        return weights

    def _follow(self, key: str, name: str, held: Mapping[str, str], now_s: float) -> None:
        """Bring one setting a step nearer to its class's weight."""
        setting = parse_setting(key)
        if key not in held or now_s < self._paused.get(key, 0.0) or not isinstance(setting, TaskNice | CgroupWeight):
            return
        value = step_toward(setting, held[key], self._weights[name])
        if value is None:
            return
        result = self._write(Action(key, held[key], value, f"Steered for class {name}."))
        if result.done:
            self._holdings.record_steering(key, value)
        else:
            self._paused[key] = now_s + _PAUSE_S
            log.info("%s is not steered for %g s. %s", key, _PAUSE_S, result.sentence)

    def _measure(self, now_s: float, *, percentiles: bool = True) -> list[ClassFigures]:
        told = self._gate.figures(percentiles=percentiles) if self._gate is not None else []
        of_gate = {each.name: each for each in told}
        figures = []
        for name, counted in self._counted.items():
            tasks = self._tasks.get(name, 0)
            asked = of_gate.get(name)
            if asked is not None and asked.source is not None:
                figures.append(replace(asked, tasks=tasks))
            else:
                source = counted.source if now_s - counted.heard_s <= _STALE_S else None
                figures.append(counted.attainment.figures(now_s, source, tasks=tasks, percentiles=percentiles))
        return figures

    def _kept(self, graded: ServiceClass, window_s: float) -> _Counted:
        before = self._counted.get(graded.name)
        if before is not None and before.attainment.target == graded.target and self._spec.window_s == window_s:
            return before
        return _Counted(Attainment(graded.target, window_s))

    def _open_gate(self) -> None:
        """Also where nobody may ask yet; one that cannot be opened is tried again each second."""
        if self._policy is None:
            return
        if self._gate is None:
            gate = GateServer(self._gate_path)
            try:
                gate.start()
            except GateError as error:
                if self._complaint != str(error):
                    self._complaint = str(error)
                    log.warning("%s It is tried again.", error)
                return
            self._gate, self._complaint = gate, ""
        self._gate.set_policy(self._spec, self._classify, enforced=self._policy.mode is Mode.ENFORCE)

    def _classify(self, client: Address, port: int, pid: int) -> str | None:
        """For the gate's thread: which class a connection is of that a process serves."""
        classes = self._spec.classes
        asks = any(graded.match.needs_process for graded in classes)
        graded = class_of_connection(classes, client, port, self._served_by(pid) if asks and pid > 0 else None)
        return None if graded is None else graded.name

    def _served_by(self, pid: int) -> NetTask:
        task = self._by_pid.get(pid)
        if task is not None:
            return task
        now_s = time.monotonic()
        known = self._strangers.get(pid)
        if known is None or now_s - known[0] > _KNOWN_S:
            if len(self._strangers) >= _MAX_KNOWN:
                self._strangers.clear()
            who = self._who.look(pid)
            groups = who.groups
            stranger = NetTask(
                pid, 0, "", groups.unified, 1, "", "", 0, 0.0, 0.0, [],
                user=who.user, command=who.command, unit=groups.unit, cpu_cgroup=groups.cpu,
            )  # fmt: skip
            known = self._strangers[pid] = (now_s, stranger)
        return known[1]

    def _count_connections(self, connections: Iterable[Connection]) -> None:
        now_s = time.monotonic()
        weak = [graded for graded in self._spec.classes if graded.deadline_ms is not None and not graded.histogram]
        if not weak:
            return
        for graded in weak:
            self._heard(graded.name, "tcp", now_s)
        names = {graded.name for graded in weak}
        for one in connections:
            task = self._by_pid.get(one.pid)
            graded_as = class_of_connection(self._spec.classes, ip_address(one.client), one.port, task)
            if graded_as is None or graded_as.name not in names or one.rtt_us is None:
                continue
            attainment = self._counted[graded_as.name].attainment
            deadline_us = attainment.target.deadline_us or 0
            attainment.record(now_s, 1, int(one.rtt_us <= deadline_us), one.rtt_us)

    def _follow_histograms(self, wanted: list[str]) -> None:
        if self._histograms is not None:
            self._histograms.stop()
        self._histograms = Histograms(wanted) if wanted else None

    def _take_histograms(self) -> None:
        now_s = time.monotonic()
        for wanted, buckets in self._histograms.take() if self._histograms is not None else []:
            for graded in self._spec.classes:
                if graded.histogram == wanted:
                    self._heard(graded.name, "histogram", now_s)
                    _count(self._counted[graded.name].attainment, now_s, buckets)

    def _heard(self, name: str, source: str, now_s: float) -> None:
        counted = self._counted[name]
        counted.source, counted.heard_s = source, now_s


def _count(attainment: Attainment, now_s: float, buckets: list[tuple[float, int]]) -> None:
    """Requests of a histogram took as long as their bucket's upper bound, the last one as long as the one before."""
    deadline_us = attainment.target.deadline_us
    longest_us = 0
    for bound_s, requests in buckets:
        if math.isfinite(bound_s):
            longest_us = max(0, math.floor(bound_s * 1e6 + 0.5))
        in_time = deadline_us is None or (math.isfinite(bound_s) and longest_us <= deadline_us)
        if requests:
            attainment.record(now_s, requests, requests if in_time else 0, longest_us)
