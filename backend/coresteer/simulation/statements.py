"""The statements of the PROC paper about its figures 4 and 5, and whether a study reproduces them.

An effect is the relative change of a metric's mean, with a 95 % bootstrap interval over the seeds, in pairs. A
statement is reproduced where the interval has its sign in every cell that it is about, each with enough seeds.
"""

from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from coresteer.localization.language import Language
from coresteer.localization.numbers import format_percent
from coresteer.localization.text import text
from coresteer.papers import figure
from coresteer.simulation.results import Result
from coresteer.simulation.study import Cell, Run, StudySpec, Variant, cells_of

VERDICT_SEEDS = 10
"""Seeds that every cell of a statement needs for a verdict: the study's acceptance, fixed before it was first run.

The bootstrap's interval of a few seeds is too narrow: of two it has a sign whenever both agree, half of all cases by
chance.
"""
RESAMPLES = 2000
METRICS: dict[str, Callable[[Result], float]] = {
    "response time": lambda result: result.response_s,
    "idle time": lambda result: result.idle_s,
    "spin time": lambda result: result.spin_s,
    "overhead and context switches": lambda result: result.overhead_s + result.switch_s,
}


class Effect(Struct, frozen=True):
    """Relative change of a metric's mean from one cell to another, −0.2 is 20 % less. low, high: 95 % interval."""

    cell: Cell
    against: Cell
    metric: str
    change: float
    low: float
    high: float


class Statement(Struct, frozen=True):
    """What the paper states. change: the largest that it reports, None without a number. reduces: its sign.

    text_ko: in Korean.
    """

    text: str
    text_ko: str
    metric: str
    schemes: tuple[str, ...]
    reduces: bool
    change: float | None = None
    by_imbalance: bool = False


class Verdict(Struct, frozen=True):
    """A statement next to a study. holds: cells whose interval has its sign; of: cells that it is about.

    seeds: the smallest number of seeds of its cells. is_reproduced: None without a cell, or with too few seeds.
    best: the largest change in its direction. effects: of every cell that has seeds.
    """

    statement: Statement
    sentence: str
    seeds: int
    is_reproduced: bool | None
    holds: int
    of: int
    best: float | None
    effects: list[Effect]


_REORDERED, _ALL = ("SB+RO", "PB+RO"), ("SB", "SB+RO", "PB", "PB+RO")


def _stated(figure_id: str, metric: str, schemes: tuple[str, ...], *, by_imbalance: bool = False) -> Statement:
    """Return a figure of docs/papers.toml as a statement about these schemes."""
    stated = figure(figure_id)
    return Statement(
        stated.text, stated.text_ko, metric, schemes, stated.direction == "lower", stated.change, by_imbalance
    )


STATEMENTS = (
    _stated("fig4-response", "response time", _REORDERED),
    _stated("fig4-idle", "idle time", ("SB+RO",)),
    _stated("fig4-spin", "spin time", ("PB+RO",)),
    _stated("fig4-overhead", "overhead and context switches", _REORDERED),
    _stated("fig5-imbalance", "response time", _ALL, by_imbalance=True),
)
"""Figures 4 and 5. The reductions at v = 1.5 are printed as “??%” in the paper."""
_IMBALANCE, _HIGHER_IMBALANCE = 0.5, 1.5
"""v of figure 4, and the other one of figure 5."""


def judge(spec: StudySpec, runs: Sequence[Run]) -> list[Verdict]:
    """Return the verdict on each statement. runs: those that are done, all unless the study was cancelled or failed."""
    by_cell: dict[Cell, dict[int, Result]] = {cell: {} for cell in cells_of(spec)} | results_by_cell(runs)
    return [_verdict(statement, by_cell) for statement in STATEMENTS]


def results_by_cell(runs: Sequence[Run], variant: Variant | None = None) -> dict[Cell, dict[int, Result]]:
    """Return the results by seed of each cell, with the study's own parameters or a variant of them."""
    by_cell: dict[Cell, dict[int, Result]] = {}
    for each in runs:
        if each.variant == variant:
            by_cell.setdefault(each.cell, {})[each.seed] = each.result
    return by_cell


def _against(statement: Statement, cell: Cell) -> Cell | None:
    """Return the cell that a statement compares a cell with, None if it is not about it."""
    if cell.scheme not in statement.schemes:
        return None
    if cell.imbalance != (_HIGHER_IMBALANCE if statement.by_imbalance else _IMBALANCE):
        return None
    scheme = cell.scheme if statement.by_imbalance else cell.scheme.removesuffix("+RO")
    return Cell(scheme, cell.pattern, cell.job_type, _IMBALANCE)


def _verdict(statement: Statement, by_cell: dict[Cell, dict[int, Result]]) -> Verdict:
    pairs = [(cell, other) for cell in by_cell if (other := _against(statement, cell)) and other in by_cell]
    seeds = [len(by_cell[cell].keys() & by_cell[other].keys()) for cell, other in pairs]
    effects = [
        compare(cell, other, statement.metric, by_cell[cell], by_cell[other])
        for (cell, other), common in zip(pairs, seeds, strict=True)
        if common
    ]
    signed = [(each.high < 0) if statement.reduces else (each.low > 0) for each in effects]
    changes = [each.change for each in effects]
    best = (min if statement.reduces else max)(changes, default=None)
    holds, of, fewest = sum(signed), len(seeds), min(seeds, default=0)
    is_reproduced = holds == of if fewest >= VERDICT_SEEDS else None
    verdict = Verdict(statement, "", fewest, is_reproduced, holds, of, best, effects)
    return replace(verdict, sentence=verdict_sentence(verdict))


def compare(cell: Cell, against: Cell, metric: str, results: dict[int, Result], others: dict[int, Result]) -> Effect:
    """Return the effect between two cells over the seeds that both have."""
    seeds = sorted(results.keys() & others.keys())
    value = METRICS[metric]
    after = np.array([value(results[seed]) for seed in seeds])
    before = np.array([value(others[seed]) for seed in seeds])
    picks = np.random.default_rng(0).integers(0, len(seeds), (RESAMPLES, len(seeds)))
    changes = after[picks].mean(axis=1) / np.maximum(before[picks].mean(axis=1), 1e-12) - 1.0
    low, high = np.percentile(changes, [2.5, 97.5])
    change = float(after.mean() / max(before.mean(), 1e-12) - 1.0)
    return Effect(cell, against, metric, change, float(low), float(high))


def verdict_sentence(found: Verdict, language: Language = "en") -> str:
    """Return a verdict in words."""
    if not found.of:
        return text(language, "study.verdict.not_examined")
    if found.is_reproduced is None:
        return text(language, "study.verdict.not_judged", seeds=found.seeds, least=VERDICT_SEEDS)
    if found.is_reproduced:
        return text(language, "study.verdict.in_all" if found.of > 1 else "study.verdict.in_only", of=found.of)
    return text(language, f"study.verdict.in_{'some' if found.holds else 'none'}", holds=found.holds, of=found.of)


def verdict_line(found: Verdict, language: Language = "en") -> str:
    """Return a verdict in words, with the largest change next to the paper's."""
    sentences = [verdict_sentence(found, language)]
    for key, change in (("largest", found.best), ("published", found.statement.change)):
        if found.best is not None and change is not None:
            sentences.append(text(language, f"study.verdict.{key}", change=format_percent(change, language)))
    return " ".join(sentences)
