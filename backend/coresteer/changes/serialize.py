"""Conversion of changes to the API's schema."""

from datetime import datetime

import msgspec

from coresteer.changes import lifecycle
from coresteer.changes.observation import Observation
from coresteer.changes.schemas import Change, ChangeStatus, ChangeStep, GuardrailIn, Undone
from coresteer.changes.tables import ChangeRow
from coresteer_core.changes.plan import Plan
from coresteer_core.changes.report import ChangeState, EndedBy, Result


def to_schema(row: ChangeRow, now: datetime, undone: Undone | None = None) -> Change:
    """Convert a change's row for the API; a last step says so while its state is unknown at that time.

    undone: by which later change; see coresteer.changes.undone.
    """
    state = ChangeState(row.state)
    steps = [ChangeStep(at=step.at, state=ChangeState(step.state), sentence=step.sentence) for step in row.steps]
    doubt = lifecycle.unknown_state(state, created_at=row.created_at, deadline_at=row.deadline_at, now=now)
    if doubt is not None:
        steps.append(ChangeStep(at=doubt[0], state=state, sentence=doubt[1]))
    waits = state is ChangeState.UNCONFIRMED and row.deadline_at is not None
    return Change(
        id=str(row.id),
        node_id=row.node_id,
        node_name=row.node.name,
        plan=msgspec.convert(row.plan, Plan),
        sentence=row.sentence,
        state=state,
        status=ChangeStatus(state) if undone is None else ChangeStatus.UNDONE,
        undone=undone,
        ended_by=EndedBy(row.ended_by) if row.ended_by else None,
        created_by=row.created_by,
        policy_id=row.policy_id,
        experiment_id=row.experiment_id,
        undoes=None if row.undoes is None else str(row.undoes),
        restores=row.restores,
        reason=row.reason,
        created_at=row.created_at,
        applied_at=row.applied_at,
        ended_at=row.ended_at,
        deadline_at=row.deadline_at,
        remaining_s=max(0.0, (row.deadline_at - now).total_seconds()) if waits and row.deadline_at else None,
        confirm_timeout_s=row.confirm_timeout_s,
        guardrails=[GuardrailIn.model_validate(guardrail) for guardrail in row.guardrails],
        results=msgspec.convert(row.results, list[Result]),
        steps=steps,
        observation=None if row.observation is None else msgspec.convert(row.observation, Observation),
    )
