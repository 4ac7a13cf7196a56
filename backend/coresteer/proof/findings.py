"""Findings about versions: what the sequences say, recorded when it changes; a harmful version is rolled back."""

from collections.abc import Mapping
from dataclasses import replace
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
from coresteer.proof import sums_repository
from coresteer.proof.confidence_sequence import Evidence
from coresteer.proof.context import ProofContext
from coresteer.proof.exclusion import BIASED, Block, is_biased, missing_in
from coresteer.proof.sums_repository import Sum
from coresteer.proof.tables import ProofVersionRow
from coresteer.proof.verdict import Finding, Verdict, alphas, harmful, judge
from coresteer_core.metrics import METRICS, MetricLabel

_NO_SUM = Sum(0, 0.0, 0.0)
_UNDECIDED = (Finding.NO_EVIDENCE, Finding.NONE_YET)


def verdicts(
    settings: ProofSettings,
    version: ProofVersionRow,
    sums: Mapping[str, Sum],
    applications: Mapping[str, DeclaredMetric],
    now: datetime,
    *,
    goes_on: bool,
) -> dict[str, Verdict]:
    """Return the verdicts on a version's metrics, the primary one first. sums: by metric, over all nodes.

    applications: declared application metrics by name; others are left out. goes_on: whether there will be more
    episodes, so that what will be detected can be predicted.
    """
    labels = labels_of(applications)
    age_s = max(1.0, (now - version.started_at).total_seconds())
    found = {}
    for metric, alpha in alphas(settings.metric, settings.others).items():
        label = labels.get(metric)
        if label is None and metric not in METRICS:
            continue
        one = sums.get(metric, _NO_SUM)
        evidence, per_s = Evidence.of(*one), one.episodes / age_s if goes_on else 0.0
        verdict = judge(metric, evidence, version.rho, alpha=alpha, per_s=per_s, now=now, label=label)
        found[metric] = replace(verdict, sentence=verdict.sentence + _lacking(metric, settings.metric, sums))
    return found


def _lacking(metric: str, primary: str, sums: Mapping[str, Sum]) -> str:
    """Return in which block episodes lack a guardrail, as the end of its sentence; empty where they do not."""
    enforced, holdout = (sums.get(missing_in(metric, block), _NO_SUM).episodes for block in Block)
    if not enforced + holdout:
        return ""
    text = f" {enforced} of {sums.get(primary, _NO_SUM).episodes} episodes lack it in the enforced block only, "
    text += f"{holdout} in the holdout block only"
    return f"{text}: {BIASED}." if is_biased(enforced, holdout) else f"{text}."


def labels_of(applications: Mapping[str, DeclaredMetric]) -> dict[str, MetricLabel]:
    """Return the labels of application metrics by their names among other metrics."""
    return {f"{PREFIX}{name}": metric.shown_as for name, metric in applications.items()}


async def update(session: AsyncSession, version: ProofVersionRow, body: PolicyBody, now: datetime) -> bool:
    """Record findings that have changed; return whether the version was rolled back."""
    sums = await sums_repository.totals(session, version.policy_id, version=version.version)
    applications = await find_declared(session, body.proof.applications, deleted=True)
    of_it = sums.get((version.policy_id, version.version), {})
    found = verdicts(body.proof, version, of_it, applications, now, goes_on=False)
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
