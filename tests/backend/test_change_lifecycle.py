import math
from datetime import UTC, datetime, timedelta

import pytest

from coresteer.changes import lifecycle
from coresteer_core.changes.report import ChangeMessage, ChangeState, EndedBy

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
APPLYING, UNCONFIRMED = ChangeState.APPLYING, ChangeState.UNCONFIRMED
CONFIRMED, ROLLED_BACK, FAILED = ChangeState.CONFIRMED, ChangeState.ROLLED_BACK, ChangeState.FAILED


def message(
    state: ChangeState, *, ended_by: EndedBy | None = EndedBy.USER, remaining_s: float | None = None
) -> ChangeMessage:
    return ChangeMessage("id", state, "A sentence.", [], ended_by, remaining_s=remaining_s)


@pytest.mark.parametrize(
    ("known", "leads_to"),
    [
        (APPLYING, {APPLYING, UNCONFIRMED, CONFIRMED, ROLLED_BACK, FAILED}),
        (UNCONFIRMED, {UNCONFIRMED, CONFIRMED, ROLLED_BACK, FAILED}),
        (CONFIRMED, {CONFIRMED, ROLLED_BACK, FAILED}),
        (FAILED, {FAILED, ROLLED_BACK}),
        (ROLLED_BACK, {ROLLED_BACK}),
    ],
)
def test_a_report_takes_a_change_forward_and_never_back(known: ChangeState, leads_to: set[ChangeState]) -> None:
    for told in ChangeState:
        assert lifecycle.state_after(known, message(told)) == (told if told in leads_to else None)


def test_an_agent_that_forgot_a_confirmed_change_does_not_make_it_failed() -> None:
    assert lifecycle.state_after(CONFIRMED, message(FAILED, ended_by=EndedBy.ERROR)) is CONFIRMED


@pytest.mark.parametrize(
    ("remaining_s", "seconds"), [(90.0, 90), (-5.0, 0), (1e9, 600), (math.inf, None), (math.nan, None), (None, None)]
)
def test_the_deadline_is_on_the_backends_clock_and_bounded(remaining_s: float | None, seconds: float | None) -> None:
    expected = None if seconds is None else NOW + timedelta(seconds=seconds)
    assert lifecycle.confirm_deadline(message(UNCONFIRMED, remaining_s=remaining_s), NOW) == expected


def test_only_an_unconfirmed_change_has_a_deadline() -> None:
    assert lifecycle.confirm_deadline(message(CONFIRMED, remaining_s=30.0), NOW) is None


@pytest.mark.parametrize(
    ("state", "age_s", "overdue_s", "doubtful"),
    [
        (APPLYING, 14, None, False),
        (APPLYING, 15, None, True),
        (UNCONFIRMED, 100, -1, False),
        (UNCONFIRMED, 100, 14, False),
        (UNCONFIRMED, 100, 15, True),
        (CONFIRMED, 1000, 100, False),
    ],
)
def test_an_unknown_state_has_a_reason(
    state: ChangeState, age_s: float, overdue_s: float | None, doubtful: bool
) -> None:
    deadline_at = None if overdue_s is None else NOW - timedelta(seconds=overdue_s)
    found = lifecycle.unknown_state(state, created_at=NOW - timedelta(seconds=age_s), deadline_at=deadline_at, now=NOW)
    assert (found is not None and "not known" in found[1]) == doubtful
