"""Next step of an experiment, from rows and messages alone; validation of an agent's messages about one."""

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import pytest
from msgspec.structs import replace as with_fields
from tests.backend.rejection import rejection

from coresteer.experiments import schedule
from coresteer.experiments.next_step import estimate_remaining_s, merge_results, next_step, startable_experiments
from coresteer.experiments.repository import UnfinishedExperiment
from coresteer.experiments.schemas import ExperimentState
from coresteer.experiments.session_state import SessionState
from coresteer.experiments.spec import Attempt, Factor, Level, Spec
from coresteer.experiments.steps import (
    AbandonRun,
    ApplySettings,
    AwaitMessage,
    ChangeStatus,
    EndLoad,
    EndPolicyLease,
    Facts,
    Finish,
    Participant,
    PausePolicies,
    Prepare,
    RecordRun,
    RecordSettings,
    RollBackChange,
    StartRun,
    StopMeasuring,
    Timeouts,
)
from coresteer_core.changes.plan import DesiredValue
from coresteer_core.changes.report import ChangeState, EndedBy
from coresteer_core.experiments.model import RunResult, RunState, TcpRequest
from coresteer_core.protocol import ExperimentMessage

NOW_MS = 1_800_000_000_000
SPEC = Spec(
    name="an experiment",
    kind="ab",
    node_id=1,
    workload=TcpRequest(),
    primary="requests_per_s",
    factors=[Factor("interrupt", [Level("as it is"), Level("CPU 7", [DesiredValue("irq/41/affinity", "7")])])],
    seed=1,
)
PLAN = schedule.plan_runs(SPEC, 1)
READY = ExperimentMessage(1, RunState.READY, address="198.18.0.1:5201", netdev="cs0")
PREPARED = Participant("a", prepare_sent_at_s=0.0, session_message=READY)
MEASURED = RunResult(started_ms=NOW_MS, duration_s=10.0, figures={"requests_per_s": 5.0}, cpus={}, load_before=0.0)
DONE = ExperimentMessage(1, RunState.MEASURED, "r", measured=MEASURED)
ACTIVE = {"run_active": True, "phase_started_s": 90.0}


def facts(**changes: Any) -> Facts:  # noqa: ANN401 - fields of several types
    """Return facts at 100 s: everything is prepared and all settings are restored."""
    known: dict[str, Any] = {
        "spec": SPEC,
        "plan": PLAN,
        "attempts": [],
        "ending_state": None,
        "settings_before": {"irq/41/affinity": "2"},
        "open_changes": [],
        "participants": [PREPARED],
        "now_s": 100.0,
        "timeouts": Timeouts(),
        "phase_started_s": 100.0,
        "settings": {"irq/41/affinity": "2"},
    }
    return Facts(**(known | changes))


def change(state: ChangeState, ended_by: EndedBy | None = None) -> ChangeStatus:
    return ChangeStatus(uuid4(), state, ended_by, "So it is.")


def abandoned(number: int, times: int) -> list[Attempt]:
    return [Attempt(number, attempt, "It got lost.") for attempt in range(times)]


def test_after_a_restart_open_changes_are_rolled_back_first() -> None:
    open_change = change(ChangeState.UNCONFIRMED)
    assert next_step(facts(open_changes=[open_change], participants=[Participant("a")])) == RollBackChange(
        open_change.change_id
    )


def test_a_lease_that_another_backend_may_have_left_ends_first() -> None:
    state = SessionState(1, {1: "a"}, [])
    assert next_step(facts(leased=state.leased)) == EndPolicyLease()
    state.leased = False
    state.set_connected(1, connected=False)
    assert not state.leased
    state.set_connected(1, connected=True)
    assert state.leased


def test_no_run_begins_or_goes_on_while_enforcement_is_stopped() -> None:
    cancelled = StopMeasuring(ExperimentState.CANCELLED, "Enforcement was stopped.")
    assert next_step(facts(stopped=True)) == next_step(facts(stopped=True, **ACTIVE)) == cancelled


def test_policies_pause_and_restore_before_the_settings_are_recorded() -> None:
    assert next_step(facts(settings_before=None)) == PausePolicies()
    step = next_step(facts(settings_before=None, paused_at_s=99.0, policies_paused=True))
    assert isinstance(step, AwaitMessage)
    assert next_step(facts(settings_before=None, paused_at_s=99.0, policies_paused=False)) == RecordSettings()
    assert next_step(facts(settings_before=None, paused_at_s=10.0, policies_paused=True)) == RecordSettings()


def test_the_server_is_ready_before_its_client_begins() -> None:
    assert next_step(facts(participants=[Participant("a"), Participant("b")])) == Prepare(0)
    step = next_step(facts(participants=[Participant("a", prepare_sent_at_s=99.0), Participant("b")]))
    assert isinstance(step, AwaitMessage)
    assert next_step(facts(participants=[PREPARED, Participant("b")])) == Prepare(1)
    assert next_step(facts(participants=[PREPARED, PREPARED])) == ApplySettings(PLAN[0])


def test_a_client_starts_when_the_server_has_its_load() -> None:
    run_request = Participant("a", prepare_sent_at_s=0.0, session_message=READY, run_sent_at_s=99.0)
    loaded = Participant(
        "a",
        prepare_sent_at_s=0.0,
        session_message=READY,
        run_sent_at_s=99.0,
        run_message=ExperimentMessage(1, RunState.LOADED, "r"),
    )
    assert next_step(facts(participants=[PREPARED, PREPARED], **ACTIVE)) == StartRun(PLAN[0], 0)
    assert isinstance(next_step(facts(participants=[run_request, PREPARED], **ACTIVE)), AwaitMessage)
    assert next_step(facts(participants=[loaded, PREPARED], **ACTIVE)) == StartRun(PLAN[0], 1)


def test_the_first_run_without_a_counted_attempt_is_next() -> None:
    attempts = [Attempt(0, 0, None), *abandoned(1, 2), Attempt(1, 2, None), *abandoned(2, 1)]
    assert next_step(facts(attempts=attempts)) == ApplySettings(PLAN[2])


def test_a_run_has_three_attempts() -> None:
    step = next_step(facts(attempts=abandoned(0, 3)))
    assert isinstance(step, StopMeasuring)
    assert (step.state, "It got lost." in step.sentence) == (ExperimentState.FAILED, True)


def of_arm(arm: tuple[int, ...]) -> list[int]:
    return [run.number for run in PLAN if run.arm == arm]


@pytest.mark.parametrize(
    ("left_out", "fails"),
    [
        (of_arm((1,))[1:2], False),
        (of_arm((1,))[1:3], True),
        (of_arm((1,))[1:4:2], False),
        (of_arm((1,))[:1], True),
        (of_arm((0,))[3:4] + of_arm((1,))[2:3], False),
    ],
    ids=["one", "two in a row", "two apart", "the first of its arm", "one of each arm"],
)
def test_a_run_without_result_is_left_out_unless_its_arm_seems_impossible(left_out: list[int], fails: bool) -> None:
    attempts: list[Attempt] = []
    for run in PLAN:
        step = next_step(facts(attempts=attempts))
        if isinstance(step, StopMeasuring):
            break
        assert step == ApplySettings(run)
        attempts += abandoned(run.number, 3) if run.number in left_out else [Attempt(run.number, 0, None)]
    ended = next_step(facts(attempts=attempts))
    assert isinstance(ended, StopMeasuring)
    assert ended.state is (ExperimentState.FAILED if fails else ExperimentState.DONE)


def test_a_result_counts_even_if_the_connection_was_lost_afterwards() -> None:
    measured = Participant("a", away_since_s=99.0, run_sent_at_s=80.0, run_message=DONE)
    assert next_step(facts(participants=[measured], failure="It was lost.", **ACTIVE)) == RecordRun(
        PLAN[0], 0, MEASURED, None
    )


def test_a_result_during_which_its_change_was_rolled_back_is_discarded() -> None:
    measured = Participant("a", prepare_sent_at_s=0.0, session_message=READY, run_sent_at_s=80.0, run_message=DONE)
    gone = change(ChangeState.ROLLED_BACK, EndedBy.TIMEOUT)
    assert next_step(facts(participants=[measured], change=gone, **ACTIVE)) == AbandonRun(PLAN[0], 0, "So it is.")


@pytest.mark.parametrize(
    ("state", "ended_by", "becomes"),
    [
        (ChangeState.ROLLED_BACK, EndedBy.GUARDRAIL, ExperimentState.STOPPED),
        (ChangeState.ROLLED_BACK, EndedBy.USER, ExperimentState.CANCELLED),
    ],
)
def test_a_change_ended_by_a_guardrail_or_user_ends_the_experiment(
    state: ChangeState, ended_by: EndedBy, becomes: ExperimentState
) -> None:
    step = next_step(facts(change=change(state, ended_by), **ACTIVE))
    assert isinstance(step, StopMeasuring)
    assert step.state is becomes


def test_a_run_without_a_result_in_time_is_abandoned() -> None:
    silent = Participant("a", prepare_sent_at_s=0.0, session_message=READY, run_sent_at_s=10.0)
    assert isinstance(next_step(facts(participants=[silent], now_s=81.0, **ACTIVE)), AwaitMessage)
    assert isinstance(next_step(facts(participants=[silent], now_s=82.1, **ACTIVE)), AbandonRun)


def test_a_run_whose_agent_reconnected_before_its_start_is_abandoned() -> None:
    assert isinstance(next_step(facts(participants=[Participant("a")], **ACTIVE)), AbandonRun)


def test_no_run_starts_before_all_settings_are_restored() -> None:
    moved = {"irq/41/affinity": "5"}
    assert isinstance(next_step(facts(settings=moved)), AwaitMessage)
    step = next_step(facts(settings=moved, now_s=161.0))
    assert isinstance(step, StopMeasuring)
    assert "irq/41/affinity is 5 instead of 2." in step.sentence


def test_policy_leases_of_a_run_end_before_its_change_is_rolled_back() -> None:
    assert next_step(facts(leased=True, open_changes=[change(ChangeState.UNCONFIRMED)])) == EndPolicyLease()


def test_a_cancelled_load_ends_before_the_node_is_restored() -> None:
    open_change = change(ChangeState.UNCONFIRMED)
    ending = {"ending_state": "cancelled", "open_changes": [open_change]}
    assert next_step(facts(**ending)) == EndLoad()
    assert next_step(facts(**ending, end_sent=True)) == RollBackChange(open_change.change_id)
    assert next_step(facts(ending_state="cancelled", end_sent=True)) == Finish({"irq/41/affinity": "2"}, "")


def test_settings_that_are_not_restored_at_the_end_are_named() -> None:
    moved = {"ending_state": "done", "end_sent": True, "settings": {"irq/41/affinity": "5"}}
    assert isinstance(next_step(facts(**moved)), AwaitMessage)
    step = next_step(facts(**moved, now_s=161.0))
    assert isinstance(step, Finish)
    assert step.note == "Not all settings were restored: irq/41/affinity is 5 instead of 2."


def test_a_peers_load_metrics_and_disturbances_are_merged_into_the_run() -> None:
    client = with_fields(MEASURED, figures={"requests_per_s": 9.0, "cpu_busy_percent": 1.0}, disturbed=["It stole."])
    server = with_fields(MEASURED, figures={"cpu_busy_percent": 40.0})
    whole = merge_results([server, client], ["a", "b"])
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
def test_experiments_start_in_the_queue_order_of_each_node(
    queue: Sequence[tuple[int, str, tuple[int, ...]]], begin: list[int]
) -> None:
    assert startable_experiments([UnfinishedExperiment(*experiment) for experiment in queue]) == begin


def test_the_remaining_time_starts_with_the_plan_and_follows_the_runs() -> None:
    assert estimate_remaining_s(planned_s=480, planned=24, done=0, elapsed_s=10) == pytest.approx(470)
    slow = estimate_remaining_s(planned_s=480, planned=24, done=12, elapsed_s=500)
    assert 400 < slow < 480
    assert estimate_remaining_s(planned_s=480, planned=24, done=24, elapsed_s=500) == 0


def message_with(**changes: object) -> ExperimentMessage:
    return with_fields(ExperimentMessage(1, RunState.MEASURED, "r", measured=MEASURED), **changes)


def test_a_valid_message_of_an_experiment_is_accepted() -> None:
    cpus = {"busy": [100.4, None], "steal": [0.0]}
    measured = with_fields(MEASURED, cpus=cpus, figures={"rtt_p99_us": 1.0, "command.rows_per_s": -3.0})
    ready = message_with(state=RunState.READY, run_id=None, measured=None, netdev="cs0")
    assert [rejection(message, now_ms=NOW_MS) for message in (message_with(measured=measured), ready)] == ["", ""]


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
def test_messages_of_an_experiment_are_bounded(changes: dict[str, object], says: str) -> None:
    assert says in rejection(message_with(**changes), now_ms=NOW_MS)


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
        ({"figures": {f"command.x{number}": 1.0 for number in range(101)}}, "exceed the limit of 100"),
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
def test_results_of_a_run_are_bounded(changes: dict[str, object], says: str) -> None:
    assert says in rejection(message_with(measured=with_fields(MEASURED, **changes)), now_ms=NOW_MS)


def test_the_timeout_for_preparation_exceeds_that_of_the_agent() -> None:
    assert Timeouts().ready_s > 30
