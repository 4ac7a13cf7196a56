"""Latest messages of an experiment's agents on their present connections; lost when the backend restarts.

runner.py passes the messages on; run_loop.py and step_actions.py read them and note what they requested.
"""

import asyncio
import secrets
import time
from dataclasses import dataclass, field
from dataclasses import replace as with_changes
from uuid import UUID

from coresteer.changes.schemas import Change
from coresteer.experiments.steps import Participant
from coresteer_core.changes.guardrail import Guardrail, Strikes
from coresteer_core.changes.report import EndedBy
from coresteer_core.experiments.model import RunState
from coresteer_core.node.summary import Summary
from coresteer_core.protocol import ExperimentMessage


@dataclass
class ActiveRun:
    """The run whose settings are applied. run_id: identifies it to the agents; leased: the ids of its policies.

    receipts_key: by which its client recognizes its server.
    violation: the guardrail violation in a sentence; failure: why the run cannot be completed. answer_due_s: when
    Prometheus' answer with its primary metric is overdue, monotonic s, None unless it is waited for. is_checked: its
    guardrails were checked at its end.
    """

    run_id: str
    change_id: UUID | None = None
    leased: frozenset[int] = frozenset()
    violation: str | None = None
    failure: str | None = None
    answer_due_s: float | None = None
    is_checked: bool = False
    strikes: dict[str, Strikes] = field(default_factory=dict)
    receipts_key: str = field(default_factory=lambda: secrets.token_hex(32))


class SessionState:
    """In-memory state of an experiment's nodes and active run. changed: set on every update. Times are monotonic, s.

    leased: policies may be leased, as far as is known here: until it is ended, an earlier leader's lease may last.
    settings: as last read, None when they must be read again. phase_started_s: start of the present phase.
    """

    def __init__(self, experiment_id: int, names: dict[int, str], guardrails: list[Guardrail]) -> None:
        self.experiment_id = experiment_id
        self.changed = asyncio.Event()
        self.participants = {node_id: Participant(name) for node_id, name in names.items()}
        self.node_id = next(iter(names))
        self.active_run: ActiveRun | None = None
        self.leased = True
        self.phase_started_s = time.monotonic()
        self.paused_at_s: float | None = None
        self.policies_paused = False
        self.end_sent = False
        self.settings: dict[str, str] | None = None
        self.netdev_settings_before: dict[str, str] = {}
        self._guardrails = guardrails

    def set_active_run(self, run: ActiveRun | None) -> None:
        """Enter the phase in which this run's settings are applied, or in which none are (None)."""
        self.active_run, self.settings, self.phase_started_s = run, None, time.monotonic()
        for node_id, participant in self.participants.items():
            self.participants[node_id] = with_changes(participant, run_sent_at_s=None, run_message=None)

    def require_preparation(self) -> None:
        """Mark all nodes of the experiment as not prepared."""
        self.netdev_settings_before = {}
        for node_id, participant in self.participants.items():
            self.participants[node_id] = with_changes(participant, prepare_sent_at_s=None, session_message=None)

    def set_connected(self, node_id: int, *, connected: bool) -> None:
        """Record that a node's agent connected, perhaps once more, or disconnected."""
        now, participant = time.monotonic(), self.participants[node_id]
        if self.active_run is not None and participant.measured is None:
            self.active_run.failure = f"The connection to {participant.name} was lost during the run."
        self.participants[node_id] = Participant(
            participant.name,
            away_since_s=None if connected else participant.away_since_s or now,
            run_sent_at_s=participant.run_sent_at_s,
            run_message=participant.run_message if participant.measured is not None else None,
        )
        self.leased = self.leased or connected
        self.netdev_settings_before, self.settings, self.phase_started_s = {}, None, now
        self.changed.set()

    def handle_message(self, node_id: int, message: ExperimentMessage) -> None:
        """Handle an agent's message; ignore it if it concerns another experiment, a past run or no request."""
        participant = self.participants[node_id]
        if message.experiment_id != self.experiment_id or participant.prepare_sent_at_s is None:
            return
        run = self.active_run
        if message.run_id is None:
            if message.state in (RunState.READY, RunState.FAILED):
                self.participants[node_id] = with_changes(participant, session_message=message)
                self.settings, self.phase_started_s = None, time.monotonic()
                if run is not None:
                    run.failure = f"{participant.name} prepared the experiment again during the run."
        elif run is not None and message.run_id == run.run_id and participant.run_sent_at_s is not None:
            if participant.measured is not None or message.state is RunState.READY:
                return
            self.participants[node_id] = with_changes(participant, run_message=message)
        self.changed.set()

    def handle_change(self, change: Change) -> None:
        """Handle a report about a change on the node under test."""
        run = self.active_run
        if run is not None and change.policy_id in run.leased and change.ended_by is EndedBy.GUARDRAIL:
            run.violation = change.steps[-1].sentence if change.steps else change.sentence
        self.changed.set()

    def handle_inventory(self) -> None:
        """Require that settings are read again: the agent reported its inventory or another part of its state."""
        self.settings = None
        self.changed.set()

    def handle_summary(self, summary: Summary) -> None:
        """Check one interval of the node under test against the guardrails, as an agent does for a change."""
        run = self.active_run
        if run is None or not self._guardrails:
            return
        for guardrail in self._guardrails:
            value = summary.metrics.get(guardrail.metric)
            strikes = run.strikes.get(guardrail.metric, Strikes()).count(guardrail, value, summary.duration_s)
            run.strikes[guardrail.metric] = strikes
            violation = strikes.violation(guardrail, value)
            if run.violation is None and violation is not None:
                run.violation = f"The {violation}"
                self.changed.set()
