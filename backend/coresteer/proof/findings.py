"""Findings about versions: what the sequences say, recorded when it changes; a harmful version is rolled back."""

from collections.abc import Mapping
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.application_metrics.reading import PREFIX, DeclaredMetric
from coresteer.application_metrics.service import find_declared
from coresteer.audit.service import record
from coresteer.bus import PoliciesEvent
from coresteer.policies import repository as policies
from coresteer.policies.proof_settings import ProofSettings
from coresteer.policies.reversal import reverse
from coresteer.policies.schemas import PolicyBody
from coresteer.proof import repository
from coresteer.proof.confidence_sequence import Evidence
from coresteer.proof.context import ProofContext
from coresteer.proof.repository import Sum
from coresteer.proof.tables import ProofVersionRow
from coresteer.proof.verdict import Finding, Verdict, alphas, harmful, judge
from coresteer_core.metrics import METRICS

_UNDECIDED = (Finding.NO_EVIDENCE, Finding.NONE_YET)


def verdicts(
    settings: ProofSettings,
    version: ProofVersionRow,
    sums: Mapping[str, Sum],
    applications: Mapping[str, DeclaredMetric],
    now: datetime,
) -> dict[str, Verdict]:
    """Return the verdicts on a version's metrics, the primary one first. sums: by metric, over all nodes.

    applications: declared application metrics by name; others are left out.
    """
    labels = {f"{PREFIX}{name}": metric.shown_as for name, metric in applications.items()}
    age_s = max(1.0, (now - version.started_at).total_seconds())
    found = {}
    for metric, alpha in alphas(settings.metric, settings.others).items():
        label = labels.get(metric)
        if label is None and metric not in METRICS:
            continue
        one = sums.get(metric, Sum(0, 0.0, 0.0))
        evidence, per_s = Evidence.of(*one), one.episodes / age_s
        found[metric] = judge(metric, evidence, version.rho, alpha=alpha, per_s=per_s, now=now, label=label)
    return found


async def update(session: AsyncSession, version: ProofVersionRow, body: PolicyBody, now: datetime) -> bool:
    """Record findings that have changed; return whether the version was rolled back."""
    sums = await repository.totals(session, version.policy_id, version=version.version)
    applications = await find_declared(session, body.proof.application_metrics, deleted=True)
    found = verdicts(body.proof, version, sums.get((version.policy_id, version.version), {}), applications, now)
    name = await policies.policy_name(session, version.policy_id)
    before = version.findings
    for metric, verdict in found.items():
        was = before.get(metric, {}).get("finding", Finding.NO_EVIDENCE)
        if was == verdict.finding:
            continue
        version.findings = version.findings | {metric: {"finding": verdict.finding, "at": now.isoformat()}}
        if verdict.finding in _UNDECIDED and was in _UNDECIDED:
            continue
        detail = {
            "version": version.version,
            "metric": metric,
            "finding": verdict.finding,
            "sentence": verdict.sentence,
        }
        record(session, actor="coresteer", action="policy.find_effect", target=f"policy {name}", detail=detail)
    harm = harmful(found)
    if harm is None or not body.proof.roll_back or version.rolled_back_at is not None:
        return False
    if (
        await reverse(session, version.policy_id, version.version, f"Version {version.version}: {harm.sentence}")
        is None
    ):
        return False
    version.rolled_back_at = now
    return True


def publish(context: ProofContext) -> None:
    """Send agents the policies in force, and let browsers read them again."""
    context.policies.bus.publish(PoliciesEvent(None))
