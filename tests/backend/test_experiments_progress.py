"""What comes next in an experiment, from rows and words alone; and what an agent may say of one."""

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import pytest
from msgspec.structs import replace as with_fields
from tests.backend.rejection import rejection

from coresteer.experiments import schedule
from coresteer.experiments.next_step import merged, next_step, promotable, remaining_s
from coresteer.experiments.repository import Attempt, Taken
from coresteer.experiments.schemas import ExperimentState
from coresteer.experiments.spec import Factor, Level, Spec
from coresteer.experiments.steps import (
    Begin,
    Conclude,
    EndLease,
    Facts,
    Finish,
    Keep,
    Lose,
    Open,
    Patience,
    Pause,
    RollBack,
    Side,
    Standing,
    Start,
    TakeBefore,
    TellEnd,
    Wait,
)
from coresteer_core.changes.plan import DesiredValue
from coresteer_core.experiments.model import Measured, RunState, TcpRequest
from coresteer_core.protocol import ChangeState, EndedBy, ExperimentMessage

NOW_MS = 1_800_000_000_000
SPEC = Spec(
    name="a try",
    kind="ab",
    node_id=1,
    workload=TcpRequest(),
    primary="requests_per_s",
    factors=[Factor("interrupt", [Level("as it is"), Level("CPU 7", [DesiredValue("irq/41/affinity", "7")])])],
    seed=1,
)
PLAN = schedule.plan_runs(SPEC, 1)
READY = ExperimentMessage(1, RunState.READY, address="198.18.0.1:5201", netdev="cs0")
BEGUN = Side("a", begun_at_s=0.0, word=READY)
MEASURED = Measured(started_ms=NOW_MS, duration_s=10.0, figures={"requests_per_s": 5.0}, cpus={}, load_before=0.0)
DONE = ExperimentMessage(1, RunState.MEASURED, "r", measured=MEASURED)
WORD = {"at_hand": True, "since_s": 90.0}


def facts(**changes: Any) -> Facts:  # noqa: ANN401 - fields of several types
    """Everything is prepared and as before, at 100 s."""
    known: dict[str, Any] = {
        "spec": SPEC,
        "plan": PLAN,
        "attempts": [],
        "ending": None,
        "before": {"irq/41/affinity": "2"},
        "open_changes": [],
        "sides": [BEGUN],
        "now_s": 100.0,
        "patience": Patience(),
        "since_s": 100.0,
        "settings": {"irq/41/affinity": "2"},
    }
    return Facts(**(known | changes))


def change(state: ChangeState, ended_by: EndedBy | None = None) -> Standing:
    return Standing(uuid4(), state, ended_by, "So it is.")


def lost(number: int, times: int) -> list[Attempt]:
    return [Attempt(number, attempt, "It got lost.") for attempt in range(times)]


def test_after_a_restart_what_stands_is_rolled_back_before_anything_else() -> None:
    standing = change(ChangeState.UNCONFIRMED)
    assert next_step(facts(open_changes=[standing], sides=[Side("a")])) == RollBack(standing.change_id)


def test_policies_pause_and_give_back_before_the_settings_are_noted() -> None:
    assert next_step(facts(before=None)) == Pause()
    waits = next_step(facts(before=None, paused_at_s=99.0, pauses=True))
    assert isinstance(waits, Wait)
    assert next_step(facts(before=None, paused_at_s=99.0, pauses=False)) == TakeBefore()
    assert next_step(facts(before=None, paused_at_s=10.0, pauses=True)) == TakeBefore()


def test_the_server_is_ready_before_its_client_begins() -> None:
    assert next_step(facts(sides=[Side("a"), Side("b")])) == Begin(0)
    waits = next_step(facts(sides=[Side("a", begun_at_s=99.0), Side("b")]))
    assert isinstance(waits, Wait)
    assert next_step(facts(sides=[BEGUN, Side("b")])) == Begin(1)
    assert next_step(facts(sides=[BEGUN, BEGUN])) == Open(PLAN[0])


def test_a_client_starts_when_the_server_has_its_load() -> None:
    asked = Side("a", begun_at_s=0.0, word=READY, run_at_s=99.0)
    loaded = Side("a", begun_at_s=0.0, word=READY, run_at_s=99.0, run_word=ExperimentMessage(1, RunState.LOADED, "r"))
    assert next_step(facts(sides=[BEGUN, BEGUN], **WORD)) == Start(PLAN[0], 0)
    assert isinstance(next_step(facts(sides=[asked, BEGUN], **WORD)), Wait)
    assert next_step(facts(sides=[loaded, BEGUN], **WORD)) == Start(PLAN[0], 1)


def test_the_first_place_without_a_run_that_counts_is_next() -> None:
    attempts = [Attempt(0, 0, None), *lost(1, 2), Attempt(1, 2, None), *lost(2, 1)]
    assert next_step(facts(attempts=attempts)) == Open(PLAN[2])


def test_a_place_is_tried_three_times() -> None:
    step = next_step(facts(attempts=lost(0, 3)))
    assert isinstance(step, Conclude)
    assert (step.state, "It got lost." in step.sentence) == (ExperimentState.FAILED, True)


def test_what_was_measured_counts_also_when_the_connection_was_lost_since() -> None:
    measured = Side("a", away_since_s=99.0, run_at_s=80.0, run_word=DONE)
    assert next_step(facts(sides=[measured], broken="It was lost.", **WORD)) == Keep(PLAN[0], 0, MEASURED, None)


def test_what_was_measured_while_its_change_went_back_does_not_count() -> None:
    measured = Side("a", begun_at_s=0.0, word=READY, run_at_s=80.0, run_word=DONE)
    gone = change(ChangeState.ROLLED_BACK, EndedBy.TIMEOUT)
    assert next_step(facts(sides=[measured], change=gone, **WORD)) == Lose(PLAN[0], 0, "So it is.")


@pytest.mark.parametrize(
    ("state", "ended_by", "becomes"),
    [
        (ChangeState.ROLLED_BACK, EndedBy.GUARDRAIL, ExperimentState.STOPPED),
        (ChangeState.ROLLED_BACK, EndedBy.USER, ExperimentState.CANCELLED),
    ],
)
def test_a_change_that_somebody_ends_ends_the_experiment(
    state: ChangeState, ended_by: EndedBy, becomes: ExperimentState
) -> None:
    step = next_step(facts(change=change(state, ended_by), **WORD))
    assert isinstance(step, Conclude)
    assert step.state is becomes


def test_an_agent_that_says_nothing_loses_the_run() -> None:
    silent = Side("a", begun_at_s=0.0, word=READY, run_at_s=10.0)
    assert isinstance(next_step(facts(sides=[silent], now_s=81.0, **WORD)), Wait)
    assert isinstance(next_step(facts(sides=[silent], now_s=82.1, **WORD)), Lose)


def test_a_run_whose_agent_connected_anew_before_it_began_is_lost() -> None:
    assert isinstance(next_step(facts(sides=[Side("a")], **WORD)), Lose)


def test_no_run_begins_while_a_setting_is_not_as_before() -> None:
    moved = {"irq/41/affinity": "5"}
    assert isinstance(next_step(facts(settings=moved)), Wait)
    step = next_step(facts(settings=moved, now_s=161.0))
    assert isinstance(step, Conclude)
    assert "irq/41/affinity is 5 instead of 2." in step.sentence


def test_policies_of_a_run_end_before_its_change_goes_back() -> None:
    assert next_step(facts(leased=True, open_changes=[change(ChangeState.UNCONFIRMED)])) == EndLease()


def test_a_cancelled_load_ends_first_and_then_the_node_is_put_back() -> None:
    standing = change(ChangeState.UNCONFIRMED)
    ending = {"ending": "cancelled", "open_changes": [standing]}
    assert next_step(facts(**ending)) == TellEnd()
    assert next_step(facts(**ending, told_to_end=True)) == RollBack(standing.change_id)
    assert next_step(facts(ending="cancelled", told_to_end=True)) == Finish({"irq/41/affinity": "2"}, "")


def test_what_is_not_as_before_in_the_end_is_named() -> None:
    moved = {"ending": "done", "told_to_end": True, "settings": {"irq/41/affinity": "5"}}
    assert isinstance(next_step(facts(**moved)), Wait)
    step = next_step(facts(**moved, now_s=161.0))
    assert isinstance(step, Finish)
    assert step.note == "Not all settings are as before: irq/41/affinity is 5 instead of 2."


def test_a_peers_figures_of_the_load_and_its_disturbance_are_the_runs() -> None:
    client = with_fields(MEASURED, figures={"requests_per_s": 9.0, "cpu_busy_percent": 1.0}, disturbed=["It stole."])
    server = with_fields(MEASURED, figures={"cpu_busy_percent": 40.0})
    whole = merged([server, client], ["a", "b"])
    assert whole.figures == {"requests_per_s": 9.0, "cpu_busy_percent": 40.0}
    assert whole.disturbed == ["b: It stole."]


@pytest.mark.parametrize(
    ("queue", "begin"),
    [
        ([(1, "running", (1,)), (2, "queued", (1,)), (3, "queued", (2,))], [3]),
        ([(1, "running", (1, 2)), (2, "queued", (2,)), (3, "queued", (3,))], [3]),
        ([(1, "running", (1,)), (2, "queued", (1, 2)), (3, "queued", (2,))], []),
        ([(2, "queued", (1,)), (3, "queued", (1,))], [2]),
    ],
)
def test_experiments_begin_in_order_of_each_node(
    queue: Sequence[tuple[int, str, tuple[int, ...]]], begin: list[int]
) -> None:
    assert promotable([Taken(*taken) for taken in queue]) == begin


def test_the_remaining_time_begins_with_the_plan_and_follows_the_runs() -> None:
    assert remaining_s(planned_s=480, planned=24, done=0, elapsed_s=10) == pytest.approx(470)
    slow = remaining_s(planned_s=480, planned=24, done=12, elapsed_s=500)
    assert 400 < slow < 480
    assert remaining_s(planned_s=480, planned=24, done=24, elapsed_s=500) == 0


def word(**changes: object) -> ExperimentMessage:
    return with_fields(ExperimentMessage(1, RunState.MEASURED, "r", measured=MEASURED), **changes)


def test_an_honest_word_of_an_experiment_is_taken() -> None:
    cpus = {"busy": [100.4, None], "steal": [0.0]}
    measured = with_fields(MEASURED, cpus=cpus, figures={"rtt_p99_us": 1.0, "command.rows_per_s": -3.0})
    ready = word(state=RunState.READY, run_id=None, measured=None, netdev="cs0")
    assert [rejection(message, now_ms=NOW_MS) for message in (word(measured=measured), ready)] == ["", ""]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"experiment_id": 2**31}, "$.experiment_id"),
        ({"run_id": "x" * 300}, "$.run_id"),
        ({"sentence": "x" * 3000}, "$.sentence"),
        ({"sentence": "a\x1b[2J"}, "control characters"),
        ({"netdev": "../eth0"}, "$.netdev"),
        ({"address": "example.org:80"}, "not an address"),
        ({"address": "10.0.0.1:99999"}, "not an address"),
        ({"measured": None}, "does not fit its result"),
        ({"run_id": None}, "does not fit its result"),
        ({"state": RunState.LOADED}, "does not fit its result"),
    ],
)
def test_a_word_of_an_experiment_is_bounded(changes: dict[str, object], says: str) -> None:
    assert says in rejection(word(**changes), now_ms=NOW_MS)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"started_ms": 0}, "24 hours"),
        ({"duration_s": 0.0}, "$.measured.duration_s"),
        ({"duration_s": float("nan")}, "$.measured.duration_s"),
        ({"load_before": -1.0}, "$.measured.load_before"),
        ({"steal_percent": 101.0}, "$.measured.steal_percent"),
        ({"figures": {"speed": 1.0}}, "not the name of a figure"),
        ({"figures": {"command.a b": 1.0}}, "not the name of a figure"),
        ({"figures": {f"command.x{number}": 1.0 for number in range(300)}}, "exceed the limit of 256"),
        ({"figures": {"rtt_p99_us": float("inf")}}, "$.measured.figures"),
        ({"figures": {"rtt_p99_us": 1e300}}, "$.measured.figures"),
        ({"cpus": {"idle": [1.0]}}, "not one of the CPU times"),
        ({"cpus": {"busy": [1.0] * 100_000}}, "$.measured.cpus"),
        ({"cpus": {"busy": [float("nan")]}}, "$.measured.cpus"),
        ({"cpus": {"busy": [-1.0]}}, "$.measured.cpus"),
        ({"disturbed": ["x"] * 65}, "$.measured.disturbed"),
        ({"disturbed": ["x" * 3000]}, "$.measured.disturbed[0]"),
    ],
)
def test_what_a_run_came_to_is_bounded(changes: dict[str, object], says: str) -> None:
    assert says in rejection(word(measured=with_fields(MEASURED, **changes)), now_ms=NOW_MS)


def test_patience_with_an_agent_covers_what_the_agent_has_with_itself() -> None:
    assert Patience().ready_s > 30
