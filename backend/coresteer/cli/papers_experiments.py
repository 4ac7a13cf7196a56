"""The experiments of `coresteer papers`: which this machine can run, and their figures next to the papers'."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec

from coresteer.cli.api_client import ApiClient, ApiError
from coresteer.experiments.published import published_results
from coresteer.experiments.schedule import estimate_duration_s
from coresteer.experiments.schemas import PublishedResult
from coresteer.experiments.spec import Analysis, Interval, Spec
from coresteer.experiments.templates import unmeasured_by
from coresteer.experiments.templates.declaration import published_row
from coresteer.papers import Figure, figures
from coresteer.papers.verdicts import Estimate, Measured
from coresteer_core.experiments.parallel_jobs import COMMAND, Bsp

Json: TypeAlias = dict[str, Any]  # Any: answers of the API
Say: TypeAlias = Callable[[str], None]

POLICIES: Mapping[str, Json] = {
    "network-process": {"type": "network-process"},
    "numa": {"type": "numa"},
    "PB": {"type": "coscheduling", "match": {"commands": [COMMAND]}, "reorder": False},
    "PB+RO": {"type": "coscheduling", "match": {"commands": [COMMAND]}, "reorder": True},
}
"""In force during runs only."""
NOT_OFFERED = (
    "it needs a second machine that sends, and a network card with several receive queues and as many cores that "
    "share a cache, or share none"
)
_MOVES_PER_STEP = 8
"""All processes of a load in one round, as its runs are short."""
_SHORTER: Json = {"aa_blocks": 3, "measure_s": 3.0}
_QUICK: Json = {"aa_blocks": 3, "measure_s": 2.0, "settle_s": 10.0}
_POLL_S = 1.0
_LIVE_S = 60.0
_END_S = 60.0
_OPEN = ("queued", "running")


class Planned(NamedTuple):
    """An experiment that this machine can run, how long it takes, and how it differs from the paper's, in sentences."""

    slug: str
    spec: Spec
    seconds: float
    differs: list[str]


class Plan(NamedTuple):
    """Experiments to run, and by template why the others are not possible here."""

    experiments: list[Planned]
    impossible: dict[str, str]


class Outcome(NamedTuple):
    """An experiment that has ended, as the API returned it; None with the reason if it has no result."""

    experiment: Json | None
    reason: str = ""


def wanted_templates(systems: Sequence[str]) -> list[str]:
    """Return the templates that measure figures of these systems, in the papers' order."""
    return list(dict.fromkeys(slug for one in figures() if one.system in systems for slug in one.templates))


def prepare(client: ApiClient, systems: Sequence[str], *, quick: bool) -> Plan:
    """Create the policies that templates need and return what this machine can run, the shortest first.

    Raises ApiError.
    """
    node = _live_node(client)
    for name, spec in POLICIES.items():
        damping = {"moves_per_step": _MOVES_PER_STEP}
        client.post("/policies", {"name": name, "mode": "observe", "spec": spec, "damping": damping})
    offered = {each["slug"]: each for each in client.get(f"/nodes/{node['id']}/experiment-templates")}
    plan = Plan([], {})
    for slug in wanted_templates(systems):
        template = offered.get(slug)
        if template is None or template["spec"] is None:
            plan.impossible[slug] = NOT_OFFERED if template is None else str(template["unavailable_because"])
            continue
        spec = msgspec.convert(template["spec"] | _overrides(template["spec"], quick=quick), Spec)
        if quick and isinstance(spec.workload, Bsp):
            plan.impossible[slug] = "--quick omits it, because each of its runs takes half a minute"
            continue
        differs = [*template["differs"], *template["deviations"]]
        plan.experiments.append(Planned(slug, spec, estimate_duration_s(spec), differs))
    return plan._replace(experiments=sorted(plan.experiments, key=lambda each: each.seconds))


def _overrides(spec: Json, *, quick: bool) -> Json:
    """Return shorter runs; one with a fixed amount of work keeps its maximum."""
    chosen = _QUICK if quick else _SHORTER
    ends_itself = spec["workload"]["type"] in ("bsp", "classes", "memory")
    return {name: value for name, value in chosen.items() if name != "measure_s" or not ends_itself}


def _live_node(client: ApiClient) -> Json:
    end = time.monotonic() + _LIVE_S
    while time.monotonic() < end:
        found: list[Json] = [node for node in client.get("/nodes") if node["health"] == "live"]
        if found:
            return found[0]
        time.sleep(_POLL_S)
    raise ApiError("This machine's agent did not connect. Is coresteer-agent installed next to the backend?", 0)


def run(client: ApiClient, planned: Planned, until_s: float, say: Say) -> Outcome:
    """Run one experiment to its end; cancel it at the monotonic time until_s, and after Ctrl-C, which is raised."""
    try:
        experiment: Json = client.post("/experiments", {"spec": msgspec.to_builtins(planned.spec)})
    except ApiError as error:
        return Outcome(None, f"the experiment cannot be started: {error}")
    path = f"/experiments/{experiment['id']}"
    try:
        while experiment["state"] in _OPEN:
            if time.monotonic() >= until_s:
                _cancel(client, path)
                return Outcome(None, "the time for all experiments had ended")
            say(_step(experiment))
            time.sleep(_POLL_S)
            experiment = client.get(path)
    except KeyboardInterrupt:
        _cancel(client, path)
        raise
    if experiment["state"] != "done":
        return Outcome(None, f"the experiment {experiment['state']}: {experiment['sentence']}")
    return Outcome(experiment)


def _step(experiment: Json) -> str:
    left = experiment["remaining_s"]
    remaining = "" if left is None else f", about {left:.0f} s left"
    return f"{experiment['name']}: {experiment['runs_done']} of {experiment['runs_planned']} runs{remaining}"


def _cancel(client: ApiClient, path: str) -> None:
    """Cancel an experiment and wait until its settings are restored."""
    client.post(f"{path}/cancel")
    end = time.monotonic() + _END_S
    while client.get(path)["state"] in _OPEN and time.monotonic() < end:
        time.sleep(_POLL_S)


def measured(figure: Figure, slug: str, experiment: Json) -> Measured:
    """Return an experiment's value for a published figure."""
    spec, analysis = msgspec.convert(experiment["spec"], Spec), msgspec.convert(experiment["analysis"], Analysis)
    (found,) = published_results(spec, analysis, [published_row(figure, against=figure.against)], unmeasured_by(spec))
    source = f"experiment {slug}, {analysis.counted} runs"
    if analysis.discarded:
        source += f" and {analysis.discarded} discarded"
    reason = _why_not(figure, found)
    if reason:
        return Measured(source=source, reason=reason)
    of_arms = analysis.means.get(figure.metric, [])
    means = [mean for at in found.arms if at < len(of_arms) and (mean := of_arms[at]) is not None]
    value = _estimate(means[0]) if len(means) == 1 else None
    change = None if found.effect is None else _estimate(found.effect)
    if value is None and change is None:
        return Measured(source=source, reason="no run of the experiment has this metric")
    return Measured(source=source, value=value, change=change)


def _why_not(figure: Figure, found: PublishedResult) -> str:
    if found.unmeasured_because is not None:
        return found.unmeasured_because
    if not figure.role:
        return figure.caveat
    return "" if found.arms else f"this machine has no {figure.needs or 'such arm'}"


def _estimate(interval: Interval) -> Estimate:
    return Estimate(interval.value, interval.low, interval.high)
