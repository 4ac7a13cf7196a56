"""Which backend each agent is connected to: this replica's copy of the table node_presence. Pure."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Location:
    """The latest connection of a node's agent. epoch: greater for each connection of a node, whichever replica has it.

    replica_id: None when it has ended. stale: it sends no samples. Others: as in the agent's Hello.
    """

    node_id: int
    epoch: int
    replica_id: int | None
    stream: str = ""
    host: str = ""
    interval_s: float = 1.0
    obeys_stops: bool = False
    stale: bool = False

    def supersedes(self, other: "Location | None") -> bool:
        """Return whether this row is at least as new as another of the same node."""
        return other is None or (self.epoch, self.replica_id is None) >= (other.epoch, other.replica_id is None)


@dataclass(frozen=True, eq=False)
class Announcement:
    """A connection that begins, before it has an epoch; two of the same agent are two."""

    node_id: int
    stream: str
    host: str
    interval_s: float
    obeys_stops: bool


class Locations:
    """Locations of all nodes that have been connected. The default is that of a backend without others."""

    def __init__(
        self, own_id: Callable[[], int] = lambda: 0, is_alive: Callable[[int], bool] = lambda _: False
    ) -> None:
        self._own_id = own_id
        self._is_alive = is_alive
        self._by_node: dict[int, Location] = {}

    def update(self, rows: Iterable[Location]) -> list[Location]:
        """Take over rows of the table, in any order; return those that say something new."""
        news = []
        for row in rows:
            known = self._by_node.get(row.node_id)
            if row != known and row.supersedes(known):
                self._by_node[row.node_id] = row
                news.append(row)
        return news

    def end(self, node_id: int, epoch: int) -> None:
        """Note that a connection has ended."""
        if (known := self._by_node.get(node_id)) is not None and known.epoch == epoch:
            self._by_node[node_id] = replace(known, replica_id=None)

    def epoch(self, node_id: int) -> int:
        """Return the epoch of the node's latest connection; 0 when it has not been connected."""
        location = self._by_node.get(node_id)
        return 0 if location is None else location.epoch

    def elsewhere(self, node_id: int) -> Location | None:
        """Return the node's connection to another replica that is alive, None without one."""
        location = self._by_node.get(node_id)
        if location is None or location.replica_id in (None, self._own_id()):
            return None
        return location if self._is_alive(location.replica_id or 0) else None

    def is_lost_with_replica(self, node_id: int) -> bool:
        """Return whether the node's latest connection was to another replica, which has vanished without ending it."""
        location = self._by_node.get(node_id)
        if location is None or location.replica_id in (None, self._own_id()):
            return False
        return not self._is_alive(location.replica_id or 0)

    def of_replica(self, replica_id: int) -> list[Location]:
        """Return the connections of one replica."""
        return [each for each in self._by_node.values() if each.replica_id == replica_id]
