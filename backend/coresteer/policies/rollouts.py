"""Rollouts: give a policy version to a canary, then in batches to the other nodes; roll it back on a violation."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.audit.actions import Action
from coresteer.audit.service import record
from coresteer.bus import PoliciesEvent
from coresteer.changes.schemas import GuardrailIn
from coresteer.errors import Conflict, NotFound
from coresteer.policies import repository, windows
from coresteer.policies.approval_schemas import Approval, PolicyAction
from coresteer.policies.approvals import Approved, waits
from coresteer.policies.approvals import to_schema as to_approval
from coresteer.policies.context import PolicyContext
from coresteer.policies.in_force import IN_PROGRESS_STATES, UNFINISHED_STATES
from coresteer.policies.rollout_schemas import (
    EvidenceBasis,
    Rollout,
    RolloutCreate,
    RolloutPace,
    RolloutState,
    StageEvidence,
)
from coresteer.policies.schemas import PolicyBody
from coresteer.policies.selector import matches
from coresteer.policies.tables import PolicyRow, RolloutRow

HELD, WAITS = "Held", "Waits"
"""First word of the sentence of a rollout that waits for the end of a stop of enforcement, or for a change window."""


async def start(
    context: PolicyContext, policy_id: int, request: RolloutCreate, *, actor: str, approved: Approved | None = None
) -> Rollout | Approval:
    """Start a rollout: give the version to the canary nodes; or return the request that waits for approval.

    Raises NotFound, and Conflict when one is in progress, no node matches, or the change windows of a stage are never
    open together for as long as it waits.
    """
    async with context.database.session() as session:
        policy = await repository.find_policy(session, policy_id, lock=True)
        version = await repository.find_version(session, policy_id, request.version)
        if policy is None:
            raise NotFound(f"There is no policy {policy_id}; it may have been deleted.")
        if version is None:
            raise NotFound(f"Policy {policy_id} has no version {request.version}.")
        if (before := await repository.unfinished_rollout(session, policy_id)) is not None:
            stopped = before.state == RolloutState.STOPPED
            how = "stopped; roll it back first" if stopped else "in progress; stop it first"
            raise Conflict(f"The rollout of version {before.to_version} is {how}.")
        if policy.enabled and policy.version == request.version:
            raise Conflict(f"Version {request.version} is already in force.")
        body = PolicyBody.model_validate(version.body)
        nodes = [
            attributes.node_id
            for attributes in await repository.node_attributes(session)
            if matches(body.selector, attributes)
        ]
        connected = [node_id for node_id in nodes if context.registry.is_connected(node_id)]
        if not connected:
            raise Conflict(
                f"None of the {len(nodes)} nodes that the selector matches is connected; a rollout needs at least one."
                if nodes
                else "The selector matches no node."
            )
        now = datetime.now(UTC)
        stages = split_into_stages(connected, request.canary, request.batch)
        for place, opening in enumerate(await windows.openings(session, stages, now), 1):
            if opening <= timedelta(seconds=request.wait_s):
                raise Conflict(
                    f"The change windows of the nodes in stage {place} are open together for "
                    f"{opening.total_seconds():.0f} s at most, but the stage waits {request.wait_s:g} s. Shorten the "
                    "wait, widen the windows, or make a policy for the nodes of each window."
                )
        waiting = await waits(
            session,
            policy,
            PolicyAction.ROLL_OUT,
            request.model_dump(mode="json"),
            brings=version,
            actor=actor,
            approved=approved,
        )
        if waiting is not None:
            context.bus.publish(PoliciesEvent(None))
            return to_approval(waiting, policy.name)
        guardrails = body.guardrails if request.guardrails is None else request.guardrails
        row = RolloutRow(
            policy_id=policy_id,
            from_version=policy.version if policy.enabled else None,
            to_version=request.version,
            stage=0,
            stages=stages,
            wait_s=request.wait_s,
            guardrails=[guardrail.model_dump() for guardrail in guardrails],
            started_at=now,
            started_by=actor,
        )
        enter_stage(row, 0, now)
        policy.enabled, policy.leave_pages = True, request.leave_pages
        policy.pace = request.model_dump(mode="json", include=set(RolloutPace.model_fields))
        session.add(row)
        await session.flush()
        audit(session, actor, "rollout.start", policy, row)
        rollout = to_schema(row, now)
    context.bus.publish(PoliciesEvent(None))
    return rollout


async def get(session: AsyncSession, rollout_id: int) -> Rollout:
    """Return one rollout. Raises NotFound."""
    return to_schema(await _found(session, rollout_id), datetime.now(UTC))


async def stop(context: PolicyContext, rollout_id: int, *, roll_back: bool, actor: str) -> Rollout:
    """Stop a rollout or roll it back. Raises NotFound, and Conflict when it has ended."""
    async with context.database.session() as session:
        policy_id = (await _found(session, rollout_id)).policy_id
        # the lock order of every transaction: policy, then rollout
        policy = await repository.find_policy(session, policy_id, lock=True)
        row = await _found(session, rollout_id, lock=True)
        if policy is None or row.state not in UNFINISHED_STATES:
            raise Conflict(f"This rollout has ended: {row.sentence}")
        if row.state == RolloutState.STOPPED and not roll_back:
            raise Conflict("This rollout is already stopped.")
        if roll_back:
            apply_rollback(policy, row, f"An operator rolled version {row.to_version} back.")
        else:
            end(row, RolloutState.STOPPED, f"An operator stopped the rollout with {_reached(row)}.")
        audit(session, actor, "rollout.roll_back" if roll_back else "rollout.stop", policy, row)
        rollout = to_schema(row, datetime.now(UTC))
    context.bus.publish(PoliciesEvent(None))
    return rollout


def split_into_stages(node_ids: Sequence[int], canary: int, batch: int) -> list[list[int]]:
    """Split node ids into the canary and batches; the last batch may be smaller."""
    rest = node_ids[canary:]
    return [list(node_ids[:canary]), *(list(rest[at : at + batch]) for at in range(0, len(rest), batch))]


def enter_stage(row: RolloutRow, stage: int, now: datetime) -> None:
    """Give the rollout's version to the nodes of a stage."""
    row.state = RolloutState.CANARY if stage == 0 else RolloutState.BATCHES
    if stage != row.stage:
        row.begun_at = None
    row.stage, row.stage_at, row.violation = stage, now, None
    row.sentence = f"{_reached(row).capitalize()}; stage {stage + 1} of {len(row.stages)}."


def note_begin(row: RolloutRow, idle: frozenset[int], now: datetime) -> None:
    """Note when a node of the present stage can enforce the version first. idle: nodes on which nothing is enforced."""
    if row.begun_at is None and not idle.issuperset(row.stages[row.stage]):
        row.begun_at = now if is_paused(row) else row.stage_at


def is_paused(row: RolloutRow) -> bool:
    """Return whether a stage waits for the end of a stop of enforcement, or for a change window, to begin anew."""
    return row.sentence.startswith((HELD, WAITS))


def hold(row: RolloutRow, now: datetime, stopped: int) -> None:
    """Let a stage begin anew when enforcement is no longer stopped. stopped: on how many of the rollout's nodes."""
    row.violation = None
    row.stage_at = now
    row.sentence = f"{HELD} in stage {row.stage + 1}: enforcement is stopped on {_of_its_nodes(stopped)}."


def wait_for_window(row: RolloutRow, closed: int) -> None:
    """Let a stage begin anew when a change window is open. closed: for how many of its nodes none is."""
    row.sentence = f"{WAITS} in stage {row.stage + 1}: no change window is open for {_of_its_nodes(closed)}."


def _of_its_nodes(nodes: int) -> str:
    return "1 of its nodes" if nodes == 1 else f"{nodes} of its nodes"


def add_evidence(row: RolloutRow, evidence: StageEvidence) -> None:
    """Store the figures of the stage that ends."""
    row.evidence = [*row.evidence, evidence.model_dump(mode="json")]


def finish(policy: PolicyRow, row: RolloutRow) -> None:
    """Complete a rollout: put its version in force on all nodes that the selector matches."""
    policy.version = row.to_version
    if policy.rolled_back_version == row.to_version:
        policy.rolled_back_version = policy.rolled_back_because = None
    bases = [StageEvidence.model_validate(one).basis for one in row.evidence]
    compared, alone = bases.count(EvidenceBasis.COMPARED), bases.count(EvidenceBasis.BEFORE_AFTER)
    sentence = (
        f"Version {row.to_version} is in force; no guardrail was violated on nodes that report its metric. Of "
        f"{len(row.stages)} stages, {compared} passed on figures compared with waiting nodes, {alone} on figures from "
        f"before and after alone, and {len(row.stages) - compared - alone} without figures."
    )
    end(row, RolloutState.DONE, sentence)


def apply_rollback(policy: PolicyRow, row: RolloutRow, why: str) -> None:
    """Roll a rollout back: give all nodes the version that they had before it. why: a sentence."""
    policy.enabled = row.from_version is not None
    policy.rolled_back_version, policy.rolled_back_because = row.to_version, why
    before = "no version" if row.from_version is None else f"version {row.from_version}"
    end(row, RolloutState.ROLLED_BACK, f"{why} Every node has {before} again.")


def end(row: RolloutRow, state: RolloutState, sentence: str) -> None:
    """End a rollout in a state, with the reason as a sentence."""
    row.state, row.sentence, row.ended_at = state, sentence, datetime.now(UTC)


def audit(session: AsyncSession, actor: str, action: Action, policy: PolicyRow, row: RolloutRow) -> None:
    """Record the progress of a rollout in the audit log."""
    detail = {"rollout": row.id, "version": row.to_version, "stage": row.stage, "sentence": row.sentence}
    if row.evidence:
        detail["evidence"] = row.evidence[-1]["sentence"]
    if policy.leave_pages:
        detail["leave_pages"] = True
    record(session, actor=actor, action=action, target=f"policy {policy.name}", detail=detail)


def to_schema(row: RolloutRow, now: datetime) -> Rollout:
    """Convert a rollout's row for the API at that time."""
    completed = row.stages if row.state == RolloutState.DONE else row.stages[: row.stage]
    if row.state == RolloutState.ROLLED_BACK:
        completed = []
    left_s = min(row.wait_s, max(0.0, row.wait_s - (now - row.stage_at).total_seconds()))
    return Rollout(
        id=row.id,
        policy_id=row.policy_id,
        from_version=row.from_version,
        to_version=row.to_version,
        state=RolloutState(row.state),
        stage=row.stage,
        stages=row.stages,
        done_nodes=[node_id for stage in completed for node_id in stage],
        sentence=row.sentence,
        wait_s=row.wait_s,
        remaining_s=left_s if row.state in IN_PROGRESS_STATES and not is_paused(row) else None,
        guardrails=[GuardrailIn.model_validate(guardrail) for guardrail in row.guardrails],
        stage_at=row.stage_at,
        started_at=row.started_at,
        started_by=row.started_by,
        ended_at=row.ended_at,
        evidence=[StageEvidence.model_validate(one) for one in row.evidence],
    )


def _reached(row: RolloutRow) -> str:
    reached = sum(map(len, row.stages[: row.stage + 1]))
    return f"{reached} of {sum(map(len, row.stages))} nodes at version {row.to_version}"


async def _found(session: AsyncSession, rollout_id: int, *, lock: bool = False) -> RolloutRow:
    row = await session.get(RolloutRow, rollout_id, with_for_update=lock, populate_existing=lock)
    if row is None:
        raise NotFound(f"There is no rollout {rollout_id}.")
    return row
