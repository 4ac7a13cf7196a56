"""What the agents of one experiment's nodes told on their present connections; a restart of the backend forgets it.

runner.py passes on what comes, drive.py reads it and notes what it asked for.
"""

import asyncio
import time
from dataclasses import dataclass, field
from dataclasses import replace as with_changes
from uuid import UUID

from coresteer.changes.schemas import Change
from coresteer.experiments.steps import Side
from coresteer_core.changes.guardrail import METRICS, Guardrail, measure
from coresteer_core.changes.machine import STRIKES, STRIKES_S
from coresteer_core.experiments.model import RunState
from coresteer_core.node.rates import Rates
from coresteer_core.protocol import EndedBy, ExperimentMessage


@dataclass
class AtHand:
    """The run whose settings stand. run_id: names it to the agents; leased: the ids of its policies.

    tripped: what a guardrail said; broken: why it cannot be finished.
    """

    run_id: str
    change_id: UUID | None = None
    leased: frozenset[int] = frozenset()
    tripped: str | None = None
    broken: str | None = None
    strikes: dict[str, tuple[int, float]] = field(default_factory=dict)


class Heard:
    """What is known of the nodes and the run at hand. changed: set whenever something was heard. Times are monotonic.

    since_s: when the present phase began. settings: as the node told last, None when they are to be read again.
    """

    def __init__(self, experiment_id: int, names: dict[int, str], guardrails: list[Guardrail]) -> None:
        self.experiment_id = experiment_id
        self.changed = asyncio.Event()
        self.sides = {node_id: Side(name) for node_id, name in names.items()}
        self.node_id = next(iter(names))
        self.at_hand: AtHand | None = None
        self.leased = False
        self.since_s = time.monotonic()
        self.paused_at_s: float | None = None
        self.pauses = False
        self.told_to_end = False
        self.settings: dict[str, str] | None = None
        self.netdev_before: dict[str, str] = {}
        self._guardrails = guardrails

    def enter(self, at_hand: AtHand | None) -> None:
        """A run's settings were put in place, or none are any more."""
        self.at_hand, self.settings, self.since_s = at_hand, None, time.monotonic()
        for node_id, side in self.sides.items():
            self.sides[node_id] = with_changes(side, run_at_s=None, run_word=None)

    def begin_anew(self) -> None:
        """What was prepared on the nodes is to be prepared again."""
        self.netdev_before = {}
        for node_id, side in self.sides.items():
            self.sides[node_id] = with_changes(side, begun_at_s=None, word=None)

    def connection(self, node_id: int, *, connected: bool) -> None:
        """The agent connected, perhaps anew, or its connection ended."""
        now, side = time.monotonic(), self.sides[node_id]
        if self.at_hand is not None and side.measured is None:
            self.at_hand.broken = f"The connection with {side.name} was lost during the run."
        word = side.run_word if side.measured is not None else None
        away_since_s = None if connected else side.away_since_s or now
        self.sides[node_id] = Side(side.name, away_since_s=away_since_s, run_at_s=side.run_at_s, run_word=word)
        self.netdev_before, self.settings, self.since_s = {}, None, now
        self.changed.set()

    def message(self, node_id: int, message: ExperimentMessage) -> None:
        """An agent's word; what is about another experiment, a past run or nothing that was asked for is left aside."""
        side = self.sides[node_id]
        if message.experiment_id != self.experiment_id or side.begun_at_s is None:
            return
        if message.run_id is None:
            if message.state in (RunState.READY, RunState.FAILED):
                self.sides[node_id] = with_changes(side, word=message)
                self.settings, self.since_s = None, time.monotonic()
                if self.at_hand is not None:
                    self.at_hand.broken = f"{side.name} began anew during the run."
        elif self.at_hand is not None and message.run_id == self.at_hand.run_id and side.run_at_s is not None:
            if side.measured is not None or message.state is RunState.READY:
                return
            self.sides[node_id] = with_changes(side, run_word=message)
        self.changed.set()

    def change(self, change: Change) -> None:
        """A change on the node took a step."""
        run = self.at_hand
        if run is not None and change.policy_id in run.leased and change.ended_by is EndedBy.GUARDRAIL:
            run.tripped = change.steps[-1].sentence if change.steps else change.sentence
        self.changed.set()

    def told_of_itself(self) -> None:
        """The node's inventory, or something else of it, was stored."""
        self.settings = None
        self.changed.set()

    def rates(self, rates: Rates) -> None:
        """An interval of the node under test: the guardrails count as an agent counts them for a change."""
        run = self.at_hand
        if run is None or not self._guardrails:
            return
        figures = measure(rates)
        for guardrail in self._guardrails:
            value = figures[guardrail.metric]
            if value is None or value <= guardrail.max:
                run.strikes.pop(guardrail.metric, None)
                continue
            times, lasted = run.strikes.get(guardrail.metric, (0, 0.0))
            run.strikes[guardrail.metric] = times, lasted = times + 1, lasted + rates.duration_s
            if run.tripped is None and times >= STRIKES and round(lasted, 1) >= STRIKES_S:
                run.tripped = (
                    f"The {METRICS[guardrail.metric]} was {value:.6g} and so for {times} intervals in a row "
                    f"over its guardrail of {guardrail.max:.6g}."
                )
                self.changed.set()
