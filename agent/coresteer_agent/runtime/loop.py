"""The agent's event loop: sample, derive rates, check guardrails, report, and handle the backend's messages."""

import ctypes
import gc
import logging
import os
import signal
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from coresteer_agent.apply.journal import journal_loss
from coresteer_agent.collect.errors import ParseError
from coresteer_agent.collect.platform_labels import read_platform_labels
from coresteer_agent.collect.topology import CpuListsMonitor, read_topology
from coresteer_agent.config import Config
from coresteer_agent.linux.hotplug import HotplugMonitor
from coresteer_agent.observe.inventory import InventoryReader
from coresteer_agent.observe.sampler import Sampler
from coresteer_agent.runtime.changes import NodeChanges
from coresteer_agent.runtime.coscheduling import CoschedulingRunner
from coresteer_agent.runtime.identity import make_hello, management_netdevs, observe_reason
from coresteer_agent.runtime.limits_file import LimitsFile
from coresteer_agent.runtime.nic_learning import NicLearner, NicLearningFile
from coresteer_agent.runtime.persisted import PersistedSettings
from coresteer_agent.runtime.policies import PolicyRunner
from coresteer_agent.runtime.policies_file import PoliciesFile, settings_absent_from_views
from coresteer_agent.runtime.processes import Processes
from coresteer_agent.runtime.schedule import Schedule
from coresteer_agent.runtime.service_classes import STEER_S, ServiceClassRunner
from coresteer_agent.transport.enrol import NodeKey, store_key
from coresteer_agent.transport.inbox import Inbox
from coresteer_agent.transport.link import Link
from coresteer_agent.transport.link_events import LinkEvent
from coresteer_core.changes.events import BackendLost, BackendReconnected
from coresteer_core.changes.undo import LOST_BACKEND_GRACE_S
from coresteer_core.node.derive import Sample, derive_rates
from coresteer_core.node.inventory import Inventory
from coresteer_core.node.load import mean_load
from coresteer_core.node.locality import distance_counters
from coresteer_core.node.nic import NicKnowledge
from coresteer_core.node.rates import Rates
from coresteer_core.node.topology import Topology
from coresteer_core.node.view import View
from coresteer_core.policies.base import ROUND_PERIOD_S
from coresteer_core.protocol import (
    BeginExperiment,
    EndExperiment,
    Policies,
    RunExperiment,
)
from coresteer_core.settings import SettingError, parse_setting

if TYPE_CHECKING:
    from coresteer_agent.runtime.experiment import ExperimentSession

log = logging.getLogger("coresteer.loop")

T = TypeVar("T")

HOUSEKEEPING_S = 1.0
TASKS_S = 5.0
RESCAN_POLLS = 300
"""Without hot-plug events of the kernel, the topology is read again after this many polls.

A change of its CPU lists is seen at each poll, and devices are listed more often (InventoryReader).
"""


class Agent:
    """The agent of one node. Raises JournalError, before any change, if the journal cannot be used."""

    def __init__(self, config: Config, key: NodeKey, renew_key: Callable[[], NodeKey] | None = None) -> None:
        self._root = config.root
        self._config = config
        self._interval_s = config.interval_s
        self._inbox: Inbox[LinkEvent] = Inbox()
        self._stopping = False
        self._failing: set[str] = set()
        self._topology = self._attempt("topology", lambda: read_topology(self._root)) or Topology([], [], [])
        self._cpu_lists = CpuListsMonitor(self._root)
        self._inventory_reader = InventoryReader(self._root)
        self._limits = LimitsFile(config.limits_path)
        self._inventory = Inventory([], [], limits=self._limits.read())
        reason = observe_reason(self._root) or journal_loss(config.journal_path, self._root)
        if reason is None:
            place = "of this machine" if self._root == Path("/") else f"below {self._root}"
            log.info("This agent may change the interrupts %s.", place)
        else:
            log.info("This agent only observes and changes no settings. %s", reason)
        self._observe_reason = reason
        # not in make_hello, whose files a capture copies: instance data may have secrets
        environment = os.environ if self._root == Path("/") else {}
        labels = read_platform_labels(self._root, environment) | config.labels
        hello = replace(make_hello(self._root, self._interval_s, reason), labels=labels)
        store = partial(store_key, config.key_path)
        self._link = Link(
            key, hello, self._inbox, renew_key=renew_key, store_key=store, client_cert=config.client_cert_path
        )
        self._sampler = Sampler(self._root)
        self._hotplug = self._attempt("hot-plug events", HotplugMonitor) if self._root == Path("/") else None
        self._previous: Sample | None = None
        self._rates: Rates | None = None
        self._seq = 0
        self._polls = 0
        self._recent: deque[Rates] = deque()
        self._nics_file = NicLearningFile(config.nics_path)
        self._nics = NicLearner(hello.kernel, self._save_learned, learned=self._nics_file.read())
        attempted = self._nics.record_attempt
        self._changes = NodeChanges(
            self._root, config.journal_path, reason, self._view, self._link.send_now, attempted=attempted
        )
        self._persisted = PersistedSettings(config.journal_path, self._root, self._changes, self._link.send_decision)
        file = PoliciesFile(config.policies_path, self._root)
        self._policies = PolicyRunner(
            self._changes,
            self._link.send_decision,
            repeat=partial(self._link.send_decision, again=True),
            report_stops=self._link.send_now,
            state=file.read(),
            save=file.write,
            ended=lambda memory: [
                *file.settings_of_ended_processes(memory),
                *self._changes.removed_settings(settings_absent_from_views(memory.holdings)),
            ],
            observe_only=reason is not None,
        )
        self._classes = ServiceClassRunner(
            self._root, config.gate_path, self._policies, self._changes.steer, self._link.send_now
        )
        self._coscheduling = CoschedulingRunner(
            self._root, self._policies, self._changes.steer, config.load_option_ports
        )
        self._processes = Processes(self._root, self._attempt, self._coscheduling.annotate)
        self._experiment: ExperimentSession | None = None
        self._lost_since_s: float | None = None

    def stop(self) -> None:
        """Stop the agent's loop before its next message; callable from a signal handler or another thread."""
        self._stopping = True
        self._inbox.wake()

    def run(self) -> None:
        """Run the agent until stop() is called. However it ends, unconfirmed changes are rolled back."""
        self._link.send_state(self._topology)
        self._link.send_state(self._inventory)
        self._link.send_state(self._nics.learned)
        self._check_node()
        self._nics.step((), self._inventory, time.monotonic())  # records attempts from now on
        self._sample()
        self._link.start()
        try:
            self._follow_policies()
            self._loop()
        finally:
            log.info("Stopping: confirmed changes stay, unconfirmed ones are rolled back.")
            try:
                self._attempt("coscheduling", self._coscheduling.stop)
                self._end_experiment()
                self._reread_settings(self._changes.stop())
                self._attempt("leases", lambda: self._policies.stop(self._timed_view()))
                self._nics.save()
            finally:
                self._classes.close()
                self._changes.close()
                self._link.stop()
                self._sampler.close()
                self._cpu_lists.close()
                self._processes.close()

    def _loop(self) -> None:
        gc.collect()
        gc.freeze()  # objects of the start stay; later collections skip them
        with suppress(AttributeError):  # only glibc has it
            ctypes.CDLL(None).malloc_trim(0)  # what only the start needed, 0.4 MiB
        sampling = Schedule(self._interval_s, time.monotonic())
        housekeeping = Schedule(HOUSEKEEPING_S, time.monotonic())
        tasks = Schedule(TASKS_S, time.monotonic())
        deciding = Schedule(ROUND_PERIOD_S, time.monotonic())
        steering = Schedule(STEER_S, time.monotonic())
        while True:
            due = min(sampling.due, housekeeping.due, tasks.due, deciding.due)
            due = min(due, steering.due) if self._classes.steers else due
            due = 0.0 if self._changes.busy else min(due, self._coscheduling.due)
            due = due if self._experiment is None else min(due, self._experiment.due)
            message = self._inbox.get(max(0.0, due - time.monotonic()))
            if self._stopping:
                return
            if message is not None:
                self._handle(message)
            if self._changes.busy:
                self._continue_changes()
            if self._experiment is not None:
                self._reread_settings(self._experiment.step())
            if sampling.is_due(time.monotonic()):
                self._sample()
            if housekeeping.is_due(time.monotonic()):
                self._check_backend()
                self._note_changed(self._changes.tick())
                self._check_node()
                self._attempt("classes", self._classes.step)
                self._attempt("memory of processes", self._processes.read_memory)
            if tasks.is_due(time.monotonic()):
                self._attempt("tasks", self._report_tasks)
            if deciding.is_due(time.monotonic()):
                self._attempt("flows", self._report_flows)
                self._attempt("NICs", lambda: self._nics.step(self._recent, self._inventory, time.monotonic()))
                written = self._attempt("persisted settings", self._set_persisted)
                self._reread_settings(written or self._attempt("decisions", self._decide) or frozenset())
            if self._classes.steers and steering.is_due(time.monotonic()):
                self._attempt("weights", self._classes.steer)
            if time.monotonic() >= self._coscheduling.due:
                self._attempt("coscheduling", self._coscheduling.step)

    def _handle(self, message: LinkEvent) -> None:
        if isinstance(message, BackendReconnected):
            self._note_connection()
            self._processes.report_again()
            self._policies.report_again()
            self._policies.stops.wait()
            self._lost_since_s = None
            self._end_experiment()  # the backend starts it again, or its end was lost
        elif isinstance(message, BackendLost):
            self._policies.stops.continue_without()
            self._lost_since_s = self._lost_since_s or time.monotonic()
        if isinstance(message, BackendReconnected | BackendLost):
            self._reread_settings(self._changes.feed(message))
        elif isinstance(message, Policies):
            self._policies.set_policies(message.policies, message.leave_pages, message.stops, message.hold_from_ms)
            self._follow_policies()
            if self._policies.stops.apply:
                self._end_experiment()
            self._reread_settings(self._policies.stops.obey())
        elif isinstance(message, BeginExperiment | RunExperiment | EndExperiment):
            self._reread_settings(self._attempt("experiment", lambda: self._session().handle(message)) or frozenset())
        else:
            self._note_changed(self._changes.handle(message))

    def _continue_changes(self) -> None:
        """Continue writes that take several steps, such as moves of many pages, by one step."""
        if touched := self._changes.step():
            self._attempt("policies", self._policies.record_written)
            self._note_changed(touched)
            self._reread_settings(self._policies.stops.obey())

    def _note_changed(self, touched: frozenset[str]) -> None:
        if self._experiment is not None:
            self._experiment.note_disturbance(touched)
        self._reread_settings(touched)

    def _session(self) -> "ExperimentSession":
        if self._experiment is None:
            from coresteer_agent.runtime.experiment import ExperimentSession  # noqa: PLC0415 - memory that few agents need

            self._experiment = ExperimentSession(
                self._root,
                self._config.commands_path,
                self._changes,
                lambda: self._inventory,
                self._link.send_now,
                self._observe_reason,
            )
        return self._experiment

    def _check_backend(self) -> None:
        """End the experiment and leased policies if the backend has been away for too long."""
        if self._lost_since_s is not None and time.monotonic() - self._lost_since_s >= LOST_BACKEND_GRACE_S:
            self._end_experiment()
            self._policies.end_leases()
            self._follow_policies()

    def _follow_policies(self) -> None:
        """Let what adjusts settings between two rounds follow the policies in force."""
        self._attempt("classes", lambda: self._classes.set_policies(self._policies.in_force))
        self._attempt("coscheduling", lambda: self._coscheduling.set_policies(self._policies.in_force))

    def _end_experiment(self) -> None:
        session = self._experiment
        if session is not None:
            self._reread_settings(self._attempt("experiment", session.end) or frozenset())

    def _note_connection(self) -> None:
        """Mark the netdev that carries the connection to the backend in the inventory."""
        if self._root == Path("/") and self._link.local_address is not None:
            self._inventory_reader.management = management_netdevs(self._link.local_address, self._link.peer_address)

    def _sample(self) -> None:
        before, self._rates = self._previous, None
        self._previous = now = self._attempt("counters", self._sampler.sample)
        if now is None:
            self._recent.clear()
        if before is None or now is None:
            return
        self._rates = self._attempt("rates", lambda: self._report_rates(before, now))
        if self._experiment is not None:
            self._experiment.add_latency(now.tcp)
        if self._rates is not None:
            self._seq += 1
            self._recent.append(self._rates)
            while sum(rates.duration_s for rates in self._recent) - self._recent[0].duration_s >= ROUND_PERIOD_S:
                self._recent.popleft()
            self._note_changed(self._changes.check_guardrails(self._rates))

    def _report_rates(self, before: Sample, now: Sample) -> Rates:
        rates = derive_rates(before, now, self._seq + 1)
        if (distance := self._processes.distance) is not None:
            rates = replace(rates, counters=rates.counters | distance_counters(distance, rates.duration_s))
        self._link.send_rates(rates, self._inventory.physical_netdevs())
        return rates

    def _report_tasks(self) -> None:
        self._link.send_now(self._processes.scan())

    def _report_flows(self) -> None:
        message = self._processes.read(self._topology, self._inventory, self._recent)
        if self._experiment is not None:
            self._experiment.add_contention(self._view)
        if message is not None:
            self._link.send_flows(message)
        if self._classes.active:
            self._classes.observe(self._view(), self._processes.flows.connections())
        if self._coscheduling.active:
            self._coscheduling.observe(self._view())

    def _save_learned(self, learned: NicKnowledge) -> None:
        self._nics_file.write(learned)
        self._link.send_state(learned)

    def _set_persisted(self) -> frozenset[str]:
        return self._persisted.step(self._timed_view()) if self._observe_reason is None else frozenset()

    def _decide(self) -> frozenset[str]:
        if self._policies.idle:
            return frozenset()
        touched = self._policies.step(replace(self._timed_view(), load=mean_load(self._recent)))
        self._follow_policies()  # a holdout may have ended
        return touched

    def _check_node(self) -> None:
        """Read the parts of the node again that may have changed: topology and inventory."""
        if self._hotplug is not None:
            changed = self._attempt("hot-plug events", self._hotplug.changed) or set()
        else:
            self._polls += 1
            changed = {"cpu"} if self._polls % RESCAN_POLLS == 0 else set()
        if changed:
            self._inventory_reader.rescan()
        if "cpu" in changed or not self._topology_holds():
            self._attempt("topology", self._read_topology)
        self._attempt("inventory", self._read_inventory)

    def _reread_settings(self, touched: frozenset[str]) -> None:
        """Read settings again right after they were written or tried."""
        if touched:
            self._attempt("inventory", lambda: self._reread(touched))

    def _reread(self, touched: frozenset[str]) -> None:
        for key in touched:
            with suppress(SettingError):  # an unknown key was refused
                setting = parse_setting(key)
                self._inventory_reader.reread([setting])
                if setting.process is not None:
                    self._processes.forget_memory(setting.process, moved=setting.moves_pages)
        self._read_inventory()

    def _read_inventory(self) -> None:
        self._inventory_reader.limits = limits = self._limits.read()
        self._inventory_reader.changed_settings = len(self._changes.changed_settings)
        self._inventory_reader.held = self._policies.held
        self._inventory_reader.own = self._changes.own_values
        if limits != self._inventory.limits:  # in force even if the rest cannot be read
            self._inventory = replace(self._inventory, limits=limits)
            self._link.send_state(self._inventory)
        inventory = self._inventory_reader.read(self._rates)
        if inventory is not self._inventory and inventory != self._inventory:
            self._inventory = inventory
            self._link.send_state(inventory)

    def _read_topology(self) -> None:
        topology = read_topology(self._root)
        if topology != self._topology:
            self._topology = topology
            self._link.send_state(topology)

    def _topology_holds(self) -> bool:
        return self._attempt("CPU lists", lambda: self._cpu_lists.is_current(self._topology)) is not False

    def _view(self) -> View:
        """Return the node's present View for the guard."""
        if not self._topology_holds():
            self._attempt("topology", self._read_topology)
        return View(
            self._topology,
            self._inventory,
            tasks=self._processes.tasks,
            learned=self._nics.learned,
            classes=self._classes.figures,
            cgroups=self._processes.cgroups,
            numa=self._processes.numa,
            cpusets=self._processes.cpusets,
        )

    def _timed_view(self) -> View:
        return replace(self._view(), time_s=time.monotonic())

    def _attempt(self, what: str, run: Callable[[], T]) -> T | None:
        """Return run()'s result; None after any exception, which is logged once until run() succeeds again.

        Also for programming errors: unconfirmed changes need the loop to continue.
        """
        try:
            value = run()
        except Exception as error:
            if what not in self._failing:
                self._failing.add(what)
                expected = isinstance(error, OSError | ParseError)
                log.warning("The step “%s” of the agent failed: %s", what, error, exc_info=None if expected else error)
            return None
        self._failing.discard(what)
        return value


def run_until_signal(agent: Agent) -> None:
    """Run an agent until SIGTERM or SIGINT. SIGHUP, sent by a closed terminal, is ignored."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: agent.stop())
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    agent.run()
