"""Group the subjects that a policy skips by reason: one sentence for all, with the range of their figures.

A node has hundreds of interrupts and processes that are skipped. One sentence for each would be most of the cost of a
round and of its message, so reasons are stored as figures until it is known which of them belong together.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias, cast

from msgspec import Struct

from coresteer_core.cpuset import format_cpu_list
from coresteer_core.policies.base import Skipped
from coresteer_core.settings.base import format_cpus

Figure: TypeAlias = float | str | Iterable[int]


class ReasonText(Struct, frozen=True):
    """Template of the sentence why a policy skips one subject (one) or several (many).

    Its places are the figures of a Reason, then its common texts. The place of a figure has a number format, ``rate``
    for bytes per second, or ``cpus`` for CPUs.
    """

    one: str
    many: str


class Reason(Struct, frozen=True, gc=False):
    """Why a policy skips one subject. figures: its own; common: texts that all subjects of a sentence share."""

    text: ReasonText
    figures: tuple[Figure, ...]
    common: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the sentence for this subject alone."""
        return self.text.one.format(*([_Range([figure]) for figure in self.figures]), *self.common)


class _Range:
    """Figures of several subjects in one place of a sentence: one number if they are equal, else minimum to maximum."""

    def __init__(self, figures: Sequence[Figure]) -> None:
        self._figures = figures

    def __format__(self, form: str) -> str:
        if form == "cpus":
            return format_cpus(set().union(*cast(Sequence[Iterable[int]], self._figures)))
        ends = (min(cast(Sequence[float], self._figures)), max(cast(Sequence[float], self._figures)))
        least, most = (format_rate(end) if form == "rate" else format(end, form) for end in ends)
        return least if least == most else f"{least} to {most}"


class SkippedGroups:
    """Collects skipped subjects by reason. name: formats subjects, given as (name, number) pairs, for a sentence."""

    def __init__(self, name: Callable[[list[tuple[str, int]]], str]) -> None:
        self._name = name
        self._found: dict[str | tuple[ReasonText, tuple[str, ...]], list[tuple[str, int, tuple[Figure, ...]]]] = {}

    def add(self, name: str, number: int, why: Reason | str) -> None:
        """Add a skipped subject. Those with the same ReasonText and common texts, or equal text, share a sentence."""
        key, figures = (why, ()) if isinstance(why, str) else ((why.text, why.common), why.figures)
        self._found.setdefault(key, []).append((name, number, figures))

    def skipped(self) -> list[Skipped]:
        """Return one entry for each reason, with all its subjects, in the order in which reasons were first added."""
        return [
            Skipped(self._name([(name, number) for name, number, _ in alike]), self._sentence(key, alike))
            for key, alike in self._found.items()
        ]

    @staticmethod
    def _sentence(
        key: str | tuple[ReasonText, tuple[str, ...]], alike: list[tuple[str, int, tuple[Figure, ...]]]
    ) -> str:
        if isinstance(key, str):
            return key
        text, common = key
        ranges = [_Range(column) for column in zip(*(figures for _, _, figures in alike), strict=True)]
        return (text.one if len(alike) == 1 else text.many).format(*ranges, *common)


def name_tasks(tasks: list[tuple[str, int]]) -> str:
    """Return processes for a sentence: ``nginx (812)``, ``nginx (812-815), redis (77)``."""
    numbers: dict[str, list[int]] = {}
    for name, pid in tasks:
        numbers.setdefault(name, []).append(pid)
    return ", ".join(f"{name} ({format_cpu_list(pids)})" for name, pids in numbers.items())


def format_rate(bytes_per_s: float) -> str:
    """Return a byte rate as text with three digits and a unit from B/s to GB/s."""
    for unit, factor in (("GB/s", 1e9), ("MB/s", 1e6), ("kB/s", 1e3)):
        if bytes_per_s >= factor:
            return f"{bytes_per_s / factor:.3g} {unit}"
    return f"{bytes_per_s:.3g} B/s"
