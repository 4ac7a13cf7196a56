"""Takes a version of a policy out of force because it does harm: the version before it, or none, is in force again."""

from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.audit.service import record
from coresteer.policies import repository, rollouts


async def reverse(session: AsyncSession, policy_id: int, version: int, why: str) -> str | None:
    """Put the version before this one in force on all nodes, or disable the policy if there was none.

    Return what was done as a sentence; None if the version is not in force.
    """
    policy = await repository.find_policy(session, policy_id, lock=True)
    if policy is None or not policy.enabled:
        return None
    rollout = await repository.unfinished_rollout(session, policy_id, lock=True)
    if rollout is not None:
        if rollout.to_version != version:
            return None  # on its way out already
        rollouts.apply_rollback(policy, rollout, why)
        rollouts.audit(session, "coresteer", "rollout.roll_back", policy, rollout)
        before = rollout.from_version
    elif policy.version != version:
        return None
    else:
        before = await repository.version_before(session, policy_id, version)
        policy.rolled_back_version, policy.rolled_back_because = version, why
        if before is None:
            policy.enabled = False
        else:
            policy.version = before
    done = "The policy is disabled." if before is None else f"Version {before} is in force again."
    detail = {"version": version, "becomes": before, "sentence": why}
    record(session, actor="coresteer", action="policy.roll_back", target=f"policy {policy.name}", detail=detail)
    return done
