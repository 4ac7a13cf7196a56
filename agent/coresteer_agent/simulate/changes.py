"""A simulated node's changes: the agent's own state machine, over interrupts that only exist here."""

import time
from typing import TypeAlias

from coresteer_agent.simulate.node import SimulatedNode
from coresteer_core.changes.events import (
    AcknowledgedByBackend,
    ApplyRequested,
    BackendBack,
    BackendLost,
    Change,
    Changes,
    ConfirmRequested,
    Event,
    ExtendRequested,
    InverseRan,
    Measured,
    Note,
    PlanRan,
    Recheck,
    Rechecked,
    Report,
    RollbackRequested,
    RunInverse,
    RunPlan,
    RunRestore,
    Tick,
)
from coresteer_core.changes.guard import refusals
from coresteer_core.changes.guardrail import measure
from coresteer_core.changes.machine import advance
from coresteer_core.changes.plan import Action, Plan
from coresteer_core.node.rates import Rates
from coresteer_core.node.view import View
from coresteer_core.protocol import Apply, ChangeAck, ChangeMessage, Confirm, Extend, Outcome, Result, Rollback
from coresteer_core.settings import (
    CgroupWeight,
    IrqAffinity,
    NetdevParam,
    Rps,
    SettingError,
    TaskAffinity,
    TaskNice,
    parse_setting,
)

_Simulated: TypeAlias = IrqAffinity | TaskAffinity | TaskNice | CgroupWeight | NetdevParam | Rps


class SimulatedChanges:
    """Applies, confirms and undoes on one simulated node. Times are monotonic seconds; answers go to the backend."""

    def __init__(self, node: SimulatedNode) -> None:
        self._node = node
        self._state = Changes()
        self._said: list[ChangeMessage] = []

    def feed(self, event: Event) -> frozenset[str]:
        """What a policy wants. The answers are there for said(); the node's settings are never stale."""
        self._said += self._feed(event, time.monotonic())
        return frozenset()

    def said(self) -> list[ChangeMessage]:
        """The answers to feed() since the last time."""
        said, self._said = self._said, []
        return said

    def change(self, change_id: str) -> Change | None:
        """What is known of a change."""
        return self._state.changes.get(change_id)

    def asked(self, message: Apply | Confirm | Rollback | Extend | ChangeAck, now: float) -> list[ChangeMessage]:
        """What the backend wants."""
        match message:
            case Apply():
                event: Event = ApplyRequested(
                    message.change_id, message.plan, message.confirm_timeout_s, message.guardrails
                )
            case Confirm():
                event = ConfirmRequested(message.change_id)
            case Rollback():
                event = RollbackRequested(message.change_id)
            case Extend():
                event = ExtendRequested(message.change_id, message.seconds)
            case ChangeAck():
                event = AcknowledgedByBackend(message.change_id, message.state)
        return self._feed(event, now)

    def connected(self, now: float) -> list[ChangeMessage]:
        """The backend said Welcome."""
        return self._feed(BackendBack(), now)

    def disconnected(self, now: float) -> None:
        """The connection ended; what is undone meanwhile is told after the next Welcome."""
        self._feed(BackendLost(), now)

    def measured(self, rates: Rates, now: float) -> list[ChangeMessage]:
        """An interval has passed: deadlines and guardrails."""
        if not any(change.open for change in self._state.changes.values()):
            return []
        return self._feed(Tick(), now) + self._feed(Measured(measure(rates), rates.duration_s), now)

    def _feed(self, event: Event, now: float) -> list[ChangeMessage]:
        said: list[ChangeMessage] = []
        self._state, todo = advance(self._state, event, now)
        for instruction in todo:
            match instruction:
                case Report(message):
                    said.append(message)
                case RunPlan(change_id, plan):
                    said += self._feed(PlanRan(change_id, self._run(plan)), now)
                case RunRestore(change_id, plan):
                    done = [self._write(action, plan, undo=True) for action in plan.actions]
                    said += self._feed(PlanRan(change_id, done), now)
                case Recheck(change_id, plan):
                    found = [self._stands(action) for action in plan.actions]
                    said += self._feed(Rechecked(change_id, found), now)
                case RunInverse(change_id, plan):
                    done = [self._write(action, plan, undo=True) for action in plan.actions]
                    said += self._feed(InverseRan(change_id, done), now)
                case Note():
                    pass  # a simulated node is gone with its process, there is nothing to restore
        return said

    def _run(self, plan: Plan) -> list[Result]:
        results: list[Result] = []
        for action in plan.actions:
            results.append(self._write(action, plan))
            if not results[-1].done:
                break
        return results

    def _write(  # noqa: PLR0911 - one return a stage of the door
        self, action: Action, plan: Plan, *, undo: bool = False
    ) -> Result:
        """As the executor does it: known, guarded, still as the plan found it, written, read back.

        undo: whatever stands there now goes back, and the guard is not asked.
        """
        try:
            setting = parse_setting(action.key)
            wanted = setting.canonical(action.becomes)
        except SettingError as error:
            return Result(action.key, Outcome.REFUSED, str(error))
        view = self._view()
        found = setting.current(view)
        if found is None or not isinstance(setting, _Simulated):
            sentence = setting.absent(view) or f"On a simulated node {setting.describe(view)} cannot be changed."
            return Result(action.key, Outcome.UNSUPPORTED, sentence)
        name = setting.describe(view)
        if not undo and (against := refusals(view, [(action.key, wanted)], allow_isolated=plan.allow_isolated)):
            return Result(action.key, Outcome.REFUSED, against[0].sentence, found)
        if found == wanted:
            return Result(action.key, Outcome.UNCHANGED, f"{name} is on {wanted} already.", found, found)
        if not undo and found != action.was:
            sentence = f"{name} is on {found}, no longer on {action.was}; look at the preview again."
            return Result(action.key, Outcome.REFUSED, sentence, found)
        try:
            read_back = self._set(setting, wanted)
        except OSError as error:
            sentence = f"{name} cannot go to {wanted}. The kernel said: {error.strerror}."
            return Result(action.key, Outcome.FAILED, sentence, found, found)
        if read_back != wanted:
            sentence = f"{name} was set to {wanted}, but the kernel made it {read_back}."
            return Result(action.key, Outcome.FAILED, sentence, found, read_back)
        return Result(action.key, Outcome.APPLIED, f"{name} went from {found} to {read_back}.", found, read_back)

    def _set(self, setting: _Simulated, wanted: str) -> str:
        """Write it; what reads back. Raises OSError."""
        match setting:
            case IrqAffinity():
                return self._node.deliver(setting.irq, wanted)
            case TaskAffinity():
                self._node.affinities[setting.pid] = wanted
                return wanted
            case TaskNice():
                self._node.nices[setting.pid] = wanted
                return wanted
            case CgroupWeight():
                self._node.weights[f"{setting.path}/{setting.name}"] = wanted
                return wanted
            case NetdevParam():
                return self._node.ask(setting, wanted)
            case Rps():
                return self._node.pass_on(setting, wanted)

    def _stands(self, action: Action) -> Result:
        found = parse_setting(action.key).current(self._view())
        outcome = Outcome.UNCHANGED if found == action.becomes else Outcome.FAILED
        return Result(action.key, outcome, f"{action.key} is {found}.", found, found)

    def _view(self) -> View:
        return View(
            self._node.machine.topology,
            self._node.inventory,
            tasks=self._node.net_tasks(),
            learned=self._node.learned,
            cgroups=self._node.cgroups(),
        )
