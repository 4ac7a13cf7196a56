"""Events about experiments."""

from dataclasses import dataclass

from coresteer.bus import Event
from coresteer.experiments.schemas import ExperimentSummary


@dataclass(frozen=True)
class QueueEvent(Event):
    """The queued and running experiments may have changed: the runner looks at them."""


@dataclass(frozen=True)
class ExperimentEvent(Event):
    """An experiment entered another state or completed a run."""

    experiment: ExperimentSummary
