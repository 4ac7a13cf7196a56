"""Writes a report as Markdown (GitHub's) for tickets. Charts become tables.

Left out are the chart of single runs, and that of effects, which a table next to it has too.
"""

import re
from collections.abc import Sequence

from coresteer.localization.numbers import format_amount, format_estimate, format_number
from coresteer.localization.text import text
from coresteer.reports.model import (
    Bars,
    Block,
    Bullets,
    Code,
    Dots,
    Facts,
    Heat,
    Lines,
    Paragraph,
    Report,
    Runs,
    Table,
)

_SPECIAL = re.compile(r"[\\`*\[\]<>|~&$]|(?<![^\W_])_|_(?![^\W_])")
"""What Markdown, HTML or mathematics interprets; an underscore within a word is none."""
_AT_START = re.compile(r"^(\s*)([+-]|#+|\d+[.)])(?=\s|$)", re.MULTILINE)
_MENTION = "@\N{WORD JOINER}"
"""An @ that mentions nobody."""
_MAX_COLUMNS = 24
"""Of a heat map; a wider one, such as of CPUs, is left out."""


def to_md(report: Report) -> bytes:
    """Return a report as Markdown in UTF-8. All texts are escaped, and mention nobody."""
    parts = [f"# {_escape(report.title)}"]
    if report.mark:
        parts.append(f"> **{_escape(report.mark)}**")
    parts.append(_escape(report.kind))
    parts.append(f"## {text(report.language, 'findings')}")
    parts += [f"**{_escape(each)}**" if place == 0 else _escape(each) for place, each in enumerate(report.findings)]
    parts.append(_named(report.facts))
    for section in report.sections:
        blocks = [written for block in section.blocks if (written := _block(block, report))]
        if blocks:
            parts += [f"## {_escape(section.title)}", *blocks]
    return "\n\n".join(parts).encode() + b"\n"


def _block(block: Block, report: Report) -> str:  # noqa: PLR0911 - one return a kind
    match block:
        case Paragraph(sentence):
            return _escape(sentence)
        case Bullets(title, items):
            return _titled(title, "\n".join(f"- {_escape(item)}" for item in items))
        case Facts(rows):
            return _named(rows)
        case Code(commands):
            fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", commands)), default=0))
            return f"{fence}\n{commands}\n{fence}"
        case Table(title, columns, rows, numeric):
            return _titled(title, _table(columns, rows, numeric))
        case Runs() | Dots():
            return ""
        case _:
            return _figure(block, report)


def _figure(figure: Lines | Heat | Bars, report: Report) -> str:
    language = report.language
    match figure:
        case Lines():
            xs = sorted({x for line in figure.lines for x, _ in line.points})
            by_x = [dict(line.points) for line in figure.lines]
            rows = [[f"{x:g}", *(format_estimate(at.get(x), figure.unit, language) for at in by_x)] for x in xs]
            columns = [figure.x_axis, *(line.name for line in figure.lines)]
            table = _table(columns, rows, range(len(columns)))
        case Heat():
            if len(figure.columns) > _MAX_COLUMNS:
                return ""
            cells = [["–" if value is None else format_number(value) for value in row] for row in figure.values]
            shown = figure.texts or cells
            rows = [[name, *row] for name, row in zip(figure.rows, shown, strict=True)]
            table = _table([figure.x_axis, *figure.columns], rows, range(1, len(figure.columns) + 1))
        case Bars():
            columns = ["", *(figure.parts if len(figure.parts) > 1 else []), figure.axis]
            rows = [
                [bar.label, *(format_amount(part, "", language) for part in bar.parts[: len(columns) - 2]), bar.text]
                for bar in figure.bars
            ]
            table = _table(columns, rows, range(1, len(columns)))
    return _titled(figure.title, table)


def _titled(title: str, body: str) -> str:
    return f"### {_escape(title)}\n\n{body}" if title else body


def _named(rows: Sequence[tuple[str, str]]) -> str:
    return _table(["", ""], [list(row) for row in rows], [])


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[int]) -> str:
    rule = ["--:" if at in numeric else "---" for at in range(len(columns))]
    lines = [_row(columns), _row(rule, escape=False), *map(_row, rows)]
    return "\n".join(lines)


def _row(cells: Sequence[str], *, escape: bool = True) -> str:
    written = [_escape(cell).replace("\n", "<br>") if escape else cell for cell in cells]
    return f"| {' | '.join(written)} |"


def _escape(sentence: str) -> str:
    """Escape what Markdown, HTML, mathematics or a mention would interpret."""
    clean = "".join(c if c >= " " or c == "\n" else " " for c in sentence.replace("@", _MENTION))
    return _AT_START.sub(_escape_start, _SPECIAL.sub(r"\\\g<0>", clean))


def _escape_start(found: re.Match[str]) -> str:
    """Escape what would begin a heading or an item of a list."""
    space, word = found.groups()
    return f"{space}{word[:-1]}\\{word[-1]}"
