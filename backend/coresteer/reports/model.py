"""Model of a report: HTML and PDF render it in the same order, JSON contains it unchanged."""

from typing import Literal, TypeAlias

from msgspec import Struct

from coresteer.experiments.findings import Tone
from coresteer.experiments.spec import Interval
from coresteer.localization.language import Language
from coresteer.localization.text import text


class Paragraph(Struct, frozen=True, tag="paragraph"):
    """Block of a report: one or more sentences."""

    text: str


class Bullets(Struct, frozen=True, tag="bullets"):
    """Block of a report: a list of sentences under a title."""

    title: str
    items: list[str]


class Facts(Struct, frozen=True, tag="facts"):
    """Block of a report: names with their values."""

    rows: list[tuple[str, str]]


class Code(Struct, frozen=True, tag="code"):
    """Block of a report: shell commands."""

    text: str


class Table(Struct, frozen=True, tag="table"):
    """Block of a report: a table of texts. title: empty where the section's is sufficient.

    numeric: the right-aligned columns.
    """

    title: str
    columns: list[str]
    rows: list[list[str]]
    numeric: list[int] = []


class Dot(Struct, frozen=True):
    """One estimate of a Dots chart. text: with its interval, as printed. estimate: None where there is none to draw."""

    label: str
    text: str
    estimate: Interval | None
    tone: Tone


class Dots(Struct, frozen=True, tag="dots"):
    """Chart of relative effects (0.1 is 10 % more), each a dot with its interval.

    band: the node's own variation (A/A).
    """

    title: str
    note: str
    rows: list[Dot]
    axis: str
    band: Interval | None


class RunPoint(Struct, frozen=True):
    """One run of a Runs chart. series: index of the series. at: its position in time, from 1."""

    at: int
    value: float
    series: int
    is_discarded: bool


class Runs(Struct, frozen=True, tag="runs"):
    """Chart of every run in chronological order. unit: of the values, as in METRICS of coresteer_core."""

    title: str
    note: str
    series: list[str]
    points: list[RunPoint]
    unit: str
    axis: str
    discarded: str


class Line(Struct, frozen=True):
    """One line of a Lines chart. points: x, and the value with its interval (of no width where there is none)."""

    name: str
    points: list[tuple[float, Interval]]
    is_published: bool = False


class Lines(Struct, frozen=True, tag="lines"):
    """Chart of values over a numeric axis. mark: an x to draw a vertical line at, with its caption."""

    title: str
    note: str
    lines: list[Line]
    x_axis: str
    unit: str
    mark: tuple[float, str] | None = None


class Heat(Struct, frozen=True, tag="heat"):
    """Heat map of rows × columns from low to high, None where unknown. texts: to print in the cells where they fit."""

    title: str
    note: str
    rows: list[str]
    columns: list[str]
    x_axis: str
    values: list[list[float | None]]
    texts: list[list[str]]
    low: float
    high: float
    scale: tuple[str, str]


class Bar(Struct, frozen=True):
    """One bar of a Bars chart. parts: one value for each part. interval: of their sum. text: printed at its end."""

    label: str
    parts: list[float]
    text: str
    interval: Interval | None = None


class Bars(Struct, frozen=True, tag="bars"):
    """Chart of horizontal bars from zero, stacked where there are several parts. parts: their names."""

    title: str
    note: str
    parts: list[str]
    bars: list[Bar]
    axis: str


Figure: TypeAlias = Dots | Runs | Lines | Heat | Bars
Block: TypeAlias = Paragraph | Bullets | Facts | Code | Table | Figure
Origin: TypeAlias = Literal["measured", "simulated-node", "emulated-machine", "simulation"]
"""Where the values of a report come from; every page of a report that is not measured says so."""


class Section(Struct, frozen=True):
    """A section of a report: a heading and its blocks."""

    title: str
    blocks: list[Block]


class Report(Struct, frozen=True, kw_only=True):
    """A report in one language. slug: for file names. origin: where its values come from.

    findings: results in sentences that follow from the intervals. facts: place, time and size. records: every single
    value, a row each, under the names of columns, for CSV. source: the data from which it was made, as JSON values.
    """

    slug: str
    language: Language
    origin: Origin
    title: str
    kind: str
    findings: list[str]
    facts: list[tuple[str, str]]
    sections: list[Section]
    columns: list[str]
    records: list[list[str | int | float | None]]
    source: dict[str, object]

    @property
    def mark(self) -> str:
        """Return the sentence on every page that says that nothing was measured; empty for a measured report."""
        return "" if self.origin == "measured" else text(self.language, f"mark.{self.origin}")
