"""Present values of the signals, read in a few queries however many nodes there are."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import numpy as np
from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.alerts import repository
from coresteer.fleet.directory import FleetDirectory, Moment
from coresteer.fleet.figures import Numbers
from coresteer.fleet.query import Fleet
from coresteer.presence.schemas import Health
from coresteer.telemetry.schemas import Resolution
from coresteer_core.alerts.signals import SIGNALS, Of

_METRICS_AGE = timedelta(minutes=2)
"""How long before now the minute of metrics begins; by then its roll-ups are stored."""
_BACKEND = "the backend"

DiskUsed = Callable[[], float | None]
"""Returns the used part of the database's disk in percent, None where it is not known."""


@dataclass(frozen=True)
class Subject:
    """What an alert is about: its name, and its labels if it is a node."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)


class Column:
    """Values of all nodes as an array; NaN where unknown."""

    def __init__(self, fleet: Fleet, values: Numbers) -> None:
        self._fleet, self._values = fleet, values

    def at_least(self, least: float) -> Iterator[int]:
        """Yield the subjects whose value is at least this."""
        for place in np.flatnonzero(self._values >= least):
            yield self._fleet.nodes[int(place)].id

    def value(self, subject: int) -> float | None:
        """Return the value of a subject, None where it is unknown."""
        place = self._fleet.places.get(subject)
        value = np.nan if place is None else self._values[place]
        return None if np.isnan(value) else float(value)


class Counts:
    """Values that are known of every subject: 0 of those that are not named."""

    def __init__(self, counts: Mapping[int, float]) -> None:
        self._counts = counts

    def at_least(self, least: float) -> Iterator[int]:
        """Yield the subjects that are named and whose value is at least this."""
        return (subject for subject, count in self._counts.items() if count >= least)

    def value(self, subject: int) -> float | None:
        """Return the value of a subject."""
        return self._counts.get(subject, 0.0)


@dataclass(frozen=True)
class Readings:
    """Present values by signal, and what they are values of."""

    fleet: Fleet
    policies: Mapping[int, str]
    values: Mapping[str, Column | Counts]

    def subject(self, of: Of, subject: int) -> Subject | None:
        """Return what an alert is about, None if it does not exist any more."""
        if of is Of.BACKEND:
            return Subject(_BACKEND)
        if of is Of.POLICY:
            return Subject(self.policies[subject]) if subject in self.policies else None
        place = self.fleet.places.get(subject)
        return None if place is None else Subject(self.fleet.nodes[place].name, self.fleet.nodes[place].labels)


async def read(
    session: AsyncSession, directory: FleetDirectory, disk_used: DiskUsed, signals: Collection[str], now: datetime
) -> Readings:
    """Return the present values of signals. Raises database errors."""
    minute = (now - _METRICS_AGE).replace(second=0, microsecond=0)
    needs_metrics = any(signal in _metrics() for signal in signals)
    fleet = await (directory.at(Moment(minute, Resolution.MINUTE)) if needs_metrics else directory.present())
    values: dict[str, Column | Counts] = {
        name: Column(fleet, fleet.values.metrics[name]) for name in signals if name in fleet.values.metrics
    }
    policies: Mapping[int, str] = {}
    if "disconnected" in signals:
        values["disconnected"] = Column(fleet, fleet.values.is_of(Health.AWAY).astype(np.float64))
    if "rollbacks" in signals:
        values["rollbacks"] = Counts(await repository.rollbacks(session, now))
    if "drifts" in signals:
        values["drifts"] = Counts(await repository.drifts(session, now))
    if "harmful" in signals:
        policies, counts = await repository.harm(session, now)
        values["harmful"] = Counts(counts)
    if "disk_used_percent" in signals and (used := disk_used()) is not None:
        values["disk_used_percent"] = Counts({0: used})
    return Readings(fleet, policies, values)


def _metrics() -> Collection[str]:
    other = ("disconnected", "rollbacks", "drifts", "harmful", "disk_used_percent")
    return [name for name in SIGNALS if name not in other]
