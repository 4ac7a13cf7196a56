"""Proofs of policies for people: effects over time, by version and group, and what all policies save together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.application_metrics.reading import DeclaredMetric
from coresteer.application_metrics.service import find_declared
from coresteer.audit.service import record
from coresteer.errors import Conflict
from coresteer.policies import repository as policy_repository
from coresteer.policies import service as policies
from coresteer.policies.proof_settings import ProofSettings
from coresteer.policies.schemas import Policy, PolicyBody
from coresteer.proof import repository, sums_repository
from coresteer.proof.confidence_sequence import ALPHA, Effect, Evidence, effect
from coresteer.proof.context import ProofContext
from coresteer.proof.course import effects_at
from coresteer.proof.exclusion import BIASED, SENTENCES, Block, Exclusion, is_biased
from coresteer.proof.findings import labels_of, verdicts
from coresteer.proof.repository import Counts
from coresteer.proof.schemas import (
    EffectAt,
    ExcludedCount,
    ExclusionBalance,
    ExpectedDetection,
    FleetProof,
    GroupProof,
    MetricProof,
    PolicyProof,
    PolicyProofLine,
    ProvenEffect,
    SavedCores,
    VersionProof,
)
from coresteer.proof.sums_repository import Sum
from coresteer.proof.switching import exclude
from coresteer.proof.tables import ProofFleetRow, ProofVersionRow
from coresteer.proof.verdict import Verdict, alphas, judge
from coresteer_core.policies.base import Mode

_CPU_METRICS = ("cpu_s_per_gbit", "cpu_busy_percent")
"""Metrics of which a relative effect is one of the CPU time that is used."""
_VERSIONS = 20
"""Largest number of versions in a response, besides the one in force."""
_BUSY_SINCE = timedelta(days=30)
"""As long as the figures of blocks are kept."""
_FACTORS_OF = 1000
_NOTHING = Counts({}, 0, {})
_NO_SUM = Sum(0, 0.0, 0.0)


async def policy_proof(session: AsyncSession, policy_id: int, label: str | None) -> PolicyProof:
    """Return the proof of a policy. label: by whose values to group; None: that of its failure domains, or the first.

    Raises NotFound.
    """
    now = datetime.now(UTC)
    policy = await policies.get(session, policy_id)
    fleet = await repository.fleet(session)
    rows = await repository.versions(session, policy_id, latest=_VERSIONS, also=policy.version)
    told = [row.version for row in rows]
    labels = await sums_repository.labels(session, policy_id)
    chosen = label or policy.body.proof.domain_label or next(iter(labels), None)
    stored = await repository.bodies(session, {(policy_id, version) for version in told})
    bodies = {version: PolicyBody.model_validate(body) for (_, version), body in stored.items()}
    data = _Data(
        counts=await repository.counts(session, policy_id),
        courses=await sums_repository.courses(session, policy_id, told),
        groups={} if chosen is None else await sums_repository.group_sums(session, policy_id, chosen, told),
        busy={
            version: cpus
            for (_, version), cpus in (await repository.busy_cpus(session, now - _BUSY_SINCE, policy_id)).items()
        },
        factors=await repository.factor_counts(session, policy_id, told, blocks=_FACTORS_OF),
        applications=await find_declared(
            session, {name for body in bodies.values() for name in body.proof.applications}, deleted=True
        ),
        goes_on=_in_force(policy) if fleet.paused_at is None else set(),
    )
    versions = [_version_proof(row, bodies[row.version].proof, data, now) for row in rows]
    in_force = next((one for one in versions if one.version == policy.version), None)
    return PolicyProof(
        policy_id=policy_id,
        paused_at=fleet.paused_at,
        paused_by=fleet.paused_by,
        sentence=_why_nothing(policy.body, policy.enabled, fleet) if in_force is None else in_force.sentence,
        label=chosen,
        labels=labels,
        versions=versions,
    )


@dataclass(frozen=True)
class _Data:
    """What the database has about a policy's proof, by version."""

    counts: Mapping[int, Counts]
    courses: Mapping[tuple[int, str], list[tuple[datetime, Sum]]]
    groups: Mapping[tuple[int, str], dict[str, Sum]]
    busy: Mapping[int, float]
    factors: Mapping[int, dict[str, dict[str, int]]]
    applications: Mapping[str, DeclaredMetric]
    goes_on: set[int]
    """Versions that will have more episodes."""


def _in_force(policy: Policy) -> set[int]:
    """Return the versions of a policy that nodes have now: the one in force, and one that rolls out."""
    if not policy.enabled:
        return set()
    return {policy.version} if policy.rollout is None else {policy.version, policy.rollout.to_version}


def _version_proof(row: ProofVersionRow, settings: ProofSettings, data: _Data, now: datetime) -> VersionProof:
    sums = {
        metric: sum((one for _, one in course), _NO_SUM)
        for (version, metric), course in data.courses.items()
        if version == row.version
    }
    found = verdicts(settings, row, sums, data.applications, now, goes_on=row.version in data.goes_on)
    counts = data.counts.get(row.version, _NOTHING)
    primary = found[settings.metric]
    cores = saved_cores(settings.metric, primary.effect, data.busy.get(row.version))
    shares = alphas(settings.metric, settings.others)
    episodes, label = sums.get(settings.metric, _NO_SUM).episodes, labels_of(data.applications).get(settings.metric)
    excluded = _excluded(counts)
    return VersionProof(
        version=row.version,
        started_at=row.started_at,
        nodes=counts.nodes,
        episodes=episodes,
        running=counts.by_state.get("running", 0),
        waiting=counts.by_state.get("waiting", 0),
        excluded=excluded,
        balance=_balance(episodes, excluded),
        block_s=settings.block_s,
        washout_s=row.washout_s,
        metrics=[
            _metric_proof(
                row,
                verdict,
                course=effects_at(data.courses.get((row.version, metric), ()), row.rho, shares[metric], now),
                alpha=shares[metric],
                primary=metric == settings.metric,
            )
            for metric, verdict in found.items()
        ],
        groups=[
            _group(
                value, judge(primary.metric, Evidence.of(*one), row.rho, alpha=ALPHA, per_s=0.0, now=now, label=label)
            )
            for value, one in data.groups.get((row.version, settings.metric), {}).items()
        ],
        cores=cores,
        factors=data.factors.get(row.version, {}),
        rolled_back_at=row.rolled_back_at,
        sentence=_sentence(primary, counts.nodes, row.started_at, cores),
    )


def _excluded(counts: Counts) -> list[ExcludedCount]:
    """Return the excluded episodes by reason, the most frequent one first."""
    reasons = {reason for reason, _ in counts.excluded}
    found = []
    for reason in map(Exclusion, reasons):
        of_it = {block: number for (other, block), number in counts.excluded.items() if other == reason}
        found.append(
            ExcludedCount(
                reason=reason,
                sentence=SENTENCES[reason],
                episodes=sum(of_it.values()),
                enforced=of_it.get(Block.ENFORCED, 0),
                holdout=of_it.get(Block.HOLDOUT, 0),
            )
        )
    return sorted(found, key=lambda one: (-one.episodes, one.reason))


def _balance(included: int, excluded: Sequence[ExcludedCount]) -> ExclusionBalance:
    """Return for which of their blocks episodes were excluded."""
    ended = included + sum(one.episodes for one in excluded)
    enforced, holdout = sum(one.enforced for one in excluded), sum(one.holdout for one in excluded)
    biased = is_biased(enforced, holdout)
    sentence = f"{enforced} of {ended} episodes excluded because of the enforced block, {holdout} of the holdout block"
    sentence += f": {BIASED}." if biased else "."
    return ExclusionBalance(ended=ended, enforced=enforced, holdout=holdout, biased=biased, sentence=sentence)


def _metric_proof(
    row: ProofVersionRow, verdict: Verdict, *, course: list[EffectAt], alpha: float, primary: bool
) -> MetricProof:
    since = row.findings.get(verdict.metric, {}).get("at")
    expected = verdict.expected
    return MetricProof(
        metric=verdict.metric,
        label=verdict.label,
        primary=primary,
        alpha=alpha,
        finding=verdict.finding,
        finding_since=None if since is None else datetime.fromisoformat(since),
        effect=_effect(verdict.effect),
        detectable=verdict.detectable,
        expected=None if expected is None else ExpectedDetection(effect=expected.effect, at=expected.at),
        sentence=verdict.sentence,
        course=course,
    )


def _group(value: str, verdict: Verdict) -> GroupProof:
    return GroupProof(value=value, finding=verdict.finding, effect=_effect(verdict.effect), sentence=verdict.sentence)


def _effect(found: Effect | None) -> ProvenEffect | None:
    if found is None:
        return None
    return ProvenEffect(estimate=found.estimate, low=found.low, high=found.high, episodes=found.episodes)


def saved_cores(metric: str, found: Effect | None, busy: float | None) -> SavedCores | None:
    """Return the CPUs that an effect saves; None where it is not about CPU time or has no interval. busy: enforced."""
    if metric not in _CPU_METRICS or found is None or busy is None or found.low is None or found.high is None:
        return None
    estimate, low, high = (busy * (1 / (1 + one) - 1) for one in (found.estimate, found.high, found.low))
    return SavedCores(estimate=estimate, low=low, high=high)


def _sentence(primary: Verdict, nodes: int, since: datetime, cores: SavedCores | None) -> str:
    """Return a version's verdict with its nodes: saves 3.1 % [2.2, 4.0] of … on 812 nodes since 3 March, equal to …"""
    if primary.effect is None:
        return primary.sentence
    where = f" on {nodes} node{'' if nodes == 1 else 's'} since {since.day} {since:%B %Y}"
    if primary.effect.direction == 0:
        return primary.sentence.replace(" detected yet", f" detected yet{where}", 1)
    if cores is None:
        return f"{primary.sentence.removesuffix('.')}{where}."
    equal = f", equal to {_cores(abs(cores.estimate))}" + ("" if cores.estimate > 0 else " more")
    return f"{primary.sentence.removesuffix('.')}{where}{equal}."


def _cores(number: float) -> str:
    text = f"{number:,.0f}" if number >= 10 else f"{number:.2g}"
    return f"{text} core{'' if text == '1' else 's'}"


def _why_nothing(body: PolicyBody, enabled: bool, fleet: ProofFleetRow) -> str:
    """Return why a policy has no evidence for its present version."""
    if not enabled:
        return "No evidence: the policy is not enabled."
    if body.mode is not Mode.ENFORCE:
        return f"No evidence: the policy is in mode {body.mode}, so that it changes nothing."
    if not body.proof.holdout_percent:
        return "No evidence: this version has no holdout, so that its effect is not measured."
    return "No evidence: all proofs are paused." if fleet.paused_at is not None else "No evidence yet."


async def fleet_proof(session: AsyncSession) -> FleetProof:
    """Return one line for each policy that enforces, and what all together save."""
    now = datetime.now(UTC)
    fleet = await repository.fleet(session)
    rows = {(row.policy_id, row.version): row for row in await repository.versions(session)}
    sums, busy = await sums_repository.totals(session), await repository.busy_cpus(session, now - _BUSY_SINCE)
    nodes, names = await repository.included_nodes(session), await repository.policy_names(session)
    lines: list[PolicyProofLine] = []
    measured: list[MeasuredPolicy] = []
    enforced = [
        (policy, body)
        for policy in await policy_repository.enabled_policies(session)
        if (body := policy.bodies.get(policy.version)) is not None and body.mode is Mode.ENFORCE
    ]
    applications = await find_declared(
        session, {name for _, body in enforced for name in body.proof.applications}, deleted=True
    )
    for policy, body in enforced:
        key = policy.policy_id, policy.version
        row, settings = rows.get(key), body.proof
        of_it = sums.get(key, {})
        one, label = of_it.get(settings.metric, _NO_SUM), labels_of(applications).get(settings.metric)
        rho = 1.0 if row is None else row.rho
        primary = judge(settings.metric, Evidence.of(*one), rho, alpha=ALPHA, per_s=0.0, now=now, label=label)
        if one.episodes and key in busy:
            measured.append(MeasuredPolicy(settings.metric, rho, one, busy[key]))
        cores = saved_cores(settings.metric, primary.effect, busy.get(key))
        sentence = _why_nothing(body, True, fleet)
        if row is not None and primary.effect is not None:
            sentence = _sentence(primary, nodes.get(key, 0), row.started_at, cores)
        lines.append(
            PolicyProofLine(
                policy_id=policy.policy_id,
                name=names.get(policy.policy_id, body.name),
                version=policy.version,
                nodes=nodes.get(key, 0),
                since=None if row is None else row.started_at,
                metric=settings.metric,
                finding=primary.finding,
                effect=_effect(primary.effect),
                cores=cores,
                sentence=sentence,
            )
        )
    total, known = saved_together(measured)
    return FleetProof(
        paused_at=fleet.paused_at,
        paused_by=fleet.paused_by,
        sentence=_fleet_sentence(lines, total, known),
        cores=total,
        policies=lines,
    )


class MeasuredPolicy(NamedTuple):
    """Evidence about a policy's primary metric. busy: CPUs in use while the policy is enforced."""

    metric: str
    rho: float
    sum: Sum
    busy: float


def saved_together(measured: Sequence[MeasuredPolicy]) -> tuple[SavedCores | None, int]:
    """Return the cores that policies save together, and the number of policies of which that is known.

    The intervals of those whose primary metric is of CPU time share one error probability.
    """
    parts = []
    of_cpu = [one for one in measured if one.metric in _CPU_METRICS]
    for one in of_cpu:
        share = effect(Evidence.of(*one.sum), one.rho, ALPHA / len(of_cpu))
        if (cores := saved_cores(one.metric, share, one.busy)) is not None:
            parts.append(cores)
    if not parts:
        return None, 0
    total = SavedCores(
        estimate=sum(one.estimate for one in parts),
        low=sum(one.low for one in parts),
        high=sum(one.high for one in parts),
    )
    return total, len(parts)


def _fleet_sentence(lines: Sequence[PolicyProofLine], total: SavedCores | None, known: int) -> str:
    """Return what policies save together. known: the number of those in the total."""
    if not lines:
        return "No policy is enforced."
    some = f"{len(lines)} enforced {'policies' if len(lines) > 1 else 'policy'}"
    if 0 < known < len(lines):
        some = f"{known} of {some}"
    if total is None:
        return f"No evidence yet of what {some} save{'s' if len(lines) == 1 else ''}."
    if total.low <= 0 <= total.high:
        return f"No effect of {some} on CPU time detected yet: between [{total.low:,.3g}, {total.high:,.3g}] cores."
    verb = "save" if total.estimate > 0 else "cost"
    verb += "s" if known == 1 else ""
    low, high = sorted((abs(total.low), abs(total.high)))
    together = "Together, " if known > 1 else ""
    return f"{together}{some} {verb} {_cores(abs(total.estimate))} [{low:,.3g}, {high:,.3g}]."


async def pause(context: ProofContext, *, actor: str) -> FleetProof:
    """Pause all proofs at once: every node enforces its policies again. Raises Conflict when they are paused."""
    async with context.policies.database.session() as session:
        fleet = await repository.fleet(session, lock=True)
        if fleet.paused_at is not None:
            raise Conflict(f"All proofs are paused already, by {fleet.paused_by}.")
        fleet.paused_at, fleet.paused_by = datetime.now(UTC), actor
        nodes = []
        for row in await repository.running_episodes(session):
            exclude(row, Exclusion.PAUSED, fleet.paused_at)
            nodes += [] if row.node_id is None else [row.node_id]
        record(session, actor=actor, action="proof.pause", target="all proofs", detail={"episodes": len(nodes)})
        await session.flush()
        answer = await fleet_proof(session)
    for node_id in nodes:
        context.publish(node_id)
    return answer


async def resume(context: ProofContext, *, actor: str) -> FleetProof:
    """Resume all proofs; nodes are held out again as scheduled. Raises Conflict when they are not paused."""
    async with context.policies.database.session() as session:
        fleet = await repository.fleet(session, lock=True)
        if fleet.paused_at is None:
            raise Conflict("Proofs are not paused.")
        fleet.paused_at = fleet.paused_by = None
        record(session, actor=actor, action="proof.resume", target="all proofs")
        await session.flush()
        answer = await fleet_proof(session)
    return answer
