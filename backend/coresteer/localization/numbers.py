"""Formatting of numbers in reports, the same on every machine."""

import math
from datetime import UTC, datetime
from typing import Protocol

from coresteer.localization.language import Language
from coresteer.localization.text import text

_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_ABSENT = "–"


class Interval(Protocol):
    """An estimate with the ends of its confidence interval."""

    @property
    def value(self) -> float:
        """Return the estimated value."""

    @property
    def low(self) -> float:
        """Return the lower end of the confidence interval."""

    @property
    def high(self) -> float:
        """Return the upper end of the confidence interval."""


def counted(amount: int, noun: str) -> str:
    """Return an English count with its noun: 1 run, 4 runs, 1,000 runs."""
    return f"{amount:,} {noun}{'' if amount == 1 else 's'}"


def format_number(value: float) -> str:
    """Format a number with about three significant digits: 0.0123, 1.23, 12.3, 123, 1,234."""
    size = abs(value)
    if size == 0:
        return "0"
    digits = 0 if size >= 99.95 else 1 if size >= 9.995 else 2 if size >= 0.995 else 2 - math.floor(math.log10(size))
    return _minus(f"{value:,.{min(digits, 9)}f}")


def format_percent(share: float, language: Language, *, signed: bool = True, up: bool = False) -> str:
    """Format a share (0.1 is 10 %) as percent: no decimal from 100 on, two under 0.1, else one.

    up: round away from zero, for bounds.
    """
    value = share * 100
    decimals = 0 if abs(value) >= 100 else 1 if abs(value) >= 0.095 or value == 0 else 2
    scale = 10**decimals
    rounded = (math.ceil(abs(value) * scale - 1e-9) if up else round(abs(value) * scale)) / scale
    sign = "" if rounded == 0 else "−" if value < 0 else "+" if signed else ""
    return f"{sign}{rounded:,.{decimals}f}{percent_sign(language)}"


def percent_sign(language: Language) -> str:
    """Return the percent sign, in English after a space."""
    return "%" if language == "ko" else " %"


def format_amount(value: float | None, unit: str, language: Language) -> str:
    """Format a value with its unit; bits have an SI prefix."""
    if value is None:
        return _ABSENT
    if unit == "bit/s":
        factor, prefix = next(((f, p) for f, p in _PREFIXES if abs(value) >= f), (1.0, ""))
        return f"{format_number(value / factor)} {prefix}bit/s"
    if unit.startswith("%"):
        return format_number(value) + percent_sign(language)
    if unit == "1/s":
        return f"{format_number(value)}/s"
    return f"{format_number(value)} {unit}".rstrip()


def axis_scale(highest: float, unit: str) -> tuple[float, str]:
    """Return the divisor for the values of a chart's axis, and their unit after the division."""
    if unit == "bit/s":
        factor, prefix = next(((f, p) for f, p in _PREFIXES if highest >= f), (1.0, ""))
        return factor, f"{prefix}bit/s"
    return 1.0, unit


def unit_text(language: Language, unit: str) -> str:
    """Return a metric's unit in the language."""
    return text(language, "unit.one_cpu") if unit == "% of one CPU" else unit


def format_estimate(found: Interval | None, unit: str, language: Language) -> str:
    """Format an estimate with its confidence interval and unit."""
    if found is None:
        return _ABSENT
    value = format_amount(found.value, unit, language)
    if found.low == found.high:
        return value
    factor, _ = axis_scale(abs(found.value), unit)
    return f"{value} ({format_range(format_number(found.low / factor), format_number(found.high / factor), language)})"


def format_effect(found: Interval | None, language: Language) -> str:
    """Format a relative effect (0.1 is +10 %) with its confidence interval."""
    if found is None:
        return _ABSENT
    low, high = format_percent(found.low, language), format_percent(found.high, language)
    return f"{format_percent(found.value, language)} ({format_range(low, high, language)})"


def format_range(low: str, high: str, language: Language) -> str:
    """Format a range as “low to high”."""
    return text(language, "between", low=low, high=high)


def format_p_value(p: float | None) -> str:
    """Format a p value."""
    if p is None:
        return _ABSENT
    return "< 0.001" if p < 0.001 else f"{p:.3f}" if p < 0.1 else f"{p:.2f}"


def format_correlation(rho: float | None) -> str:
    """Format a correlation coefficient."""
    return _ABSENT if rho is None else _minus(f"{rho:.2f}")


def format_duration(seconds: float, language: Language) -> str:
    """Format a duration in seconds with its two largest units."""
    whole = round(seconds)
    if whole < 120:
        return text(language, "seconds", s=f"{seconds:.3g}")
    if whole < 7200:
        return text(language, "minutes", m=whole // 60, s=whole % 60)
    return text(language, "hours", h=whole // 3600, m=whole % 3600 // 60)


def format_time(at: datetime | None) -> str:
    """Format a time in UTC, to the second (RFC 3339)."""
    return _ABSENT if at is None else at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _minus(text: str) -> str:
    return text.replace("-", "−")
