"""What a policy leaves as it is, told briefly: whatever stays for the same reason together, with the range of figures.

A node has hundreds of interrupts and processes that stay. A sentence for each would be most of what a round costs and
of what is told of it, so reasons are kept as figures until it is known which of them go together.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias, cast

from msgspec import Struct

from coresteer_core.policies.base import Skipped
from coresteer_core.settings.base import say_cpus

Figure: TypeAlias = float | str | Iterable[int]


class Why(Struct, frozen=True):
    """The sentence of a reason for one and for several, with places for the figures, then for the common texts.

    A figure's place has a format for numbers, ``rate`` for bytes per second or ``cpus`` for CPUs.
    """

    one: str
    many: str


class Reason(Struct, frozen=True, gc=False):
    """Why one stays. figures: its own; common: texts that are the same for all who are told together."""

    why: Why
    figures: tuple[Figure, ...]
    common: tuple[str, ...] = ()

    def __str__(self) -> str:
        """The sentence for this one."""
        return self.why.one.format(*([_Span([figure]) for figure in self.figures]), *self.common)


class _Span:
    """The figures of several in one place of a sentence: one where they are alike, else from the least to the most."""

    def __init__(self, figures: Sequence[Figure]) -> None:
        self._figures = figures

    def __format__(self, form: str) -> str:
        if form == "cpus":
            return say_cpus(set().union(*cast(Sequence[Iterable[int]], self._figures)))
        ends = (min(cast(Sequence[float], self._figures)), max(cast(Sequence[float], self._figures)))
        least, most = (rate(end) if form == "rate" else format(end, form) for end in ends)
        return least if least == most else f"{least} to {most}"


class Staying:
    """Collects what stays. name: of one or several subjects, each given as its name and its number."""

    def __init__(self, name: Callable[[list[tuple[str, int]]], str]) -> None:
        self._name = name
        self._found: dict[str | tuple[Why, tuple[str, ...]], list[tuple[str, int, tuple[Figure, ...]]]] = {}

    def add(self, name: str, number: int, why: Reason | str) -> None:
        """One more that stays. A reason that is a text is told together with those that are the same."""
        key, figures = (why, ()) if isinstance(why, str) else ((why.why, why.common), why.figures)
        self._found.setdefault(key, []).append((name, number, figures))

    def told(self) -> list[Skipped]:
        """All of it, in the order of the first for each reason."""
        return [
            Skipped(self._name([(name, number) for name, number, _ in alike]), self._sentence(key, alike))
            for key, alike in self._found.items()
        ]

    @staticmethod
    def _sentence(key: str | tuple[Why, tuple[str, ...]], alike: list[tuple[str, int, tuple[Figure, ...]]]) -> str:
        if isinstance(key, str):
            return key
        why, common = key
        spans = [_Span(column) for column in zip(*(figures for _, _, figures in alike), strict=True)]
        return (why.one if len(alike) == 1 else why.many).format(*spans, *common)


def rate(bytes_per_s: float) -> str:
    """With a unit that keeps the number short."""
    for unit, factor in (("GB/s", 1e9), ("MB/s", 1e6), ("kB/s", 1e3)):
        if bytes_per_s >= factor:
            return f"{bytes_per_s / factor:.3g} {unit}"
    return f"{bytes_per_s:.3g} B/s"
