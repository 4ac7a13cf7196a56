"""A simulated node's changes: the agent's own state machine, over interrupts that only exist here."""

from coresteer_agent.simulate.node import SimulatedNode
from coresteer_core.change import advance
from coresteer_core.change_events import (
    ApplyRequested,
    BackendBack,
    BackendLost,
    Changes,
    ConfirmRequested,
    Event,
    ExtendRequested,
    InverseRan,
    Measured,
    Note,
    PlanRan,
    Report,
    RollbackRequested,
    RunInverse,
    RunPlan,
    SeenByBackend,
    Tick,
)
from coresteer_core.guard import refusals
from coresteer_core.guardrail import measure
from coresteer_core.model import Rates, View
from coresteer_core.plan import Action, Plan
from coresteer_core.protocol import Apply, ChangeMessage, Confirm, Extend, Outcome, Result, Rollback, Seen
from coresteer_core.settings import IrqAffinity, SettingError, parse_setting


class SimulatedChanges:
    """Applies, confirms and undoes on one simulated node. Times are monotonic seconds; answers go to the backend."""

    def __init__(self, node: SimulatedNode) -> None:
        self._node = node
        self._state = Changes()

    def asked(self, message: Apply | Confirm | Rollback | Extend | Seen, now: float) -> list[ChangeMessage]:
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
            case Seen():
                event = SeenByBackend(message.change_id, message.state)
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
                case RunInverse(change_id, plan):
                    done = [self._write(action, plan) for action in plan.actions]
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

    def _write(self, action: Action, plan: Plan) -> Result:
        """As the executor does it: known, guarded, still as the plan found it, written, read back."""
        try:
            setting = parse_setting(action.key)
            wanted = setting.canonical(action.becomes)
        except SettingError as error:
            return Result(action.key, Outcome.REFUSED, str(error))
        view = View(self._node.machine.topology, self._node.inventory)
        found = setting.current(view)
        if found is None or not isinstance(setting, IrqAffinity):
            sentence = setting.absent(view) or f"On a simulated node {setting.describe(view)} cannot be changed."
            return Result(action.key, Outcome.UNSUPPORTED, sentence)
        if against := refusals(view, [(action.key, wanted)], allow_isolated=plan.allow_isolated):
            return Result(action.key, Outcome.REFUSED, against[0].sentence, found)
        if found == wanted:
            return Result(
                action.key, Outcome.UNCHANGED, f"IRQ {setting.irq} was already on CPU {wanted}.", found, found
            )
        if found != action.was:
            return Result(
                action.key,
                Outcome.REFUSED,
                f"IRQ {setting.irq} is on CPU {found}, no longer on CPU {action.was}; look at the preview again.",
                found,
            )
        read_back = self._node.deliver(setting.irq, wanted)
        return Result(
            action.key,
            Outcome.APPLIED,
            f"IRQ {setting.irq} went from CPU {found} to CPU {read_back}.",
            found,
            read_back,
        )
