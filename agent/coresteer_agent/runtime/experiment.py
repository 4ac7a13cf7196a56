"""Carries out the runs of an experiment on this node: load, warm-up, measurement, end.

Nothing here blocks: the loop calls step() when it is due. Whatever a run leaves (namespaces, processes, irqbalance and
the affinities that it moved) is removed by end(), and ends with the process.
"""

import logging
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from statistics import fmean

from coresteer_agent.runtime.changes import NodeChanges
from coresteer_agent.runtime.commands import CommandsError, allowed_command
from coresteer_agent.runtime.irqbalance import Irqbalance, IrqbalanceError
from coresteer_agent.runtime.meter import Meter
from coresteer_agent.runtime.run_limits import RunError, confined_to_others, run_refusal, workload_refusal
from coresteer_agent.workloads.load import Load, Prepared
from coresteer_core.cpuset import CpuListError, parse_cpu_list
from coresteer_core.experiments.model import Command, Finite, Observe, Run, RunResult, RunState, Workload
from coresteer_core.experiments.run_metrics import Reading, run_result
from coresteer_core.node.inventory import Inventory
from coresteer_core.node.rates import TcpLatency
from coresteer_core.node.view import View
from coresteer_core.policies.numa.options import largest_contention
from coresteer_core.protocol import BeginExperiment, EndExperiment, ExperimentMessage, RunExperiment

log = logging.getLogger("coresteer.experiment")

STEP_S = 0.05
READY_TIMEOUT_S = 30.0
"""Maximum time for the preparation, and for a run's load to start."""

MAX_SENTENCE_CHARS = 1000
"""Maximum length of a sentence, which may include a program's output."""
MAX_DISTURBED_SETTINGS = 10


class ExperimentSession:
    """Carries out the experiments of one node, one at a time.

    inventory: returns the present one. report: sends to the backend. observe_reason: why this agent changes nothing,
    None if it may. If it may not, or the root is not the machine's, no load is generated and only Observe is measured.
    """

    def __init__(  # noqa: PLR0917 - the agent's parts, each once
        self,
        root: Path,
        commands_path: Path,
        changes: NodeChanges,
        inventory: Callable[[], Inventory],
        report: Callable[[ExperimentMessage], None],
        observe_reason: str | None,
    ) -> None:
        self._root = root
        self._commands_path = commands_path
        self._changes = changes
        self._inventory = inventory
        self._send = report
        self._refuses = observe_reason
        if observe_reason is None and root != Path("/"):
            self._refuses = f"The agent reads a captured machine below {root}."
        self._begun: BeginExperiment | None = None
        self._prepared: Prepared | None = None
        self._is_ready = False
        self._run: _Running | None = None
        self._serving: Load | None = None
        self._until_s = math.inf
        self.due = math.inf
        """Monotonic time of the next step()."""

    def handle(self, message: BeginExperiment | RunExperiment | EndExperiment) -> frozenset[str]:
        """Handle a message of the backend about an experiment; return the keys of settings that were restored."""
        match message:
            case BeginExperiment():
                touched = self.end()
                self._begun = message
                return touched | self._attempt(lambda: self._begin(message))
            case RunExperiment():
                return self._begin_run(message)
            case EndExperiment() if self._begun is not None and message.experiment_id == self._begun.experiment_id:
                return self.end()
        return frozenset()

    def add_latency(self, latency: TcpLatency | None) -> None:
        """Add TCP round-trip times that the kernel reported for the last interval to the measurement."""
        if self._run is not None and latency is not None and self._run.before is not None:
            self._run.tcp.append(latency)

    def add_contention(self, view: Callable[[], View]) -> None:
        """Add the present largest contention factor of a process to the measurement, where it is known."""
        run = self._run
        if run is not None and run.before is not None and (factor := largest_contention(view())) is not None:
            run.contention.append(factor)

    def note_disturbance(self, keys: frozenset[str]) -> None:
        """Record the keys of settings that were changed during a measurement."""
        run = self._run
        if run is not None and run.before is not None and keys and len(run.disturbed) < MAX_DISTURBED_SETTINGS:
            named = ", ".join(sorted(keys)[:3]) + (" and others" if len(keys) > 3 else "")
            run.disturbed.append(f"{named} changed during the measurement.")

    def step(self) -> frozenset[str]:
        """Proceed as far as possible without blocking; return the keys of settings that were restored."""
        if time.monotonic() < self.due:
            return frozenset()
        return self._attempt(self._check_ready if self._run is None else self._proceed)

    def end(self) -> frozenset[str]:
        """End the experiment and its run at once; return the keys of settings that were restored."""
        self._stop_serving()
        touched = self._drop_run()
        if self._prepared is not None:
            self._prepared.close()
        self._begun = self._prepared = None
        self._is_ready = False
        self.due = math.inf
        return touched

    def _attempt(self, run: Callable[[], frozenset[str]]) -> frozenset[str]:
        """Run one part of an experiment and report its failure, so that the backend does not wait."""
        try:
            with confined_to_others(self._inventory().limits.settings.closed_cpus):
                return run()
        except (RunError, IrqbalanceError) as error:
            return self._fail(str(error))
        except Exception as error:
            log.exception("An internal error ends the experiment's run.")
            return self._fail(f"An internal error of the agent ended the experiment's run: {error!r}"[:500])

    def _begin(self, begin: BeginExperiment) -> frozenset[str]:
        self._check_workload(begin.workload)
        try:
            self._prepared = Prepared(
                begin.workload, begin.role, [netdev.name for netdev in self._inventory().active_nics()]
            )
        except OSError as error:
            raise RunError(str(error)) from None
        self._until_s = time.monotonic() + READY_TIMEOUT_S
        self.due = 0.0
        return frozenset()

    def _check_workload(self, workload: Workload) -> dict[str, list[str]]:
        """Return the allowed command by its name for a Command workload, else {}. Raises RunError."""
        if self._refuses is not None and not isinstance(workload, Observe):
            raise RunError(
                f"This agent generates no load, because it only observes. {self._refuses} It can measure the node's "
                "own traffic: workload observe."
            )
        if (refused := workload_refusal(self._inventory().limits, workload)) is not None:
            raise RunError(refused)
        if not isinstance(workload, Command):
            return {}
        try:
            return {workload.name: allowed_command(self._commands_path, workload.name)}
        except CommandsError as error:
            raise RunError(str(error)) from None

    def _check_ready(self) -> frozenset[str]:
        prepared, self.due = self._prepared, math.inf
        if prepared is None or self._is_ready:
            return frozenset()
        if prepared.ready:
            self._is_ready = True
            port = 0 if prepared.receipts is None else prepared.receipts.getsockname()[1]
            self._report(RunState.READY, address=prepared.address, netdev=prepared.netdev, receipts_port=port)
            return frozenset()
        if prepared.failed is not None:
            raise RunError(prepared.failed)
        if time.monotonic() >= self._until_s:
            raise RunError(f"The experiment was not prepared on this node within {READY_TIMEOUT_S:g} s.")
        self.due = time.monotonic() + STEP_S
        return frozenset()

    def _begin_run(self, message: RunExperiment) -> frozenset[str]:
        run = message.run
        if self._begun is None or self._begun.experiment_id != message.experiment_id or not self._is_ready:
            why = "is not ready" if self._begun is not None else "has not begun"
            sentence = f"Experiment {message.experiment_id} {why} on this node, so its run is not possible."
            self._send(ExperimentMessage(message.experiment_id, RunState.FAILED, run.run_id, sentence))
            return frozenset()
        if self._run is not None and self._run.run == run:
            return frozenset()
        self._stop_serving()
        return self._drop_run() | self._attempt(lambda: self._start(run))

    def _start(self, run: Run) -> frozenset[str]:
        running, begun, prepared = _Running(run, self._root), self._begun, self._prepared
        self._run = running
        if begun is None or prepared is None:
            raise RunError("The experiment has ended on this node.")
        if (refused := run_refusal(begun, run, self._inventory().limits, prepared.address)) is not None:
            raise RunError(refused)
        running.load = Load(prepared, self._check_workload(run.workload))
        if run.irqbalance:
            if self._refuses is not None:
                raise RunError(f"This agent changes nothing, so irqbalance is not started. {self._refuses}")
            try:
                cpus = parse_cpu_list(run.irqbalance_cpus)
            except CpuListError as error:
                raise RunError(f"The CPUs of irqbalance are invalid: {error}") from None
            running.irqbalance = Irqbalance(self._changes, self._inventory(), cpus)
        if isinstance(run.workload, Command):  # which is measured from its start: what settles does so before
            self._until_s, self.due = time.monotonic() + run.warmup_s, 0.0
        else:
            self._start_load(running, running.load)
        return frozenset()

    def _start_load(self, running: "_Running", load: Load) -> None:
        if running.is_finite:
            running.begin_window()
        load.start(running.run.workload, running.run.role, running.run.address, running.run.receipts)
        running.started = True
        self._until_s = time.monotonic() + READY_TIMEOUT_S
        self.due = 0.0

    def _proceed(self) -> frozenset[str]:
        running, now_s = self._run, time.monotonic()
        if running is None:
            return frozenset()
        self.due = now_s + STEP_S
        if running.after is not None:
            return self._finish(running, running.after)
        self._check_failures(running)
        load = running.load
        if not running.started:
            if load is not None and now_s >= self._until_s:
                self._start_load(running, load)
        elif not running.loaded:
            self._await_load(running)
        elif running.is_finite:
            if load is not None and load.done:
                running.end_window()
            elif now_s >= self._until_s:
                raise RunError(
                    f"The workload was not finished after {running.run.measure_s:g} s, the maximum of a run."
                )
        elif now_s >= self._until_s:
            if running.before is None:
                self._until_s = running.begin_window() + running.run.measure_s
            else:
                running.end_window()
        if running.loaded and running.after is None:
            self.due = min(self.due, self._until_s)
        return frozenset()

    def _await_load(self, running: "_Running") -> None:
        """Wait until the load has started; for a server, until its client's traffic arrives."""
        load, now_s = running.load, time.monotonic()
        if not running.load_reported and load is not None and load.ready:
            running.load_reported = True
            self._until_s = now_s + READY_TIMEOUT_S
            self._report(RunState.LOADED)
        if running.load_reported and load is not None and (running.is_finite or load.has_traffic):
            running.loaded = True
            self._until_s = now_s + (running.run.measure_s if running.is_finite else running.run.warmup_s)
        elif now_s >= self._until_s:
            what = (
                "No traffic of the client arrived at the server"
                if running.load_reported
                else "The load of the run did not start"
            )
            raise RunError(f"{what} within {READY_TIMEOUT_S:g} s.")

    def _check_failures(self, running: "_Running") -> None:
        if running.load is not None and (why := running.load.failed) is not None:
            raise RunError(why)
        if running.irqbalance is not None and (why := running.irqbalance.failed) is not None:
            raise RunError(why)
        if self._prepared is not None and (why := self._prepared.failed) is not None:
            raise RunError(why)

    def _finish(self, running: "_Running", after: Reading) -> frozenset[str]:
        if running.load is not None:
            running.figures = running.load.figures()
            if running.contention:
                running.figures["contention_factor"] = fmean(running.contention)
            if running.run.role == "server":
                self._serving = running.load  # its client's window may end a little later
            else:
                running.load.stop()
            running.load = None
        touched: frozenset[str] = frozenset()
        if running.irqbalance is not None:
            stuck = running.irqbalance.stop()
            if stuck is None:
                return touched
            touched = running.irqbalance.delegated
            running.irqbalance = None
            if stuck:
                raise RunError(f"Not all affinities that irqbalance moved could be restored: {' '.join(stuck)}")
        assert running.before is not None  # noqa: S101 - after is read after before
        inventory, run = self._inventory(), running.run
        result = run_result(
            running.before,
            after,
            netdevs=run.netdevs or [netdev.name for netdev in inventory.active_nics()],
            irqs={
                netdev.name: frozenset(queue.irq for queue in netdev.queues if queue.irq is not None)
                for netdev in inventory.netdevs
            },
            load=running.figures,
            load_before=running.load_before,
            disturbed=running.disturbed,
            tcp=running.tcp if isinstance(run.workload, Observe | Command) else None,
        )
        self._report(RunState.MEASURED, measured=result)
        return touched | self._drop_run()

    def _fail(self, sentence: str) -> frozenset[str]:
        """Report the run as failed; without a run the experiment, which has then not begun."""
        if self._run is None:
            self._report(RunState.FAILED, sentence=sentence)
            self.end()
            return frozenset()
        stuck: list[str] = []
        if self._run.irqbalance is not None:
            stuck = self._run.irqbalance.end()
        self._report(RunState.FAILED, sentence=" ".join([sentence, *stuck]))
        touched = self._drop_run()
        if self._prepared is not None and self._prepared.failed is not None:
            return touched | self._fail(self._prepared.failed)
        return touched

    def _stop_serving(self) -> None:
        serving, self._serving = self._serving, None
        if serving is not None:
            serving.stop()

    def _drop_run(self) -> frozenset[str]:
        running, self._run = self._run, None
        self.due = math.inf
        if running is None:
            return frozenset()
        touched: frozenset[str] = frozenset()
        try:
            if running.irqbalance is not None:
                touched = running.irqbalance.delegated
                running.irqbalance.end()
        finally:
            running.close()
        return touched

    def _report(
        self,
        state: RunState,
        *,
        sentence: str = "",
        address: str = "",
        netdev: str = "",
        measured: RunResult | None = None,
        receipts_port: int = 0,
    ) -> None:
        begun, run_id = self._begun, None if self._run is None else self._run.run.run_id
        if begun is None:
            return
        sentence = "".join(letter if letter.isprintable() else " " for letter in sentence[:MAX_SENTENCE_CHARS])
        log.info("Experiment %d%s: %s. %s", begun.experiment_id, f", run {run_id}" if run_id else "", state, sentence)
        self._send(
            ExperimentMessage(begun.experiment_id, state, run_id, sentence, address, netdev, measured, receipts_port)
        )


class _Running:
    """State of one run. started: its load was started; load_reported: the load says so.

    loaded: its traffic arrives and the warm-up has begun. before, after: readings at the start and end of the
    measurement. is_finite: the workload ends by itself.
    """

    def __init__(self, run: Run, root: Path) -> None:
        self.run = run
        self.is_finite = isinstance(run.workload, Finite)
        self.load_before = os.getloadavg()[0]
        self.load: Load | None = None
        self.irqbalance: Irqbalance | None = None
        self.started = self.load_reported = self.loaded = False
        self.before: Reading | None = None
        self.after: Reading | None = None
        self.figures: dict[str, float] = {}
        self.tcp: list[TcpLatency] = []
        self.contention: list[float] = []
        self.disturbed: list[str] = []
        self._meter = Meter(root)

    def begin_window(self) -> float:
        """Begin the measurement; return its start in monotonic seconds."""
        self.before = self._meter.read()
        if self.load is not None:
            self.load.begin_window()
        return self.before.sample.monotonic_s

    def end_window(self) -> None:
        """End the measurement of the workload and of the node's counters."""
        if self.load is not None:
            self.load.end_window()
        self.after = self._meter.read()

    def close(self) -> None:
        """Stop the run's load and its readings."""
        try:
            if self.load is not None:
                self.load.stop()
        finally:
            self._meter.close()
