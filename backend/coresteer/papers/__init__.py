"""The figures that the five papers published, declared once in docs/papers.toml. Pure.

papers.toml next to this module is a link to that file, so that an installed package contains it.
"""

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

Direction: TypeAlias = Literal["higher", "lower", "unchanged", ""]
Bound: TypeAlias = Literal["at most", "at least", ""]
Model: TypeAlias = Literal["study", "nic", ""]


class Figure(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A published figure; the head of docs/papers.toml describes the fields. value, change: None if none is printed."""

    id: str
    figure: str
    text: str
    metric: str
    system: str = ""
    figure_ko: str = ""
    text_ko: str = ""
    value: float | None = None
    change: float | None = None
    bound: Bound = ""
    direction: Direction = ""
    role: str = ""
    against: str = ""
    templates: tuple[str, ...] = ()
    model: Model = ""
    needs: str = ""
    caveat: str = ""


class System(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A paper: its citation and the authors' machine, each in English and Korean, and its figures."""

    citation: str
    citation_ko: str
    machine: str
    machine_ko: str
    figures: tuple[Figure, ...]


@cache
def papers() -> Mapping[str, System]:
    """Return the papers by system, in the order of the file."""
    text = Path(__file__).with_name("papers.toml").read_text(encoding="utf-8")
    found = msgspec.convert(tomllib.loads(text), dict[str, System])
    return MappingProxyType(
        {
            name: replace(paper, figures=tuple(replace(figure, system=name) for figure in paper.figures))
            for name, paper in found.items()
        }
    )


def figures() -> list[Figure]:
    """Return the figures of all papers, in the order of the file."""
    return [figure for paper in papers().values() for figure in paper.figures]


def figure(figure_id: str) -> Figure:
    """Return the figure with this id. Raises KeyError."""
    return _by_id()[figure_id]


@cache
def _by_id() -> dict[str, Figure]:
    return {figure.id: figure for figure in figures()}


def published_change(figure: Figure) -> float | None:
    """Return the published change of a figure, also where both of its values are printed; None without one."""
    if figure.change is not None or figure.value is None or not figure.against:
        return figure.change
    same = [
        other.value
        for other in papers()[figure.system].figures
        if other.role == figure.against and other.metric == figure.metric and other.value
    ]
    return figure.value / same[0] - 1 if same else None
