"""Handover of a confirmed change: files of other tools, with the evidence in their comments."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from uuid import UUID

from coresteer.changes.observation import Observation, ObservedFigure
from coresteer.changes.schemas import Change, ChangeStatus
from coresteer.changes.service import get_change
from coresteer.db import Database
from coresteer.errors import Conflict
from coresteer.localization.numbers import format_number
from coresteer_core.changes.handover import export
from coresteer_core.changes.handover_formats import FormatName
from coresteer_core.metrics import METRICS

_MOST_FIGURES = 12


async def handover(database: Database, change_id: UUID, format_name: FormatName, url: str) -> tuple[str, str]:
    """Return name and text of a change's files, one after the other, each beginning with its path.

    url: of the backend, for links in comments. Raises NotFound, and Conflict for a change that is not confirmed.
    """
    change = await get_change(database, change_id)
    if change.status is not ChangeStatus.CONFIRMED:
        status = change.status.replace("_", " ")
        raise Conflict(f"Only a confirmed change can be handed over; this one is {status}.")
    done = {result.key: result.done for result in change.results}
    values = {action.key: action.becomes for action in change.plan.actions if done.get(action.key, True)}
    return as_text(format_name, values, f"coresteer-{change.id[:8]}", list(evidence(change, url)))


def as_text(format_name: FormatName, values: Mapping[str, str], name: str, evidence: Sequence[str]) -> tuple[str, str]:
    """Return name and text of the files of coresteer_core's export, one after the other."""
    files = export(format_name, values, name, evidence)
    return PurePosixPath(files[0].path or f"{name}.txt").name, "\n".join(file.text for file in files)


def evidence(change: Change, url: str) -> Iterator[str]:
    """Yield lines that say who made a change where and when, and what was observed."""
    confirmed = "" if change.ended_at is None else f", confirmed {change.ended_at:%Y-%m-%d %H:%M} UTC"
    yield f"Change {change.id} of {change.node_name} by {change.created_by}{confirmed}: {change.sentence}"
    yield f"{url}/changes?change={change.id}"
    if change.reason:
        yield f"Reason: {change.reason}"
    if change.policy_id is not None:
        yield f"Evidence on the effect of its policy: {url}/policies/{change.policy_id}"
    for key in (result.key for result in change.results if not result.done):
        yield f"Not part of it, because the node did not get this value: {key}"
    if change.observation is None:
        yield "Figures before and after it are not on record."
    else:
        yield from _observed(change.observation)


def _observed(observation: Observation) -> Iterator[str]:
    """Yield the figures of the node, and others that moved."""
    if observation.missing:
        yield observation.missing
    if not observation.figures:
        return
    yield f"Means of the {observation.before_s:.0f} s before and the {observation.after_s:.0f} s after it. No proof:"
    if observation.other_changes:
        yield f"  {observation.other_changes} other changes were applied in the same minutes."
    known = [one for one in observation.figures if one.subject == "" or one.has_moved]
    yield from map(_figure, known[:_MOST_FIGURES])


def _figure(figure: ObservedFigure) -> str:
    metric = METRICS[figure.metric]
    of = f" of {figure.subject.replace(':', ' ')}" if figure.subject else ""
    before, after = ("unknown" if value is None else format_number(value) for value in (figure.before, figure.after))
    usual = ""
    if figure.usual_least is not None and figure.usual_most is not None:
        usual = f" (usual difference: {format_number(figure.usual_least)} to {format_number(figure.usual_most)})"
    return f"  {metric.label}{of}: {before} → {after} {metric.unit}{usual}"
