"""Results of a study's cells, and how they depend on the assumed constants: for the command, the API and reports."""

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import fields
from scipy import stats

from coresteer.localization.language import Language
from coresteer.localization.numbers import format_percent
from coresteer.localization.text import text
from coresteer.simulation.parameters import describe_one
from coresteer.simulation.results import Result
from coresteer.simulation.statements import Effect, compare, results_by_cell
from coresteer.simulation.study import Cell, Run, StudySpec, cells_of, variants_of, varied

REORDERED = "+RO"
PARTS = ("compute", "idle", "spin", "switch", "overhead")
"""Of system time: elapsed time × nodes is their sum."""


class SystemTime(Struct, frozen=True):
    """System time by what it was spent on: in node-seconds, or as shares whose sum is 1."""

    compute: float
    idle: float
    spin: float
    switch: float
    overhead: float


class CellSummary(Struct, frozen=True):
    """Means over the seeds of a cell. low_s, high_s: 95 % interval of the response time, None with one seed.

    The interval is one of t on a logarithmic scale: above 0, and of right-skewed times such as these it contains the
    mean more often than the symmetric one.

    times: of system time, in node-seconds. shares: of the same.
    """

    cell: Cell
    seeds: int
    response_s: float
    low_s: float | None
    high_s: float | None
    times: SystemTime
    shares: SystemTime
    switches: float
    messages: float


class Sensitivity(Struct, frozen=True):
    """Effect of reordering on response time with one parameter halved or doubled. scheme: without reordering.

    change, base_change: mean over the cells of the relative change, with this value and with the study's own. holds:
    cells in which its sign is the study's own; of: cells. effects: of every cell, with their intervals.
    """

    parameter: str
    factor: float
    value: float
    scheme: str
    change: float
    base_change: float
    holds: int
    of: int
    effects: list[Effect]


def summarize(spec: StudySpec, runs: Sequence[Run]) -> list[CellSummary]:
    """Return the summary of each cell that has finished runs, in the order of the study's tables."""
    by_cell = results_by_cell(runs)
    return [_summary(cell, list(by_cell[cell].values())) for cell in cells_of(spec) if cell in by_cell]


def _summary(cell: Cell, results: Sequence[Result]) -> CellSummary:
    responses = np.array([each.response_s for each in results])
    mean, low, high = float(responses.mean()), None, None
    if len(results) > 1:
        error = responses.std(ddof=1) / np.sqrt(len(results)) / mean  # of the mean's logarithm
        factor = float(np.exp(stats.t.ppf(0.975, len(results) - 1) * error))
        low, high = mean / factor, mean * factor
    times = {part: float(np.mean([getattr(each, f"{part}_s") for each in results])) for part in PARTS}
    total = sum(times.values())
    return CellSummary(
        cell=cell,
        seeds=len(results),
        response_s=mean,
        low_s=low,
        high_s=high,
        times=SystemTime(**times),
        shares=SystemTime(**{part: time / total for part, time in times.items()}),
        switches=float(np.mean([each.switches for each in results])),
        messages=float(np.mean([each.messages for each in results])),
    )


def sensitivities(spec: StudySpec, runs: Sequence[Run]) -> list[Sensitivity]:
    """Return the effect of reordering under each variant, for each scheme that was simulated with and without it."""
    base = _effects(spec, results_by_cell(runs))
    found = []
    for variant in variants_of(spec):
        changed = _effects(spec, results_by_cell(runs, variant))
        for scheme in dict.fromkeys(cell.scheme for cell in cells_of(spec)):
            cells = [cell for cell in changed if cell.scheme == scheme + REORDERED and cell in base]
            if not cells:
                continue
            effects = [changed[cell] for cell in cells]
            found.append(
                Sensitivity(
                    parameter=variant.parameter,
                    factor=variant.factor,
                    value=float(getattr(varied(spec.parameters, variant), variant.parameter)),
                    scheme=scheme,
                    change=float(np.mean([each.change for each in effects])),
                    base_change=float(np.mean([base[cell].change for cell in cells])),
                    holds=sum((changed[cell].change < 0) == (base[cell].change < 0) for cell in cells),
                    of=len(cells),
                    effects=effects,
                )
            )
    return found


RUN_COLUMNS = [
    "scheme", "pattern", "job_type", "imbalance", "varied", "factor", "seed", *(field.name for field in fields(Result)),
]  # fmt: skip
"""Of a study's CSV file."""


def run_rows(runs: Sequence[Run]) -> list[list[str | int | float | None]]:
    """Return every run for a CSV file, in rows of RUN_COLUMNS."""
    rows: list[list[str | int | float | None]] = []
    for each in sorted(runs, key=lambda run: (run.variant is not None, str(run.variant), str(run.cell), run.seed)):
        cell, variant = each.cell, each.variant
        row: list[str | int | float | None] = [cell.scheme, cell.pattern.value, cell.job_type.value, cell.imbalance]
        row += [variant.parameter, variant.factor] if variant else ["", None]
        rows.append([*row, each.seed, *(getattr(each.result, field.name) for field in fields(Result))])
    return rows


def _effects(spec: StudySpec, by_cell: dict[Cell, dict[int, Result]]) -> dict[Cell, Effect]:
    """Return the effect of reordering on response time in each cell with reordering."""
    effects = {}
    for cell in cells_of(spec):
        plain = Cell(cell.scheme.removesuffix(REORDERED), cell.pattern, cell.job_type, cell.imbalance)
        if cell != plain and by_cell.get(cell, {}).keys() & by_cell.get(plain, {}).keys():
            effects[cell] = compare(cell, plain, "response time", by_cell[cell], by_cell[plain])
    return effects


def sensitivity_sentence(found: Sensitivity, language: Language = "en") -> str:
    """Return whether the sign of reordering's effect holds, in words."""
    parameter = describe_one(found.parameter, found.value, language)
    if found.holds == found.of:
        verdict = text(language, "study.holds")
    else:
        verdict = text(language, f"study.holds_in_{'some' if found.holds else 'none'}", holds=found.holds, of=found.of)
    return text(
        language,
        "study.sensitivity",
        scheme=found.scheme,
        parameter=parameter.label,
        varied=text(language, "study.halved" if found.factor < 1 else "study.doubled", value=parameter.text),
        verdict=verdict,
        change=format_percent(found.change, language),
        base=format_percent(found.base_change, language),
    )
