"""Whether a machine's own figures reproduce the published ones. Pure.

The rules are fixed here, before any measurement:

- A change is in the published direction if its 95 % interval is; of a study, if the interval is in every cell.
- It is reproduced if it is also as large: the printed number is in the interval, which is no wider than the number, or
  within a fifth of the estimate.
  “At least” is reproduced by every larger change. Where the paper prints no number, the direction is the statement.
- Where a model's size of a change depends on an arbitrary assumption, only its direction is judged.
- “Unchanged” is reproduced if the whole interval is within ± 5 %.
- A value without a change is reproduced if it is within a fifth of the printed number, or if its interval contains that
  number and is no wider than it.
"""

from enum import StrEnum

from msgspec import Struct

from coresteer.papers import Figure, published_change

TOLERANCE = 0.2
"""Relative to the published number."""
WIDEST = 1.0
"""Width of an interval that shows that a number is met, relative to the number: a wider one contains many others."""
UNCHANGED = 0.05


class Verdict(StrEnum):
    """Whether a figure is reproduced. NOT_REPORTED: the paper has no number and no statement to compare with."""

    REPRODUCED = "reproduced"
    DIRECTION = "direction only"
    NOT_REPRODUCED = "not reproduced"
    IMPOSSIBLE = "not possible here"
    NOT_REPORTED = "not reported"


class Estimate(Struct, frozen=True):
    """An estimate with its 95 % interval; a model's has none, so low and high are equal to the value."""

    value: float
    low: float
    high: float


class Measured(Struct, frozen=True, kw_only=True):
    """This machine's figure. value: in the metric's unit; change: relative to the figure's baseline.

    simulated: by a model, not measured. size_assumed: the size of the change depends on an arbitrary assumption.
    cells: in how many of a study's cells the direction holds, and of how many.
    reason: why there is neither value nor change. note: what to know about it.
    """

    source: str
    simulated: bool = False
    size_assumed: bool = False
    value: Estimate | None = None
    change: Estimate | None = None
    cells: tuple[int, int] | None = None
    reason: str = ""
    note: str = ""


class Row(Struct, frozen=True):
    """A published figure, this machine's, and the verdict."""

    figure: Figure
    measured: Measured
    verdict: Verdict


def judge(figure: Figure, measured: Measured) -> Row:
    """Return the verdict on a figure."""
    return Row(figure, measured, _verdict(figure, measured))


def _verdict(figure: Figure, measured: Measured) -> Verdict:
    change = published_change(figure)
    is_relative = change is not None or bool(figure.direction)
    if (measured.change if is_relative else measured.value) is None:
        return Verdict.IMPOSSIBLE
    if measured.change is not None and figure.direction == "unchanged":
        within = measured.change.low >= -UNCHANGED and measured.change.high <= UNCHANGED
        return Verdict.REPRODUCED if within else Verdict.NOT_REPRODUCED
    if measured.change is not None and is_relative:
        verdict = _of_change(figure, change, measured.change, measured.cells)
        return Verdict.DIRECTION if verdict is Verdict.REPRODUCED and measured.size_assumed else verdict
    if measured.value is None or figure.value is None:
        return Verdict.NOT_REPORTED
    if figure.bound == "at most" and measured.value.high <= figure.value:
        return Verdict.REPRODUCED
    return Verdict.REPRODUCED if _is_near(measured.value, figure.value) else Verdict.NOT_REPRODUCED


def _of_change(figure: Figure, published: float | None, ours: Estimate, cells: tuple[int, int] | None) -> Verdict:
    rises = figure.direction == "higher" if published is None else published > 0
    has_direction = ours.low > 0 if rises else ours.high < 0
    if not has_direction or (cells is not None and cells[0] < cells[1]):
        return Verdict.NOT_REPRODUCED
    if published is None or _is_near(ours, published):
        return Verdict.REPRODUCED
    if figure.bound == "at least" and abs(ours.value) >= abs(published):
        return Verdict.REPRODUCED
    return Verdict.DIRECTION


def _is_near(ours: Estimate, published: float) -> bool:
    contained = ours.low <= published <= ours.high and ours.high - ours.low <= WIDEST * abs(published)
    return contained or abs(ours.value / published - 1) <= TOLERANCE
