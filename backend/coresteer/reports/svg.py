"""Draws charts of reports as SVG, for HTML and PDF with different colours. Pure: the same chart gives the same text."""

import math
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from functools import singledispatch
from xml.sax.saxutils import escape, quoteattr

from coresteer.localization.language import Language
from coresteer.localization.numbers import axis_scale, percent_sign, unit_text
from coresteer.localization.text import text
from coresteer.reports.model import Bars, Dots, Figure, Heat, Line, Lines, Runs

Palette = Mapping[str, str]
"""Colours by name: text, muted, line, band, better, worse, neutral, unsure, panel, s0 … s7."""

_NAMES = ("text", "muted", "line", "band", "panel", "better", "worse", "neutral", "unsure")
_SERIES = 8
HTML_PALETTE: Palette = {name: f"var(--{name})" for name in (*_NAMES, *(f"s{i}" for i in range(_SERIES)))}
"""The colours of the HTML page, light or dark."""
PDF_PALETTE: Palette = {
    **{"text": "#18212c", "muted": "#566372", "line": "#c3cad3", "band": "#e6e9ed", "panel": "#ffffff"},
    **{"better": "#17805b", "worse": "#bf3b28", "neutral": "#0a74b8", "unsure": "#77838f"},
    **{"s0": "#77838f", "s1": "#0a74b8", "s2": "#c77f14", "s3": "#8a4fc4"},
    **{"s4": "#17805b", "s5": "#bf3b28", "s6": "#3a8f9e", "s7": "#a0527a"},
}

WIDTH = 720.0
_SIZE = 11.0
_FAMILY = "Coresteer Report, Coresteer Hangul, Inter, system-ui, sans-serif"
_RIGHT = 16.0
_MAX_LEGEND = _SERIES
# cividis (Nuñez, Anderton and Renslow 2018) at ninths
_CIVIDIS = (
    *((0, 34, 78), (0, 48, 111), (60, 77, 110), (85, 91, 109), (108, 110, 114)),
    *((132, 129, 121), (158, 149, 119), (188, 175, 111), (221, 203, 93), (255, 234, 70)),
)
_SHADES = 40
_BARS_MOST = 2.5
"""Over how many times the longest bar an axis extends for the sake of intervals: those of two seeds are very wide."""


def draw(figure: Figure, paint: Palette, language: Language) -> str:
    """Return the chart as an svg element with a viewBox. Texts are escaped."""
    body, height = _drawn(figure, paint, language)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_n(WIDTH)} {_n(height)}" role="img" '
        f'aria-label={quoteattr(_clean(figure.title))} font-size="{_n(_SIZE)}" font-family="{_FAMILY}">'
        f"{''.join(body)}</svg>"
    )


@singledispatch
def _drawn(figure: object, paint: Palette, language: Language) -> tuple[list[str], float]:
    """Return the chart's SVG elements and its height."""
    raise TypeError(f"No drawing for {type(figure).__name__}.")


@_drawn.register
def _(figure: Dots, paint: Palette, language: Language) -> tuple[list[str], float]:
    left, text_width, row = 186.0, 206.0, 20.0
    right = WIDTH - text_width
    known = [dot.estimate for dot in figure.rows if dot.estimate] + ([figure.band] if figure.band else [])
    low, high = min([0.0, *(e.low for e in known)]), max([0.0, *(e.high for e in known)])
    low, high = _padded(low, high, 0.02)
    ticks = _ticks(low, high, 6)
    x = _scale(low, high, left, right)
    bottom = 8 + row * len(figure.rows)
    out = []
    if figure.band:
        start, end = x(figure.band.low), x(figure.band.high)
        out.append(_rect(start, 4, max(end - start, 1), bottom - 4, paint["band"]))
    for tick, caption in zip(ticks, _tick_texts([100 * tick for tick in ticks]), strict=True):
        colour = paint["text"] if tick == 0 else paint["line"]
        out.append(_line((x(tick), 4), (x(tick), bottom), colour, 0.8 if tick == 0 else 0.5))
        out.append(_text(x(tick), bottom + 14, caption + percent_sign(language), paint["muted"], "middle"))
    for number, dot in enumerate(figure.rows):
        y = 4 + row * (number + 0.5)
        out.append(_text(left - 10, y + 4, _cut(dot.label, left - 14), paint["text"], "end", full=dot.label))
        out.append(_text(right + 10, y + 4, _cut(dot.text, text_width - 12), paint["muted"], full=dot.text))
        if dot.estimate:
            colour = paint[dot.tone]
            out.append(_line((x(dot.estimate.low), y), (x(dot.estimate.high), y), colour, 2))
            out.append(_circle(x(dot.estimate.value), y, 4, colour))
    out.append(_text((left + right) / 2, bottom + 30, _cut(figure.axis, right - left), paint["muted"], "middle"))
    return out, bottom + 38


@_drawn.register
def _(figure: Runs, paint: Palette, language: Language) -> tuple[list[str], float]:
    legend, top = _legend(figure.series, paint, language, figure.discarded if _any_discarded(figure) else None)
    values = [point.value for point in figure.points] or [0.0]
    last = max([point.at for point in figure.points], default=1)
    out, x, y, bottom = _frame(
        (0, max(last, 1)), _padded(min(values), max(values), 0.06), figure.unit, paint, language, top=top, whole=True
    )
    radius = 3.2 if len(figure.points) <= 150 else 2.0
    for point in figure.points:
        at, level, colour = x(point.at), y(point.value), paint[_colour(point.series, len(figure.series))]
        if point.is_discarded:
            out.append(_line((at - 3, level - 3), (at + 3, level + 3), colour, 1))
            out.append(_line((at - 3, level + 3), (at + 3, level - 3), colour, 1))
        else:
            out.append(_circle(at, level, radius, colour))
    out.append(_text(WIDTH / 2, bottom + 32, figure.axis, paint["muted"], "middle"))
    return legend + out, bottom + 40


@_drawn.register
def _(figure: Lines, paint: Palette, language: Language) -> tuple[list[str], float]:
    legend, top = _legend([line.name for line in figure.lines], paint, language, None)
    points = [point for line in figure.lines for point in line.points]
    xs = [at for at, _ in points] + ([figure.mark[0]] if figure.mark else [])
    low = min((e.low for _, e in points), default=0.0)
    high = max((e.high for _, e in points), default=1.0)
    if 0 < low < 0.6 * high:
        low = 0.0
    out, x, y, bottom = _frame(
        (min(xs, default=0), max(xs, default=1)),
        _padded(low, high, 0.05, keep_zero=True),
        figure.unit,
        paint,
        language,
        top=top,
    )
    if figure.mark:
        at = x(figure.mark[0])
        out.append(_line((at, top), (at, bottom), paint["s3"], 1.2))
        out.append(_text(at + 4, top + 10, figure.mark[1], paint["s3"]))
    for number, line in enumerate(figure.lines):
        out += _one_line(line, paint[_colour(number, len(figure.lines))], x, y)
    out.append(_text(WIDTH / 2, bottom + 32, _cut(figure.x_axis, WIDTH - 80), paint["muted"], "middle"))
    return legend + out, bottom + 40


def _one_line(line: Line, colour: str, x: Callable[[float], float], y: Callable[[float], float]) -> list[str]:
    path = " ".join(f"{_n(x(at))},{_n(y(e.value))}" for at, e in line.points)
    dash = ' stroke-dasharray="5 4"' if line.is_published else ""
    out = [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"{dash}/>']
    is_dense = len(line.points) > 40
    for at, e in line.points:
        if e.low != e.high:
            out.append(_line((x(at), y(e.low)), (x(at), y(e.high)), colour, 1.2))
        if line.is_published:
            out.append(_rect(x(at) - 3, y(e.value) - 3, 6, 6, colour))
        elif not is_dense:
            out.append(_circle(x(at), y(e.value), 3.2, colour))
    return out


@_drawn.register
def _(figure: Heat, paint: Palette, language: Language) -> tuple[list[str], float]:
    left = min(200.0, 16 + max([_width(row) for row in figure.rows], default=0))
    count = max(len(figure.columns), 1)
    cell = min((WIDTH - left - _RIGHT) / count, 90.0)
    row = 20.0 if len(figure.rows) <= 24 else max(6.0, 480 / len(figure.rows))
    has_texts = bool(figure.texts) and row >= 12 and all(_width(t) <= cell - 2 for line in figure.texts for t in line)
    span = figure.high - figure.low or 1.0
    shades: dict[int, list[str]] = {}
    hatched: list[str] = []
    out: list[str] = []
    gap = 1.0 if cell > 6 and row > 6 else 0.0
    for r, values in enumerate(figure.values):
        for c, value in enumerate(values):
            corner = f"M{_n(left + c * cell)} {_n(4 + r * row)}h{_n(cell - gap)}v{_n(row - gap)}h{_n(gap - cell)}z"
            if value is None:
                hatched.append(corner)
            else:
                shade = round(min(max((value - figure.low) / span, 0), 1) * _SHADES)
                shades.setdefault(shade, []).append(corner)
    for shade, cells in sorted(shades.items()):
        out.append(f'<path fill="{_cividis(shade / _SHADES)}" d="{"".join(cells)}"/>')
    if hatched:
        out.append(_hatch(paint) + f'<path fill="url(#hatch)" stroke="none" d="{"".join(hatched)}"/>')
    if has_texts:
        for r, line in enumerate(figure.texts):
            for c, text in enumerate(line):
                value = figure.values[r][c]
                dark = value is not None and (value - figure.low) / span < 0.55
                colour = "#ffffff" if dark else "#18212c" if value is not None else paint["muted"]
                out.append(_text(left + (c + 0.5) * cell - gap / 2, 4 + (r + 0.5) * row + 3.5, text, colour, "middle"))
    every = max(1, math.ceil(11 / row))
    for r in range(0, len(figure.rows), every):
        name = figure.rows[r]
        out.append(_text(left - 8, 4 + (r + 0.5) * row + 4, _cut(name, left - 12), paint["text"], "end", full=name))
    bottom = 4 + row * len(figure.rows)
    widest = max([_width(column) for column in figure.columns], default=0)
    step = _column_step(cell, min(widest, 60.0), count)
    for c in range(0, count, step):
        name = figure.columns[c] if figure.columns else ""
        short = _cut(name, max(cell * step - 4, 18))
        out.append(_text(left + (c + 0.5) * cell, bottom + 13, short, paint["muted"], "middle", full=name))
    out.append(_text(left, bottom + 30, _cut(figure.x_axis, 300), paint["muted"]))
    out += _colour_bar(figure, bottom + 21, paint)
    return out, bottom + 38


@_drawn.register
def _(figure: Bars, paint: Palette, language: Language) -> tuple[list[str], float]:
    out, top = _legend(figure.parts, paint, language, None)
    left, right, row = 150.0, WIDTH - 170.0, 18.0
    ends = [max(sum(bar.parts), bar.interval.high if bar.interval else 0.0) for bar in figure.bars]
    most = min(max(ends, default=0.0), _BARS_MOST * max((sum(bar.parts) for bar in figure.bars), default=0.0))
    ticks, x = _ticks(0.0, most, 6), _scale(0.0, most, left, right)
    bottom = top + row * len(figure.bars)
    for tick, caption in zip(ticks, _tick_texts(ticks), strict=True):
        out.append(_line((x(tick), top), (x(tick), bottom), paint["line"], 0.5))
        out.append(_text(x(tick), bottom + 14, caption, paint["muted"], "middle"))
    for number, bar in enumerate(figure.bars):
        y, start = top + row * (number + 0.5), 0.0
        out.append(_text(left - 10, y + 4, _cut(bar.label, left - 14), paint["text"], "end", full=bar.label))
        out.append(_text(right + 10, y + 4, _cut(bar.text, 158), paint["muted"], full=bar.text))
        for part, value in enumerate(bar.parts):
            colour = paint[_colour(part, len(bar.parts))]
            out.append(_rect(x(start), y - 6, x(start + value) - x(start), 12, colour))
            start += value
        if bar.interval:
            high = x(min(bar.interval.high, most))
            out.append(_line((x(max(bar.interval.low, 0.0)), y), (high, y), paint["text"], 1.5))
            if bar.interval.high > most:  # an arrow: it goes on
                out += [_line((high - 5, y + side), (high, y), paint["text"], 1.5) for side in (-4, 4)]
    out.append(_text((left + right) / 2, bottom + 30, figure.axis, paint["muted"], "middle"))
    return out, bottom + 38


def _column_step(cell: float, widest: float, count: int) -> int:
    """Return the distance of labelled columns: 1, or a power of two that leaves room for the labels."""
    step = 1
    while cell * step < min(widest, 40) + 4 and step < count:
        step *= 2
    return step


def _colour_bar(figure: Heat, top: float, paint: Palette) -> list[str]:
    high_width = _width(figure.scale[1])
    start = WIDTH - _RIGHT - high_width - 6 - 120
    out = [_rect(start + i * 3, top, 3.2, 9, _cividis(i / (_SHADES - 1))) for i in range(_SHADES)]
    out.append(_text(start - 6, top + 9, figure.scale[0], paint["muted"], "end"))
    out.append(_text(start + 126, top + 9, figure.scale[1], paint["muted"]))
    return out


def _hatch(paint: Palette) -> str:
    return (
        '<defs><pattern id="hatch" width="5" height="5" patternUnits="userSpaceOnUse">'
        f'<path d="M0 5L5 0" stroke="{paint["muted"]}" stroke-width="0.8"/></pattern></defs>'
    )


def _any_discarded(figure: Runs) -> bool:
    return any(point.is_discarded for point in figure.points)


def _colour(number: int, count: int) -> str:
    """Return the colour of a series: grey for the baseline, and beyond eight series one colour for all others."""
    if count == 1:
        return "s1"
    return f"s{number}" if count <= _SERIES else f"s{min(number, 1)}"


def _tick_texts(ticks: Sequence[float]) -> list[str]:
    """Format ticks with as many decimals as their distance requires."""
    step = ticks[1] - ticks[0] if len(ticks) > 1 else ticks[0]
    digits = max(0, -math.floor(math.log10(abs(step)) + 1e-9)) if step else 0
    return [f"{tick + 0.0:,.{digits}f}".replace("-", "−") for tick in ticks]


def _legend(names: Sequence[str], paint: Palette, language: Language, crossed: str | None) -> tuple[list[str], float]:
    """Return the legend, none for a single series, and the top of the chart below it."""
    if len(names) == 1 and crossed is None:
        return [], 12.0
    shown = (
        list(names) if len(names) <= _MAX_LEGEND else [names[0], text(language, "legend.others", count=len(names) - 1)]
    )
    out, x, y = [], 60.0, 12.0
    for number, name in enumerate([*shown, *([crossed] if crossed else [])]):
        caption = _cut(name, 260)
        if x + _width(caption) + 30 > WIDTH and x > 60:
            x, y = 60.0, y + 16
        if crossed and number == len(shown):
            out += [
                _line((x - 3, y - 7), (x + 3, y - 1), paint["muted"], 1),
                _line((x - 3, y - 1), (x + 3, y - 7), paint["muted"], 1),
            ]
        else:
            out.append(_circle(x, y - 4, 4, paint[_colour(number, len(names))]))
        out.append(_text(x + 9, y, caption, paint["text"], full=name))
        x += _width(caption) + 30
    return out, y + 12


def _frame(
    across: tuple[float, float],
    along: tuple[float, float],
    unit: str,
    paint: Palette,
    language: Language,
    *,
    top: float,
    whole: bool = False,
) -> tuple[list[str], Callable[[float], float], Callable[[float], float], float]:
    """Return a chart's grid and ticks, the scales of x and y, and the bottom."""
    bottom = top + 190
    factor, printed = axis_scale(max(abs(along[0]), abs(along[1])), unit)
    printed = unit_text(language, printed)
    y = _scale(along[0], along[1], bottom, top + 14)
    left = 60.0
    pad = (across[1] - across[0]) * 0.02 or 1.0
    x = _scale(across[0] - pad, across[1] + pad, left, WIDTH - _RIGHT)
    out = [_text(4, top + 4, printed, paint["muted"])] if printed else []
    levels = _ticks(along[0] / factor, along[1] / factor, 5)
    for tick, caption in zip(levels, _tick_texts(levels), strict=True):
        level = y(tick * factor)
        out.append(_line((left, level), (WIDTH - _RIGHT, level), paint["line"], 0.5))
        out.append(_text(left - 6, level + 4, caption, paint["muted"], "end"))
    marks = _ticks(across[0], across[1], 10)
    for tick, caption in zip(marks, _tick_texts(marks), strict=True):
        if not whole or tick == round(tick):
            out.append(_line((x(tick), bottom), (x(tick), bottom + 4), paint["muted"], 0.8))
            out.append(_text(x(tick), bottom + 16, caption, paint["muted"], "middle"))
    out.append(_line((left, bottom), (WIDTH - _RIGHT, bottom), paint["muted"], 0.8))
    return out, x, y, bottom


def _padded(low: float, high: float, share: float, *, keep_zero: bool = False) -> tuple[float, float]:
    pad = (high - low) * share or abs(high) * 0.05 or 0.5
    return (low if keep_zero and low == 0 else low - pad), high + pad


def _scale(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    span = high - low or 1.0
    return lambda value: start + (value - low) / span * (end - start)


def _ticks(low: float, high: float, count: int) -> list[float]:
    """Return round numbers from low to high for an axis, 1, 2 or 5 times a power of ten apart."""
    if not high > low:
        return [low]
    raw = (high - low) / count
    power = math.floor(math.log10(raw))
    step = next(s for s in (1, 2, 5, 10) if s * 10.0**power >= raw * 0.999)
    digits = max(0, -power)
    size = step * 10.0**power
    first = math.ceil(low / size - 1e-9)
    return [round(n * size, digits) + 0.0 for n in range(first, math.floor(high / size + 1e-9) + 1)]


def _cividis(share: float) -> str:
    position = share * (len(_CIVIDIS) - 1)
    base = min(int(position), len(_CIVIDIS) - 2)
    rest = position - base
    mixed = (round(a + (b - a) * rest) for a, b in zip(_CIVIDIS[base], _CIVIDIS[base + 1], strict=True))
    return "#" + "".join(f"{part:02x}" for part in mixed)


def _width(text: str) -> float:
    """Estimate the width of a text; East Asian characters are twice as wide as Latin ones."""
    return sum(_SIZE if unicodedata.east_asian_width(c) in "WF" else _SIZE * 0.56 for c in text)


def _cut(text: str, width: float) -> str:
    if _width(text) <= width:
        return text
    while text and _width(text + "…") > width:
        text = text[:-1]
    return text.rstrip() + "…"


def _clean(text: str) -> str:
    """Replace characters that XML does not allow."""
    return "".join(c if c >= " " and c not in "\x7f￾￿" else " " for c in text)


def _text(x: float, y: float, text: str, colour: str, anchor: str = "start", *, full: str | None = None) -> str:
    title = f"<title>{escape(_clean(full))}</title>" if full is not None and full != text else ""
    at = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text x="{_n(x)}" y="{_n(y)}" fill="{colour}"{at}>{escape(_clean(text))}{title}</text>'


def _line(start: tuple[float, float], end: tuple[float, float], colour: str, width: float) -> str:
    ends = f'x1="{_n(start[0])}" y1="{_n(start[1])}" x2="{_n(end[0])}" y2="{_n(end[1])}"'
    return f'<line {ends} stroke="{colour}" stroke-width="{_n(width)}"/>'


def _rect(x: float, y: float, width: float, height: float, colour: str) -> str:
    return f'<rect x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" height="{_n(height)}" fill="{colour}"/>'


def _circle(x: float, y: float, radius: float, colour: str) -> str:
    return f'<circle cx="{_n(x)}" cy="{_n(y)}" r="{_n(radius)}" fill="{colour}"/>'


def _n(value: float) -> str:
    """Format a coordinate with at most two decimals; zero has no sign."""
    return f"{round(value, 2) + 0.0:.2f}".rstrip("0").rstrip(".")
