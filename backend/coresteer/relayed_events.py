"""Which events every backend learns of, and how each is made of its id."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from coresteer.bus import Event, InventoryEvent, LocationsEvent, NodeEvent, PoliciesEvent
from coresteer.changes import service as changes
from coresteer.changes.events import ChangeEvent
from coresteer.db import Database
from coresteer.experiments import service as experiments
from coresteer.experiments.events import ExperimentEvent, QueueEvent
from coresteer.replicas.relay import Id, Relayed

AFTER_A_GAP: Sequence[Event] = (PoliciesEvent(None), QueueEvent(), LocationsEvent())
"""What makes up for events that were missed; browsers that have lost others reload in time."""


def relayed_events(database: Database) -> list[Relayed[Any]]:  # Any: events of several types
    """Return the events that are passed on to other backends."""

    async def of_changes(ids: Sequence[Id]) -> Iterable[Event]:
        return await changes.events_of(database, [str(each) for each in ids])

    async def of_experiments(ids: Sequence[Id]) -> Iterable[Event]:
        return await experiments.events_of(database, [int(each) for each in ids if each is not None])

    return [
        Relayed("node", NodeEvent, lambda event: event.node_id, partial(_each, NodeEvent)),
        Relayed("inventory", InventoryEvent, lambda event: event.node_id, partial(_each, InventoryEvent)),
        Relayed("policies", PoliciesEvent, lambda event: event.node_id, partial(_each, PoliciesEvent)),
        Relayed("queue", QueueEvent, lambda _: None, partial(_once, QueueEvent())),
        Relayed("locations", LocationsEvent, lambda _: None, partial(_once, LocationsEvent())),
        Relayed("change", ChangeEvent, lambda event: event.change.id, of_changes),
        Relayed("experiment", ExperimentEvent, lambda event: event.experiment.id, of_experiments),
    ]


async def _each(event: Any, ids: Sequence[Id]) -> Iterable[Event]:  # noqa: ANN401 - a class of events of one id
    return [event(each) for each in ids]


async def _once(event: Event, _: Sequence[Id]) -> Iterable[Event]:
    return [event]
