import math

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec.structs import replace

from coresteer_core.bounds import MAX_VALUE
from coresteer_core.changes.events import (
    AcknowledgedByBackend,
    AgentRestarted,
    AgentStopping,
    ApplyRequested,
    BackendLost,
    BackendReconnected,
    Change,
    Changes,
    ConfirmFailed,
    ConfirmRequested,
    Event,
    ExtendRequested,
    InverseRan,
    MetricsMeasured,
    PlanRan,
    Recheck,
    Rechecked,
    RecordChange,
    RestoredExternally,
    RestoreRequested,
    RollbackRequested,
    RunInverse,
    RunPlan,
    RunRestore,
    SendChangeState,
    SettingsDelegated,
    Tick,
)
from coresteer_core.changes.guard import MAX_PLAN_ACTIONS
from coresteer_core.changes.guardrail import Guardrail
from coresteer_core.changes.machine import MAX_OPEN_CHANGES, MAX_PLAN_CHARACTERS, advance
from coresteer_core.changes.plan import Action, Plan
from coresteer_core.changes.report import ChangeMessage, ChangeState, EndedBy, Outcome, Result
from coresteer_core.changes.undo import (
    LOST_BACKEND_GRACE_S,
    MAX_REMEMBERED_CHANGES,
    MAX_REMEMBERED_CHARACTERS,
    changes_after_reboot,
    text_length,
    with_change,
)

UNCONFIRMED, CONFIRMED = ChangeState.UNCONFIRMED, ChangeState.CONFIRMED
ROLLED_BACK, FAILED = ChangeState.ROLLED_BACK, ChangeState.FAILED


class Machine:
    """A kernel, a journal and a backend's ear around the state machine. stuck: keys that take no write.

    unfinished: None, or the plans that have not run yet because writes take long.
    """

    def __init__(self, state: Changes | None = None) -> None:
        self.state = state or Changes()
        self.kernel = dict.fromkeys(("a", "b", "c", "d"), "0")
        self.stuck: set[str] = set()
        self.journal: dict[str, Change] = {}
        self.reported: list[ChangeMessage] = []
        self.ran: list[RunPlan | RunRestore | RunInverse] = []
        self.unfinished: list[RunPlan | RunRestore | RunInverse] | None = None
        self.now = 0.0

    def feed(self, event: Event) -> list[ChangeMessage]:
        before = len(self.reported)
        events = [event]
        while events:
            self.state, instructions = advance(self.state, events.pop(0), self.now)
            for todo in instructions:
                match todo:
                    case RecordChange():
                        self.journal[todo.change.change_id] = todo.change
                    case SendChangeState():
                        self.reported.append(todo.message)
                    case Recheck():
                        events.append(Rechecked(todo.change_id, [self._look(a) for a in todo.plan.actions]))
                    case RunPlan() | RunRestore() | RunInverse():
                        self.ran.append(todo)
                        if self.unfinished is None:
                            events.append(self._carry_out(todo))
                        else:
                            self.unfinished.append(todo)
        return self.reported[before:]

    def finish(self) -> None:
        unfinished, self.unfinished = self.unfinished or [], None
        for todo in unfinished:
            self.feed(self._carry_out(todo))

    def _carry_out(self, todo: RunPlan | RunRestore | RunInverse) -> PlanRan | InverseRan:
        if isinstance(todo, RunPlan):
            return PlanRan(todo.change_id, self._run(todo.plan))
        results = [self._write(action) for action in todo.plan.actions]
        return (PlanRan if isinstance(todo, RunRestore) else InverseRan)(todo.change_id, results)

    def _run(self, plan: Plan) -> list[Result]:
        results: list[Result] = []
        for action in plan.actions:
            if self.kernel[action.key] not in (action.was, action.becomes):
                results.append(Result(action.key, Outcome.REFUSED, f"{action.key} is stale."))
            else:
                results.append(self._write(action))
            if not results[-1].done:
                break
        return results

    def _look(self, action: Action) -> Result:
        if action.key not in self.kernel:
            return Result(action.key, Outcome.UNSUPPORTED, f"{action.key} is gone.")
        found = self.kernel[action.key]
        outcome = Outcome.UNCHANGED if found == action.becomes else Outcome.FAILED
        return Result(action.key, outcome, f"{action.key} stands at {found} instead of {action.becomes}.", found, found)

    def _write(self, action: Action) -> Result:
        found = self.kernel[action.key]
        if action.key in self.stuck:
            return Result(action.key, Outcome.REFUSED, f"{action.key} is managed.", found, found)
        if found == action.becomes:
            return Result(action.key, Outcome.UNCHANGED, f"{action.key} is {found}.", found, found)
        self.kernel[action.key] = action.becomes
        return Result(action.key, Outcome.APPLIED, f"{action.key} is {action.becomes}.", found, action.becomes)

    def plan(self, *keys: str, becomes: str = "1") -> Plan:
        return Plan([Action(key, self.kernel[key], becomes, "test") for key in keys])

    def apply(self, change_id: str, *keys: str, becomes: str = "1", guardrails: tuple[Guardrail, ...] = ()) -> Change:
        self.feed(ApplyRequested(change_id, self.plan(*keys, becomes=becomes), 60, list(guardrails)))
        return self[change_id]

    def enforce(self, change_id: str, *keys: str, becomes: str = "1", guardrails: tuple[Guardrail, ...] = ()) -> Change:
        plan = self.plan(*keys, becomes=becomes)
        self.feed(ApplyRequested(change_id, plan, 30, list(guardrails), policy="spread", confirm_after_s=10))
        return self[change_id]

    def __getitem__(self, change_id: str) -> Change:
        return self.state.changes[change_id]


@pytest.fixture
def machine() -> Machine:
    return Machine()


def test_a_change_is_applied_then_waits_then_is_kept(machine: Machine) -> None:
    reported = machine.feed(ApplyRequested("x", machine.plan("a", "b"), 60))
    assert [message.state for message in reported] == [ChangeState.APPLYING, UNCONFIRMED]
    assert reported[-1].remaining_s == 60
    assert [result.outcome for result in reported[-1].results] == ["applied", "applied"]
    (kept,) = machine.feed(ConfirmRequested("x"))
    assert (kept.state, kept.ended_by, kept.remaining_s) == (CONFIRMED, None, None)
    machine.now = 1e6
    assert machine.feed(Tick()) == []
    assert machine.kernel["a"] == "1"


def test_the_change_is_in_the_journal_before_anything_is_run() -> None:
    _, instructions = advance(Changes(), ApplyRequested("x", Plan([Action("a", "0", "1", "")]), 60), 0.0)
    assert [type(todo) for todo in instructions] == [RecordChange, SendChangeState, RunPlan]


def test_an_unconfirmed_change_returns_at_its_deadline_and_not_before(machine: Machine) -> None:
    machine.apply("x", "a", "b")
    machine.now = 59.9
    assert machine.feed(Tick()) == []
    machine.now = 60.0
    (ended,) = machine.feed(Tick())
    assert (ended.state, ended.ended_by) == (ROLLED_BACK, EndedBy.TIMEOUT)
    assert ended.sentence == "Rolled back because it was not confirmed in time. All 2 settings are restored."
    assert [action.key for action in machine.ran[-1].plan.actions] == ["b", "a"]
    assert machine.kernel["a"] == "0"


def test_a_confirmation_after_the_deadline_is_too_late_even_before_the_tick(machine: Machine) -> None:
    machine.apply("x", "a")
    machine.now = 60.0
    (ended,) = machine.feed(ConfirmRequested("x"))
    assert (ended.state, ended.ended_by) == (ROLLED_BACK, EndedBy.TIMEOUT)


def test_confirming_twice_is_the_same_as_once(machine: Machine) -> None:
    machine.apply("x", "a")
    first = machine.feed(ConfirmRequested("x"))
    assert machine.feed(ConfirmRequested("x")) == first


@pytest.mark.parametrize("confirmed", [False, True])
def test_a_user_may_roll_back_before_and_after_confirming(machine: Machine, confirmed: bool) -> None:
    machine.apply("x", "a")
    if confirmed:
        machine.feed(ConfirmRequested("x"))
    (ended,) = machine.feed(RollbackRequested("x"))
    assert (ended.state, ended.ended_by) == (ROLLED_BACK, EndedBy.USER)
    assert machine.kernel["a"] == "0"
    assert machine.feed(RollbackRequested("x")) == [ended]


@pytest.mark.parametrize(
    ("keys", "stuck", "ends"),
    [
        (("a", "b"), set(), (ROLLED_BACK, EndedBy.USER, "Rolled back on request. All 2 settings are restored.")),
        (("a", "c"), {"c"}, (FAILED, EndedBy.ERROR, "c is managed. a is 0.")),
    ],
)
def test_a_rollback_during_the_writes_follows_them(
    machine: Machine, keys: tuple[str, ...], stuck: set[str], ends: tuple[ChangeState, EndedBy, str]
) -> None:
    machine.unfinished = []
    machine.stuck = stuck
    machine.apply("x", *keys)
    assert machine.feed(RollbackRequested("x")) + machine.feed(RollbackRequested("x")) == []
    reported = len(machine.reported)
    machine.finish()
    (ended,) = machine.reported[reported:]
    assert (ended.state, ended.ended_by, ended.sentence) == ends
    assert set(machine.kernel.values()) == {"0"}


def test_a_confirmed_change_under_a_later_one_is_not_rolled_back(machine: Machine) -> None:
    machine.apply("x", "a", becomes="1")
    machine.feed(ConfirmRequested("x"))
    machine.apply("y", "a", becomes="2")
    (answer,) = machine.feed(RollbackRequested("x"))
    assert (answer.state, machine.kernel["a"]) == (CONFIRMED, "2")
    assert "changed again by change y" in answer.sentence
    machine.feed(RollbackRequested("y"))
    machine.feed(RollbackRequested("x"))
    assert machine.kernel["a"] == "0"


def test_a_setting_in_an_open_change_is_not_for_another_but_other_settings_are(machine: Machine) -> None:
    machine.apply("x", "a", "b")
    refused = machine.apply("y", "b", "c", becomes="2")
    assert (refused.state, refused.ended_by) == (FAILED, EndedBy.ERROR)
    assert refused.sentence.startswith("b is part of change x, which is not confirmed yet")
    assert machine.apply("z", "c").state is UNCONFIRMED
    assert machine.kernel == {"a": "1", "b": "1", "c": "1", "d": "0"}


def test_lent_settings_have_no_deadline_and_nobody_else_gets_them_until_they_are_back(machine: Machine) -> None:
    machine.apply("kept", "a")
    machine.feed(ConfirmRequested("kept"))
    for turn in range(2):
        machine.feed(
            SettingsDelegated("delegated", Plan([Action(key, "", machine.kernel[key], "") for key in ("a", "b")]))
        )
        machine.feed(Tick())
        machine.now += 1e6
        assert machine.feed(Tick()) == []
        assert machine.apply(f"x{turn}", "b", becomes="2").sentence.startswith(
            "b is delegated to another program until"
        )
        (refused,) = machine.feed(RollbackRequested("kept"))
        assert (refused.state, "are delegated to another program" in refused.sentence) == (CONFIRMED, True)
        machine.feed(ConfirmRequested("delegated"))
        assert machine.journal["delegated"].open
        machine.kernel["b"] = "7"
        machine.feed(RollbackRequested("delegated"))
        assert (machine["delegated"].state, machine.kernel["b"]) == (ROLLED_BACK, "0")


def test_what_could_not_be_put_back_after_a_loan_goes_back_after_the_next_one(machine: Machine) -> None:
    machine.feed(SettingsDelegated("delegated", Plan([Action(key, "", "0", "") for key in ("a", "b")])))
    machine.kernel |= {"a": "7", "b": "7"}
    machine.stuck = {"a", "b"}
    machine.feed(RollbackRequested("delegated"))
    assert machine["delegated"].state is FAILED
    machine.stuck = set()
    machine.feed(SettingsDelegated("delegated", Plan([Action(key, "", machine.kernel[key], "") for key in ("a", "c")])))
    machine.feed(RollbackRequested("delegated"))
    assert (machine["delegated"].state, machine.kernel["a"], machine.kernel["b"]) == (ROLLED_BACK, "0", "0")


def test_a_plan_that_fails_midway_is_undone_in_opposite_order(machine: Machine) -> None:
    machine.stuck = {"c"}
    failed = machine.apply("x", "a", "b", "c", "d")
    assert (failed.state, failed.ended_by) == (FAILED, EndedBy.ERROR)
    assert [action.key for action in machine.ran[-1].plan.actions] == ["b", "a"]
    assert failed.sentence == "c is managed. All 2 settings are restored."
    assert [result.outcome for result in failed.results] == ["applied", "applied", "refused"]
    assert set(machine.kernel.values()) == {"0"}


def test_a_value_that_was_read_back_otherwise_is_undone_too() -> None:
    state, _ = advance(Changes(), ApplyRequested("x", Plan([Action("a", "0", "1", "")]), 60), 0.0)
    _, instructions = advance(state, PlanRan("x", [Result("a", Outcome.FAILED, "It became 5.", "0", "5")]), 0.0)
    (undo,) = [todo for todo in instructions if isinstance(todo, RunInverse)]
    assert undo.plan.actions[0].becomes == "0"


def test_what_cannot_be_put_back_makes_it_failed_and_may_be_tried_again(machine: Machine) -> None:
    machine.apply("x", "a", "b")
    machine.stuck = {"a"}
    machine.now = 60
    (ended,) = machine.feed(Tick())
    assert (ended.state, ended.ended_by) == (FAILED, EndedBy.TIMEOUT)
    assert "Not every setting could be restored: a is managed." in ended.sentence
    machine.stuck = set()
    (again,) = machine.feed(RollbackRequested("x"))
    assert (again.state, machine.kernel["a"]) == (ROLLED_BACK, "0")


def test_a_setting_that_is_gone_does_not_stop_the_undo() -> None:
    change = Change("x", Plan([]), UNCONFIRMED, "", 60, undo=Plan([Action("a", "1", "0", "")]), ending=EndedBy.USER)
    state, _ = advance(Changes({"x": change}), InverseRan("x", [Result("a", Outcome.UNSUPPORTED, "Gone.")]), 0.0)
    assert state.changes["x"].state is ROLLED_BACK


def test_more_time_is_given_up_to_ten_minutes_from_now(machine: Machine) -> None:
    machine.apply("x", "a")
    machine.now = 30
    (more,) = machine.feed(ExtendRequested("x", 100))
    assert more.remaining_s == 130
    (most,) = machine.feed(ExtendRequested("x", 1e9))
    assert most.remaining_s == 600


@pytest.mark.parametrize("seconds", [0, -5, math.nan, math.inf])
def test_an_extension_that_is_no_duration_changes_nothing(machine: Machine, seconds: float) -> None:
    machine.apply("x", "a")
    machine.feed(ExtendRequested("x", seconds))
    assert machine["x"].deadline == 60


def test_a_lost_backend_undoes_what_is_unconfirmed_after_the_grace_and_nothing_else(machine: Machine) -> None:
    machine.apply("kept", "b")
    machine.feed(ConfirmRequested("kept"))
    machine.apply("x", "a")
    machine.feed(BackendLost())
    machine.now = LOST_BACKEND_GRACE_S - 0.1
    machine.feed(BackendLost())
    assert machine.feed(Tick()) == []
    machine.now = LOST_BACKEND_GRACE_S
    (ended,) = machine.feed(Tick())
    assert (ended.state, ended.ended_by) == (ROLLED_BACK, EndedBy.LOST_BACKEND)
    assert machine.kernel["b"] == "1"


def test_a_backend_that_comes_back_within_the_grace_finds_the_change_waiting(machine: Machine) -> None:
    machine.apply("x", "a")
    machine.feed(BackendLost())
    machine.now = 5
    (reported,) = machine.feed(BackendReconnected())
    assert (reported.state, reported.remaining_s) == (UNCONFIRMED, 55)
    machine.now = 20
    assert machine.feed(Tick()) == []


def test_the_end_of_a_change_is_told_after_each_welcome_until_it_was_seen(machine: Machine) -> None:
    machine.apply("x", "a")
    machine.feed(AcknowledgedByBackend("x", CONFIRMED))
    machine.feed(ConfirmRequested("x"))
    for _ in range(2):
        assert [message.state for message in machine.feed(BackendReconnected())] == [CONFIRMED]
    machine.feed(AcknowledgedByBackend("x", CONFIRMED))
    assert machine.feed(BackendReconnected()) == []
    machine.feed(RollbackRequested("x"))
    assert [message.state for message in machine.feed(BackendReconnected())] == [ROLLED_BACK]


def test_a_guardrail_trips_at_the_second_interval_in_a_row(machine: Machine) -> None:
    machine.apply("x", "a", guardrails=(Guardrail("busiest_cpu_percent", 90),))
    for busiest in (95.0, 80.0, 96.0, None, 97.0):
        assert machine.feed(MetricsMeasured({"busiest_cpu_percent": busiest}, 1.0)) == []
    (ended,) = machine.feed(MetricsMeasured({"busiest_cpu_percent": 97.5}, 1.0))
    assert (ended.state, ended.ended_by) == (ROLLED_BACK, EndedBy.GUARDRAIL)
    assert "busiest CPU in percent was 97.5" in ended.sentence
    assert "guardrail of 90" in ended.sentence


@pytest.mark.parametrize(("interval_s", "readings"), [(0.1, 20), (0.5, 4), (0.999, 2), (1.0, 2), (5.0, 2), (60.0, 2)])
def test_a_guardrail_needs_two_intervals_and_two_seconds(machine: Machine, interval_s: float, readings: int) -> None:
    machine.apply("x", "a", guardrails=(Guardrail("busiest_cpu_percent", 90),))
    over = MetricsMeasured({"busiest_cpu_percent": 95.0}, interval_s)
    for _ in range(readings - 1):
        assert machine.feed(over) == []
    (ended,) = machine.feed(over)
    assert f"for {readings} intervals in a row" in ended.sentence


def test_a_confirmation_that_could_not_be_noted_leaves_the_change_waiting_for_its_deadline(machine: Machine) -> None:
    waiting = machine.apply("x", "a")
    machine.feed(ConfirmRequested("x"))
    (reported,) = machine.feed(ConfirmFailed(waiting, "No space left on device"))
    assert (reported.state, reported.remaining_s) == (UNCONFIRMED, 60)
    assert (
        reported.sentence
        == "The journal cannot be written (No space left on device), so the change cannot be confirmed yet."
    )
    machine.now = 60
    assert machine.feed(Tick())[0].ended_by is EndedBy.TIMEOUT


@pytest.mark.parametrize(
    ("outcomes", "says"),
    [
        ([], "Nothing had to be restored."),
        ([Outcome.APPLIED, Outcome.UNCHANGED], "All 2 settings are restored."),
        ([Outcome.APPLIED, Outcome.UNSUPPORTED], "1 of 2 settings are restored. Setting 1 is gone."),
    ],
)
def test_the_end_of_an_undo_says_what_is_true(outcomes: list[Outcome], says: str) -> None:
    undo = Plan([Action(f"{n}", "1", "0", "") for n in range(len(outcomes))])
    change = Change("x", undo, UNCONFIRMED, "Asked for.", 60, undo=undo, ending=EndedBy.USER)
    results = [Result(f"{n}", outcome, f"Setting {n} is gone.") for n, outcome in enumerate(outcomes)]
    state, _ = advance(Changes({"x": change}), InverseRan("x", results), 0.0)
    assert state.changes["x"].sentence == f"Asked for. {says}"


def test_an_agent_that_stops_rolls_back_what_is_unconfirmed_and_keeps_the_rest(machine: Machine) -> None:
    machine.apply("kept", "b")
    machine.feed(ConfirmRequested("kept"))
    machine.apply("x", "a")
    machine.feed(AgentStopping())
    assert machine["x"].ended_by is EndedBy.AGENT_RESTART
    assert (machine.kernel["a"], machine.kernel["b"]) == ("0", "1")


def test_an_agent_that_was_killed_rolls_back_at_its_next_start_and_tells_it_later(machine: Machine) -> None:
    machine.apply("x", "a")
    again = Machine()
    again.kernel = machine.kernel
    again.feed(AgentRestarted(list(machine.journal.values())))
    assert again.kernel["a"] == "0"
    (reported,) = again.feed(BackendReconnected())
    assert (reported.state, reported.ended_by) == (ROLLED_BACK, EndedBy.AGENT_RESTART)


def test_an_agent_killed_while_a_user_rolled_back_finishes_that(machine: Machine) -> None:
    machine.apply("x", "a")
    machine.feed(ConfirmRequested("x"))
    _, instructions = advance(machine.state, RollbackRequested("x"), 0.0)
    (note,) = [todo for todo in instructions if isinstance(todo, RecordChange)]
    machine.state = Changes()
    machine.feed(AgentRestarted([note.change]))
    assert (machine["x"].state, machine["x"].ended_by, machine.kernel["a"]) == (ROLLED_BACK, EndedBy.USER, "0")


def test_after_a_reboot_only_what_the_backend_must_hear_is_left(machine: Machine) -> None:
    machine.apply("seen", "a")
    machine.feed(ConfirmRequested("seen"))
    machine.feed(AcknowledgedByBackend("seen", CONFIRMED))
    machine.apply("kept", "b")
    machine.feed(ConfirmRequested("kept"))
    machine.apply("open", "c")
    reported = {change.change_id: change for change in changes_after_reboot(list(machine.journal.values()))}
    assert {name: change.state for name, change in reported.items()} == {"kept": CONFIRMED, "open": ROLLED_BACK}
    assert all(not change.undo.actions for change in reported.values())


def test_what_was_restored_beside_the_agent_ends_the_change(machine: Machine) -> None:
    machine.apply("x", "a", "b")
    assert machine.feed(RestoredExternally(frozenset({"a"}))) == []
    (ended,) = machine.feed(RestoredExternally(frozenset({"a", "b", "c"})))
    assert (ended.state, ended.ended_by) == (ROLLED_BACK, EndedBy.USER)
    machine.now = 100
    assert machine.feed(Tick()) == []


@pytest.mark.parametrize(
    ("state", "ending", "by"),
    [(ChangeState.APPLYING, None, EndedBy.USER), (UNCONFIRMED, EndedBy.TIMEOUT, EndedBy.TIMEOUT)],
)
def test_a_change_that_was_restored_after_a_kill_is_over_and_not_undone_at_the_next_start(
    machine: Machine, state: ChangeState, ending: EndedBy | None, by: EndedBy
) -> None:
    killed = Change("x", machine.plan("a"), state, "", 60, ending=ending, undo=Plan([Action("a", "1", "0", "")]))
    restored, _ = advance(Changes({"x": killed}), RestoredExternally(frozenset({"a"})), 0.0)
    assert (restored.changes["x"].state, restored.changes["x"].ended_by) == (ROLLED_BACK, by)
    machine.feed(AgentRestarted(list(restored.changes.values())))
    assert machine.ran == []


@pytest.mark.parametrize(
    ("event", "says"),
    [
        (ApplyRequested("x", Plan([]), 60), "no actions"),
        (ApplyRequested("x", Plan([Action("a", "0", "1", "")] * 2), 60), "twice"),
        (
            ApplyRequested("x", Plan([Action(f"{n}", "0", "1", "") for n in range(MAX_PLAN_ACTIONS + 1)]), 60),
            "at most 64",
        ),
        (ApplyRequested("x", Plan([Action("a", "0", "1", "")]), 29), "30 to 600 s"),
        (ApplyRequested("x", Plan([Action("a", "0", "1", "")]), math.nan), "30 to 600 s"),
        (
            ApplyRequested("x", Plan([Action("a", "0", "1", "")]), 60, [Guardrail("load", 1)]),
            "not a metric that a guardrail can bound",
        ),
        (
            ApplyRequested("x", Plan([Action("a", "0", "1", "")]), 60, [Guardrail("rtt_p99_us", math.nan)]),
            "a finite number",
        ),
    ],
)
def test_a_request_that_makes_no_sense_is_not_begun(machine: Machine, event: ApplyRequested, says: str) -> None:
    (answer,) = machine.feed(event)
    assert (answer.state, answer.ended_by) == (FAILED, EndedBy.ERROR)
    assert says in answer.sentence
    assert machine.ran == []


def test_an_observing_agent_refuses_with_its_reason() -> None:
    machine = Machine(Changes(observe_reason="It does not run as root."))
    assert machine.apply("x", "a").sentence == "This agent only observes. It does not run as root."
    assert machine.kernel["a"] == "0"


def test_the_same_request_again_is_answered_and_not_run_again(machine: Machine) -> None:
    asked = ApplyRequested("x", machine.plan("a"), 60)
    first = machine.feed(asked)[-1]
    assert machine.feed(asked) == [first]
    assert len(machine.ran) == 1


@pytest.mark.parametrize("event", [ConfirmRequested("?"), RollbackRequested("?"), ExtendRequested("?", 60)])
def test_a_change_that_is_not_known_is_answered_as_failed(machine: Machine, event: Event) -> None:
    (answer,) = machine.feed(event)
    assert (answer.change_id, answer.state) == ("?", FAILED)
    assert "does not know" in answer.sentence


def test_an_observing_agent_cannot_tell_of_a_change() -> None:
    (answer,) = Machine(Changes(observe_reason="It does not run as root.")).feed(RollbackRequested("?"))
    assert answer.sentence == "This agent only observes and has no journal, so the state of the change is unknown."


def test_seen_of_an_earlier_state_leaves_the_later_one_to_be_told(machine: Machine) -> None:
    machine.apply("x", "a")
    machine.feed(ConfirmRequested("x"))
    machine.feed(RollbackRequested("x"))
    machine.feed(AcknowledgedByBackend("x", CONFIRMED))
    assert [message.state for message in machine.feed(BackendReconnected())] == [ROLLED_BACK]


def test_seen_of_a_change_that_is_not_known_ends_the_conversation(machine: Machine) -> None:
    assert machine.feed(AcknowledgedByBackend("?", FAILED)) == []


def test_old_changes_are_forgotten_but_never_an_open_one(machine: Machine) -> None:
    machine.apply("open", "d")
    for turn in range(MAX_REMEMBERED_CHANGES + 20):
        machine.apply(f"x{turn}", "a", becomes=str(turn + 1))
        machine.feed(ConfirmRequested(f"x{turn}"))
    assert len(machine.state.changes) == MAX_REMEMBERED_CHANGES
    assert "open" in machine.state.changes
    assert "x0" not in machine.state.changes


def test_the_plans_of_ended_changes_are_bounded_in_characters() -> None:
    state = Changes()
    long = Plan([Action("a", "", "x" * (MAX_PLAN_CHARACTERS - 1), "")])
    for turn in range(40):
        state = with_change(state, Change(f"x{turn}", long, CONFIRMED, "", 60))
    assert sum(text_length(change.plan) for change in state.changes.values()) <= MAX_REMEMBERED_CHARACTERS
    assert "x39" in state.changes


def test_a_report_about_the_values_of_many_threads_fits_into_a_message(machine: Machine) -> None:
    keys = [f"key {number}" for number in range(MAX_PLAN_ACTIONS)]
    long = "0-7" + "".join(f";{thread}={thread % 8}" for thread in range(1000, 5000))
    machine.kernel |= dict.fromkeys(keys, "0")
    machine.apply("x", *keys)
    results = [Result(key, Outcome.FAILED, f"{key} is {long}.", long, long) for key in keys]
    machine.state = replace(machine.state, changes={"x": replace(machine.state.changes["x"], ending=EndedBy.USER)})
    (reported,) = machine.feed(InverseRan("x", results))
    assert machine.journal["x"].results == results
    assert len(msgspec.json.encode(reported)) < 1024**2
    assert reported.results[0].found == f"{long[:4095]}…"
    assert len(reported.sentence) == MAX_VALUE
    assert machine.feed(BackendReconnected()) == [reported]


def test_a_plan_of_any_length_is_refused_and_not_remembered() -> None:
    machine = Machine()
    long = Plan([Action("a", "", "x" * MAX_PLAN_CHARACTERS, "")])
    (answer,) = machine.feed(ApplyRequested("x", long, 60))
    assert f"at most {MAX_PLAN_CHARACTERS}" in answer.sentence
    assert text_length(machine.state.changes["x"].plan) == 0


def test_open_changes_are_bounded_so_that_an_agent_can_roll_them_back_soon() -> None:
    machine = Machine()
    keys = [f"key {number}" for number in range(MAX_OPEN_CHANGES)]
    machine.kernel |= dict.fromkeys(keys, "0")
    for key in keys:
        machine.apply(key, key)
    assert f"{MAX_OPEN_CHANGES} changes are not confirmed yet" in machine.apply("one more", "a").sentence
    machine.feed(ConfirmRequested(keys[0]))
    assert machine.apply("then", "a").state is UNCONFIRMED


def test_of_a_policys_changes_those_that_the_backend_has_acknowledged_are_forgotten_first() -> None:
    state = Changes()
    for turn in range(MAX_REMEMBERED_CHANGES + 20):
        change = Change(f"x{turn}", Plan([]), CONFIRMED, "", 60, policy="spread")
        state = with_change(state, replace(change, acknowledged=40 <= turn < 80))
    assert {f"x{turn}" for turn in range(40)} <= state.changes.keys()


def test_a_policys_many_changes_do_not_crowd_out_what_a_person_kept() -> None:
    state = Changes()
    state = with_change(state, Change("mine", Plan([]), CONFIRMED, "", 60))
    for turn in range(MAX_REMEMBERED_CHANGES + 20):
        state = with_change(state, Change(f"x{turn}", Plan([]), CONFIRMED, "", 60, policy="spread"))
    assert len(state.changes) == MAX_REMEMBERED_CHANGES
    assert "mine" in state.changes


def test_a_policys_change_keeps_itself_once_its_guardrails_held_though_the_backend_is_away(machine: Machine) -> None:
    machine.feed(BackendLost())
    waiting = machine.enforce("x", "a", guardrails=(Guardrail("busiest_cpu_percent", 90),))
    assert (
        waiting.sentence == "Applied and read back. Policy spread confirms it in 10 s unless a guardrail is violated."
    )
    for machine.now in (1.0, 5.0, 9.9):
        assert machine.feed(MetricsMeasured({"busiest_cpu_percent": 50.0}, 1.0)) == []
        assert machine.feed(Tick()) == []
    machine.now = 10.0
    (kept,) = machine.feed(Tick())
    assert (kept.state, kept.ended_by, kept.remaining_s) == (CONFIRMED, None, None)
    assert kept.sentence == "Confirmed by policy spread after 10 s, without a guardrail violation."
    machine.now = 1e6
    assert machine.feed(Tick()) == []
    assert machine.kernel["a"] == "1"


def test_a_policys_change_without_guardrails_does_not_claim_that_they_held(machine: Machine) -> None:
    assert machine.enforce("x", "a").sentence == "Applied and read back. Policy spread confirms it in 10 s."
    machine.now = 10.0
    assert machine.feed(Tick())[0].sentence == "Confirmed by policy spread after 10 s."


def test_a_policys_change_is_undone_when_its_guardrail_trips_and_not_kept_afterwards(machine: Machine) -> None:
    machine.enforce("x", "a", guardrails=(Guardrail("busiest_cpu_percent", 90),))
    machine.feed(MetricsMeasured({"busiest_cpu_percent": 95.0}, 1.0))
    (ended,) = machine.feed(MetricsMeasured({"busiest_cpu_percent": 95.0}, 1.0))
    assert (ended.state, ended.ended_by, machine.kernel["a"]) == (ROLLED_BACK, EndedBy.GUARDRAIL, "0")
    machine.now = 10.0
    assert machine.feed(Tick()) == []


@pytest.mark.parametrize("event", [AgentStopping(), AgentRestarted([])])
def test_a_policys_change_that_is_not_kept_yet_goes_with_its_agent(machine: Machine, event: Event) -> None:
    machine.enforce("x", "a")
    machine.feed(AgentRestarted(list(machine.journal.values())) if isinstance(event, AgentRestarted) else event)
    assert (machine["x"].state, machine["x"].ended_by) == (ROLLED_BACK, EndedBy.AGENT_RESTART)
    assert machine.kernel["a"] == "0"


def test_a_setting_that_somebody_moved_is_not_kept_and_left_to_them_and_the_others_go_back(machine: Machine) -> None:
    machine.enforce("x", "a", "b")
    machine.kernel["a"] = "7"
    machine.now = 10.0
    (ended,) = machine.feed(Tick())
    assert (ended.state, ended.ended_by) == (FAILED, EndedBy.ERROR)
    assert ended.sentence.startswith("Not confirmed by policy spread: a stands at 7 instead of 1.")
    assert [(result.key, result.outcome) for result in ended.results] == [("a", Outcome.FAILED), ("b", Outcome.APPLIED)]
    assert (machine.kernel["a"], machine.kernel["b"]) == ("7", "0")
    assert not machine["x"].undo.actions


def test_a_setting_that_cannot_be_read_is_not_taken_for_moved_but_put_back(machine: Machine) -> None:
    machine.enforce("x", "a", "b")
    unreadable = Result("a", Outcome.FAILED, "The value of a cannot be read.")
    (ended,) = machine.feed(Rechecked("x", [unreadable, machine._look(Action("b", "0", "1", ""))]))
    assert (ended.state, ended.ended_by) == (FAILED, EndedBy.ERROR)
    assert (machine.kernel["a"], machine.kernel["b"]) == ("0", "0")


def test_a_setting_that_is_gone_does_not_keep_the_others_from_being_kept(machine: Machine) -> None:
    machine.enforce("x", "a", "b")
    del machine.kernel["a"]
    machine.now = 10.0
    assert machine.feed(Tick())[0].state is CONFIRMED


@pytest.mark.parametrize("event", [ConfirmRequested("x"), RollbackRequested("x")])
def test_a_person_may_keep_or_undo_a_policys_change_first(machine: Machine, event: Event) -> None:
    machine.enforce("x", "a")
    (reported,) = machine.feed(event)
    machine.now = 10.0
    assert machine.feed(Tick()) == []
    assert machine["x"].state is reported.state
    machine.feed(RollbackRequested("x"))
    assert (machine["x"].ended_by, machine.kernel["a"]) == (EndedBy.USER, "0")


def test_a_policys_change_that_could_not_be_noted_is_tried_again_after_the_same_time(machine: Machine) -> None:
    waiting = machine.enforce("x", "a")
    machine.now = 10.0
    machine.feed(ConfirmFailed(waiting, "No space left on device"))
    machine.now = 19.9
    assert machine.feed(Tick()) == []
    machine.now = 20.0
    assert machine.feed(Tick())[0].state is CONFIRMED


def test_what_a_policy_had_set_goes_back_whatever_becomes_of_each_and_is_kept_at_once(machine: Machine) -> None:
    machine.kernel |= {"a": "1", "b": "1"}
    plan = Plan([Action("a", "1", "0", "r"), Action("b", "1", "0", "r")])
    reported = machine.feed(RestoreRequested("x", plan, "spread", "Policy spread is no longer in force."))
    assert [message.state for message in reported] == [ChangeState.APPLYING, CONFIRMED]
    assert reported[-1].sentence == "Policy spread is no longer in force. All 2 settings are restored."
    machine.kernel["a"] = "1"
    one = Plan([Action("a", "1", "0", "r")])
    assert machine.feed(RestoreRequested("z", one, "spread", "Why."))[-1].sentence == "Why. a is 0."
    machine.kernel |= {"a": "1", "b": "1"}
    machine.stuck = {"a"}
    (_, failed) = machine.feed(RestoreRequested("y", plan, "spread", "Policy spread is no longer in force."))
    assert (failed.state, failed.ended_by, machine.kernel["b"]) == (FAILED, EndedBy.ERROR, "0")
    assert "Not every setting could be restored: a is managed." in failed.sentence
    machine.feed(AgentStopping())
    assert machine.kernel["b"] == "0"


def test_an_interrupted_restore_of_a_policys_settings_is_continued_after_a_restart(machine: Machine) -> None:
    machine.kernel["a"] = "1"
    machine.unfinished = []
    restore = Plan([Action("a", "1", "0", "r")])
    machine.feed(RestoreRequested("x", restore, "spread", "Policy spread is no longer in force."))
    assert machine["x"].state is ChangeState.APPLYING
    machine.kernel["a"] = "half"
    again = Machine()
    again.kernel = machine.kernel
    again.feed(AgentRestarted(list(machine.journal.values())))
    assert again.kernel["a"] == "0"
    assert [action.was for action in again.ran[0].plan.actions] == [""], "no value is expected"
    assert again["x"].state is CONFIRMED


class Lives(RuleBasedStateMachine):
    """Any events in any order. A setting is then as its last confirmed change left it, or as at the beginning."""

    def __init__(self) -> None:
        super().__init__()
        self.machine = Machine()
        self.original = dict(self.machine.kernel)
        self.count = 0

    def some_id(self, pick: int) -> str:
        return f"x{pick % self.count}" if self.count else "x0"

    @rule(
        keys=st.sets(st.sampled_from("abcd"), min_size=1),
        becomes=st.sampled_from("123"),
        wait=st.sampled_from([30, 90]),
    )
    def apply(self, keys: set[str], becomes: str, wait: int) -> None:
        plan = self.machine.plan(*sorted(keys), becomes=becomes)
        rail = [Guardrail("rtt_p99_us", 1000)]
        self.machine.feed(ApplyRequested(f"x{self.count}", plan, wait, rail))
        self.count += 1

    @rule(keys=st.sets(st.sampled_from("abcd"), min_size=1), becomes=st.sampled_from("123"))
    def a_policy_applies(self, keys: set[str], becomes: str) -> None:
        plan = self.machine.plan(*sorted(keys), becomes=becomes)
        rail = [Guardrail("rtt_p99_us", 1000)]
        self.machine.feed(ApplyRequested(f"x{self.count}", plan, 30, rail, policy="p", confirm_after_s=10))
        self.count += 1

    @rule(pick=st.integers(0, 1000))
    def confirm(self, pick: int) -> None:
        self.machine.feed(ConfirmRequested(self.some_id(pick)))

    @rule(pick=st.integers(0, 1000))
    def roll_back(self, pick: int) -> None:
        self.machine.feed(RollbackRequested(self.some_id(pick)))

    @rule(pick=st.integers(0, 1000), seconds=st.floats(0, 700))
    def extend(self, pick: int, seconds: float) -> None:
        self.machine.feed(ExtendRequested(self.some_id(pick), seconds))

    @rule(pick=st.integers(0, 1000), state=st.sampled_from(ChangeState))
    def seen(self, pick: int, state: ChangeState) -> None:
        self.machine.feed(AcknowledgedByBackend(self.some_id(pick), state))

    @rule(
        event=st.sampled_from(
            [BackendLost(), BackendReconnected(), AgentStopping(), MetricsMeasured({"rtt_p99_us": 2000.0}, 1.0)]
        )
    )
    def happens(self, event: Event) -> None:
        self.machine.feed(event)

    @rule(keys=st.sets(st.sampled_from("abcd")))
    def some_settings_take_no_write_for_the_next_plan_only(self, keys: set[str]) -> None:
        plan = Plan([Action(key, self.machine.kernel[key], "9", "test") for key in "abcd"])
        self.machine.stuck = keys
        state, instructions = advance(self.machine.state, ApplyRequested(f"x{self.count}", plan, 60), self.machine.now)
        self.count += 1
        self.machine.state = state
        for todo in instructions:
            if isinstance(todo, RecordChange):
                self.machine.journal[todo.change.change_id] = todo.change
            if isinstance(todo, RunPlan):
                results = self.machine._run(todo.plan)
                self.machine.stuck = set()
                self.machine.feed(PlanRan(todo.change_id, results))
        self.machine.stuck = set()

    @rule()
    def the_agent_is_killed_and_starts_again(self) -> None:
        changes = [self.machine.journal[name] for name in self.machine.state.changes]
        self.machine.state = Changes()
        self.machine.unfinished = None
        self.machine.feed(AgentRestarted(changes))

    @rule()
    def writes_take_long_from_now_on(self) -> None:
        self.machine.unfinished = self.machine.unfinished or []

    @rule()
    def all_writes_end(self) -> None:
        self.machine.finish()

    @precondition(lambda self: self.machine.state.changes)
    @rule(seconds=st.floats(0, 100))
    def time_goes_on(self, seconds: float) -> None:
        self.machine.now += seconds
        self.machine.feed(Tick())
        for change in self.machine.state.changes.values():
            if change.state is UNCONFIRMED and change.ending is None:
                due = change.deadline if change.confirm_after_s is None else change.confirm_at
                assert due is not None
                assert self.machine.now < due

    @precondition(lambda self: not self.machine.unfinished)
    @invariant()
    def each_setting_is_as_last_confirmed_or_as_it_was(self) -> None:
        changes = self.machine.state.changes.values()
        for key, value in self.machine.kernel.items():
            standing = [c for c in changes if key in c.keys and c.state in (CONFIRMED, UNCONFIRMED)]
            expected = self.original[key]
            for change in standing:
                expected = next(a.becomes for a in change.plan.actions if a.key == key)
            assert value == expected

    @invariant()
    def no_setting_is_in_two_open_changes_and_none_is_left_half_done(self) -> None:
        seen: set[str] = set()
        for change in self.machine.state.changes.values():
            unfinished = {todo.change_id for todo in self.machine.unfinished or []}
            assert (change.state is ChangeState.APPLYING or change.ending is not None) == (
                change.change_id in unfinished
            )
            if change.open:
                assert not seen & change.keys
                seen |= change.keys

    @invariant()
    def the_journal_knows_what_the_agent_knows(self) -> None:
        for name, change in self.machine.state.changes.items():
            assert replace(self.machine.journal[name], guardrail_strikes=[]) == replace(change, guardrail_strikes=[])


TestLives = Lives.TestCase
TestLives.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
