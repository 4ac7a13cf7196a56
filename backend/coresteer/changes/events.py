"""Events about changes."""

from dataclasses import dataclass

from coresteer.bus import Event
from coresteer.changes.schemas import Change


@dataclass(frozen=True)
class ChangeEvent(Event):
    """A change entered another state or its agent reported progress."""

    change: Change
