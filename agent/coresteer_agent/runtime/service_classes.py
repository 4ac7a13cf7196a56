"""Runs the service classes of a node: the gate, the attainment of each class, and CPU weights that follow it.

The decisions are coresteer_core's (policies/service_class); here is what they need of a machine. A node has one gate,
so one policy is effective: the one with the strongest mode, and of these the first in rank.

N and S of a class come from the gate if requests enter there; otherwise from the histogram of its server's response
times; otherwise, with a deadline, from its TCP connections: a connection that moved bytes since the last poll counts as
one request, satisfied if its smoothed round-trip time is within the deadline. That is weak evidence: it measures the
network and not the server, and on loopback next to nothing.
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

from coresteer_agent.collect.process_identity import ProcessIdentityReader
from coresteer_agent.observe.flows import Connection
from coresteer_agent.runtime.histograms import Histograms
from coresteer_agent.transport.gate_server import Address, GateError, GateServer
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
    steer_weights,
)
from coresteer_core.policies.service_class.weights import next_value, scheduler_weight
from coresteer_core.protocol import ClassesMessage
from coresteer_core.settings import CgroupWeight, TaskNice, parse_setting

log = logging.getLogger("coresteer.classes")

STEER_S = 0.1
"""Period of steer()."""
_PAUSE_S = 30.0
"""A setting that could not be steered is not tried again for this long."""
_STALE_S = 12.0
"""A source without a report for this long is no source; connections are polled every five seconds."""
_CACHE_S = 5.0
_MAX_CACHED = 4096
"""Processes without network traffic in the view whose properties are cached, and for how long."""
_ORDER = {Mode.ENFORCE: 0, Mode.RECOMMEND: 1, Mode.OBSERVE: 2}


class SteerableSettings(Protocol):
    """Provides the settings whose values may be steered: the PolicyRunner."""

    def steerable(self, policy_id: str) -> dict[str, str]:
        """Return the values of the settings that an enforced policy may steer now, by key."""

    def record_steering(self, key: str, value: str) -> None:
        """Record another value of a steerable setting."""


class _Counts(Struct):
    """Request counts of a class that does not use the gate. source, reported_s: of the last report (monotonic)."""

    attainment: Attainment
    source: str | None = None
    reported_s: float = -math.inf


def effective_policy(policies: Iterable[PolicyInForce]) -> PolicyInForce | None:
    """Return the policy that classifies requests here: the strongest mode, then the lowest rank; None without any."""
    ours = [policy for policy in policies if isinstance(policy.spec, ServiceClasses)]
    return min(ours, key=lambda each: (_ORDER[each.mode], *each.precedence), default=None)


class ServiceClassRunner:
    """Runs the gate, measures and steers the service classes of one node.

    write: gives a held setting another value. report: sends to the backend.
    """

    def __init__(
        self,
        root: Path,
        gate_path: Path,
        steerable: SteerableSettings,
        write: Callable[[Action], Result],
        report: Callable[[ClassesMessage], None],
    ) -> None:
        self._gate_path = gate_path
        self._steerable = steerable
        self._write = write
        self._report = report
        self._policy: PolicyInForce | None = None
        self._spec = ServiceClasses([])
        self._gate: GateServer | None = None
        self._histograms: Histograms | None = None
        self._counted: dict[str, _Counts] = {}
        self._tasks: dict[str, int] = {}
        self._settings: dict[str, str] = {}
        self._weights: dict[str, float] = {}
        self._paused: dict[str, float] = {}
        self._steered_s = -math.inf
        self._last_error = ""
        self._by_pid: dict[int, NetTask] = {}
        self._who = ProcessIdentityReader(root)
        self._other_tasks: dict[int, tuple[float, NetTask]] = {}
        self.figures: dict[str, list[ClassFigures]] = {}
        """Last attainment, by policy id."""

    @property
    def active(self) -> bool:
        """Return whether a policy with service classes is in force."""
        return self._policy is not None

    @property
    def steers(self) -> bool:
        """Return whether there are CPU weights to steer."""
        return bool(self._settings) and self._policy is not None and self._policy.mode is Mode.ENFORCE

    def set_policies(self, policies: Iterable[PolicyInForce]) -> None:
        """Replace the policies in force, and with them the classes."""
        policy = effective_policy(policies)
        if policy == self._policy:
            return
        self._policy, self.figures = policy, {}
        if policy is None or not isinstance(policy.spec, ServiceClasses):
            self.close()
            return
        spec = policy.spec
        self._counted = {
            service_class.name: self._counts_for(service_class, spec.window_s) for service_class in spec.classes
        }
        self._spec = spec
        self._settings, self._weights, self._paused = {}, {}, {}
        self._follow_histograms(
            [service_class.histogram for service_class in spec.classes if service_class.histogram is not None]
        )
        self._open_gate()

    def close(self) -> None:
        """Close the gate; waiting requests continue without a slot."""
        self._policy = None
        self._settings = {}
        if self._gate is not None:
            self._gate.stop()
            self._gate = None
        self._follow_histograms([])

    def observe(self, view: View, connections: Iterable[Connection]) -> None:
        """Update the processes of the classes from a new View, and count requests of connections.

        connections: accepted ones that had traffic since the last call.
        """
        if self._policy is None:
            return
        self._by_pid = {task.pid: task for task in view.tasks}
        assigned = assign_classes(view, self._spec, self._policy.scope)
        self._settings = assigned.settings
        self._tasks = {name: len(tasks) for name, tasks in assigned.tasks.items()}
        self._count_connections(connections)

    def step(self) -> None:
        """Count requests and report each class's attainment; call it once a second."""
        if self._policy is None:
            return
        if self._gate is not None and self._gate.ended:
            self._gate.stop()
            self._gate = None
        if self._gate is None:
            self._open_gate()
        self._poll_histograms()
        figures = self._measure(time.monotonic())
        self.figures = {self._policy.policy_id: figures}
        self._report(ClassesMessage(time.time_ns() // 1_000_000, self._policy.policy_id, figures))

    def steer(self) -> None:
        """Move each class's CPU weight one step towards equal attainment; call it every STEER_S seconds."""
        if self._policy is None or not self.steers:
            return
        now_s = time.monotonic()
        elapsed_s = min(now_s - self._steered_s, 10 * STEER_S)
        self._steered_s = now_s
        held = self._steerable.steerable(self._policy.policy_id)
        if not held:
            return
        self._weights = steer_weights(
            self._measure(now_s, percentiles=False), self._current_weights(held), self._spec, elapsed_s
        )
        for key, name in self._settings.items():
            self._follow(key, name, held, now_s)

    def _current_weights(self, held: Mapping[str, str]) -> dict[str, float]:
        """Return each class's current weight; after a start, that of its first held setting."""
        if self._weights:
            return self._weights
        weights = initial_weights(self._spec.classes)
        for key, name in reversed(self._settings.items()):
            setting = parse_setting(key)
            if key in held and isinstance(setting, TaskNice | CgroupWeight):
                weights[name] = scheduler_weight(setting, held[key])
        return weights

    def _follow(self, key: str, name: str, held: Mapping[str, str], now_s: float) -> None:
        """Move one setting a step towards its class's weight."""
        setting = parse_setting(key)
        if key not in held or now_s < self._paused.get(key, 0.0) or not isinstance(setting, TaskNice | CgroupWeight):
            return
        value = next_value(setting, held[key], self._weights[name])
        if value is None:
            return
        result = self._write(Action(key, held[key], value, f"The weight was steered for service class {name}."))
        if result.done:
            self._steerable.record_steering(key, value)
        else:
            self._paused[key] = now_s + _PAUSE_S
            log.info("%s is not steered for %g s. %s", key, _PAUSE_S, result.sentence)

    def _measure(self, now_s: float, *, percentiles: bool = True) -> list[ClassFigures]:
        at_gate = self._gate.figures(percentiles=percentiles) if self._gate is not None else []
        of_gate = {each.name: each for each in at_gate}
        figures = []
        for name, counted in self._counted.items():
            tasks = self._tasks.get(name, 0)
            gate_figures = of_gate.get(name)
            if gate_figures is not None and gate_figures.source is not None:
                figures.append(replace(gate_figures, tasks=tasks))
            else:
                source = counted.source if now_s - counted.reported_s <= _STALE_S else None
                figures.append(counted.attainment.figures(now_s, source, tasks=tasks, percentiles=percentiles))
        return figures

    def _counts_for(self, service_class: ServiceClass, window_s: float) -> _Counts:
        before = self._counted.get(service_class.name)
        if before is not None and before.attainment.target == service_class.target and self._spec.window_s == window_s:
            return before
        return _Counts(Attainment(service_class.target, window_s))

    def _open_gate(self) -> None:
        """Open the gate and set its policy; if that fails, it is tried again each second."""
        if self._policy is None:
            return
        if self._gate is None:
            gate = GateServer(self._gate_path)
            try:
                gate.start()
            except GateError as error:
                if self._last_error != str(error):
                    self._last_error = str(error)
                    log.warning("%s Opening the gate is tried again.", error)
                return
            self._gate, self._last_error = gate, ""
        self._gate.set_policy(self._spec, self._classify, enforced=self._policy.mode is Mode.ENFORCE)

    def _classify(self, client: Address, port: int, pid: int) -> str | None:
        """Return the class of a connection served by process pid, None for none; called by the gate's thread."""
        classes = self._spec.classes
        needs_process = any(service_class.match.needs_process for service_class in classes)
        service_class = class_of_connection(
            classes, client, port, self._server(pid) if needs_process and pid > 0 else None
        )
        return None if service_class is None else service_class.name

    def _server(self, pid: int) -> NetTask:
        task = self._by_pid.get(pid)
        if task is not None:
            return task
        now_s = time.monotonic()
        known = self._other_tasks.get(pid)
        if known is None or now_s - known[0] > _CACHE_S:
            if len(self._other_tasks) >= _MAX_CACHED:
                self._other_tasks.clear()
            who = self._who.read(pid)
            groups = who.groups
            other = NetTask(
                pid, 0, "", groups.unified, 1, "", "", 0, 0.0, 0.0, [],
                user=who.user, command=who.command, unit=groups.unit, cpu_cgroup=groups.cpu,
            )  # fmt: skip
            known = self._other_tasks[pid] = (now_s, other)
        return known[1]

    def _count_connections(self, connections: Iterable[Connection]) -> None:
        now_s = time.monotonic()
        weak = [
            service_class
            for service_class in self._spec.classes
            if service_class.deadline_ms is not None and not service_class.histogram
        ]
        if not weak:
            return
        for service_class in weak:
            self._set_source(service_class.name, "tcp", now_s)
        names = {service_class.name for service_class in weak}
        for one in connections:
            task = self._by_pid.get(one.pid)
            matched = class_of_connection(self._spec.classes, ip_address(one.client), one.port, task)
            if matched is None or matched.name not in names or one.rtt_us is None:
                continue
            attainment = self._counted[matched.name].attainment
            deadline_us = attainment.target.deadline_us or 0
            attainment.record(now_s, 1, int(one.rtt_us <= deadline_us), one.rtt_us)

    def _follow_histograms(self, wanted: list[str]) -> None:
        if self._histograms is not None:
            self._histograms.stop()
        self._histograms = Histograms(wanted) if wanted else None

    def _poll_histograms(self) -> None:
        now_s = time.monotonic()
        for wanted, buckets in self._histograms.poll() if self._histograms is not None else []:
            for service_class in self._spec.classes:
                if service_class.histogram == wanted:
                    self._set_source(service_class.name, "histogram", now_s)
                    _count(self._counted[service_class.name].attainment, now_s, buckets)

    def _set_source(self, name: str, source: str, now_s: float) -> None:
        counted = self._counted[name]
        counted.source, counted.reported_s = source, now_s


def _count(attainment: Attainment, now_s: float, buckets: list[tuple[float, int]]) -> None:
    """Count requests of a histogram by bucket; those above the last bound count with the bound before."""
    deadline_us = attainment.target.deadline_us
    longest_us = 0
    for bound_s, requests in buckets:
        if math.isfinite(bound_s):
            longest_us = max(0, math.floor(bound_s * 1e6 + 0.5))
        in_time = deadline_us is None or (math.isfinite(bound_s) and longest_us <= deadline_us)
        if requests:
            attainment.record(now_s, requests, requests if in_time else 0, longest_us)
