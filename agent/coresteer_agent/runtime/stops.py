"""Stops of enforcement on a node: while one applies, no policy writes, and the agent restores every original if asked.

The agent refuses by itself: it stores the stops with its policies, and after each connection it waits for those that
apply now before any policy acts.
"""

import time
from collections.abc import Callable, Iterable

from msgspec.structs import replace

from coresteer_agent.runtime.policy_changes import ChangeHandler, PolicyChanges
from coresteer_core.policies.base import Mode
from coresteer_core.policies.engine_state import EnforcementStop, PolicyInForce
from coresteer_core.protocol import StoppedMessage


class Stops:
    """The stops of enforcement that apply to one node; they are part of the state of tracked.

    report: sends to the backend. save: saves the state of tracked. waiting: for the policies that the backend sends
    after it has welcomed the agent.
    """

    def __init__(
        self,
        changes: ChangeHandler,
        tracked: PolicyChanges,
        report: Callable[[StoppedMessage], None],
        save: Callable[[], None],
    ) -> None:
        self._changes = changes
        self._tracked = tracked
        self._report = report
        self._save = save
        self._reported = True
        self._restoring: list[int] = []
        """Ids of the stops whose restore has begun."""
        self.waiting = False

    @property
    def apply(self) -> bool:
        """Return whether a stop applies to the node, or its change window has closed, so that no policy writes."""
        hold_from_ms = self._tracked.state.hold_from_ms
        return bool(self._tracked.state.stops) or (hold_from_ms is not None and time.time() * 1000 >= hold_from_ms)

    def wait(self) -> None:
        """Let no policy write until the backend has sent what is in force: a stop may have begun meanwhile."""
        self.waiting = True

    def continue_without(self) -> None:
        """Continue with what is known: the connection ended before the backend sent what is in force."""
        self.waiting = False

    def received(self, stops: list[EnforcementStop]) -> list[int]:
        """Note which stops apply now; obey() reports them. Return the ids of those that are restored already."""
        self.waiting, self._reported = False, not stops
        ids = {stop.stop_id for stop in stops}
        return [stop_id for stop_id in self._tracked.state.restored if stop_id in ids]

    def allowed(self, policies: list[PolicyInForce]) -> list[PolicyInForce]:
        """Return policies in a mode that the stops allow: none enforces while one applies."""
        if not self.apply:
            return policies
        return [replace(each, mode=Mode.RECOMMEND) if each.mode is Mode.ENFORCE else each for each in policies]

    def obey(self) -> frozenset[str]:
        """Restore every original for a new stop that asks for it, then report the stops.

        Returns the keys of settings that were restored. Call it after received(), and after each part of a long write.
        """
        if self._changes.busy or (self._reported and not self._due()):
            return frozenset()
        touched: frozenset[str] = frozenset()
        if self._due() and not self._restoring:
            self._restoring, touched = self._due(), self._changes.restore_all()
        self._finish()
        return touched

    def _finish(self) -> None:
        if self._changes.busy:
            return
        if restored := self._restoring:
            self._restoring = []
            self._tracked.record_restored()
            self._tracked.state = replace(self._tracked.state, restored=[*self._tracked.state.restored, *restored])
            self._save()
        if not self._reported:
            self._reported = True
            stuck = len(self._changes.changed_settings) if restored else 0
            self._report(StoppedMessage(_ids(self._tracked.state.stops), stuck))

    def _due(self) -> list[int]:
        state = self._tracked.state
        return _ids(stop for stop in state.stops if stop.restore and stop.stop_id not in state.restored)


def _ids(stops: Iterable[EnforcementStop]) -> list[int]:
    return [stop.stop_id for stop in stops]
