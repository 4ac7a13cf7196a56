"""Changes of a simulated node: the agent's ChangeRunner with an executor that changes simulated settings."""

import logging
from collections.abc import Callable

from coresteer_agent.runtime.changes import ChangeRunner
from coresteer_agent.simulate.node import SimulatedNode, UnsupportedError
from coresteer_core.changes.events import BackendBack, BackendLost
from coresteer_core.changes.guard import refusals
from coresteer_core.changes.plan import Action
from coresteer_core.changes.report import ChangeMessage, Outcome, Result
from coresteer_core.node.rates import Rates
from coresteer_core.node.view import View
from coresteer_core.settings import SettingError, parse_setting

_log = logging.getLogger("coresteer.simulate.changes")
_log.setLevel(logging.WARNING)  # thousands of nodes would each log every state


class SimulatedExecutor:
    """Applies actions to a simulated machine, in the same steps as the agent's executor, without a journal."""

    def __init__(self, node: SimulatedNode) -> None:
        self._node = node

    def apply(self, action: Action, *, change_id: str, allow_isolated: bool = False) -> Result:
        """Apply an action: check support, guard and action.was, write the simulated setting, read it back."""
        return self._write(action, allow_isolated=allow_isolated)

    def undo(self, action: Action) -> Result:
        """Write action.becomes back without the guard's checks, whatever value the setting has now."""
        return self._write(action, undo=True)

    def verify(self, action: Action) -> Result:
        """Read whether a setting still has the value action.becomes: unchanged or failed."""
        found = parse_setting(action.key).current(self._view())
        outcome = Outcome.UNCHANGED if found == action.becomes else Outcome.FAILED
        return Result(action.key, outcome, f"{action.key} is {found}.", found, found)

    def _write(  # noqa: PLR0911 - one return a stage
        self, action: Action, *, allow_isolated: bool = False, undo: bool = False
    ) -> Result:
        try:
            setting = parse_setting(action.key)
            value = setting.canonical(action.becomes)
        except SettingError as error:
            return Result(action.key, Outcome.REFUSED, str(error))
        view = self._view()
        name = setting.describe(view)
        unsupported = setting.missing_reason(view) or f"On a simulated node {name} cannot be changed."
        found = setting.current(view)
        if found is None:
            return Result(action.key, Outcome.UNSUPPORTED, unsupported)
        if not undo and (against := refusals(view, [(action.key, value)], allow_isolated=allow_isolated)):
            return Result(action.key, Outcome.REFUSED, against[0].sentence, found)
        if found == value:
            return Result(action.key, Outcome.UNCHANGED, f"{name} is already {value}.", found, found)
        if not undo and found != action.was:
            sentence = f"{name} is {found}, no longer {action.was}; preview again."
            return Result(action.key, Outcome.REFUSED, sentence, found)
        try:
            read_back = self._node.write(setting, value)
        except UnsupportedError:
            return Result(action.key, Outcome.UNSUPPORTED, unsupported)
        except OSError as error:
            sentence = f"{name} cannot be set to {value}. The simulated driver refuses this value: {error.strerror}."
            return Result(action.key, Outcome.FAILED, sentence, found, found)
        if read_back != value:
            sentence = f"{name} was set to {value}, but the kernel changed it to {read_back}."
            return Result(action.key, Outcome.FAILED, sentence, found, read_back)
        return Result(action.key, Outcome.APPLIED, f"{name} was changed from {found} to {value}.", found, value)

    def _view(self) -> View:
        return View(
            self._node.machine.topology,
            self._node.inventory,
            tasks=self._node.net_tasks(),
            learned=self._node.learned,
            cgroups=self._node.cgroups(),
        )


class SimulatedChanges(ChangeRunner):
    """Applies the changes of one simulated node, without a journal: the node ends with its process.

    Messages are collected for messages(), as a simulated agent sends them together with its inventory.
    """

    def __init__(self, node: SimulatedNode, clock: Callable[[], float] | None = None) -> None:
        self._messages: list[ChangeMessage] = []
        super().__init__(SimulatedExecutor(node), self._collect, clock=clock, logger=_log)

    def messages(self) -> list[ChangeMessage]:
        """Return the messages for the backend since the last call."""
        messages, self._messages = self._messages, []
        return messages

    def connected(self) -> None:
        """Start reporting changes: the backend has welcomed the node."""
        self.feed(BackendBack())

    def disconnected(self) -> None:
        """Handle the end of the connection: undo unconfirmed changes, and report that after the next Welcome."""
        self.feed(BackendLost())

    def advance(self, rates: Rates) -> None:
        """Advance confirmation timers, and check guardrails against the rates of one interval."""
        if any(change.open for change in self._state.changes.values()):
            self.tick()
            self.check_guardrails(rates)

    def _collect(self, message: ChangeMessage) -> None:
        self._messages.append(message)
