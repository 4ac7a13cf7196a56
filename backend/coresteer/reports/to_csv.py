"""Writes the single values of a report as CSV in long form, safe to open in a spreadsheet."""

import csv
import io

from coresteer.localization.text import text
from coresteer.reports.model import Report

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def to_csv(report: Report) -> bytes:
    """Return a report's values as CSV, one row per value, with where it comes from; absent values are empty.

    The encoding is UTF-8 with a byte order mark, by which spreadsheets detect it. A text that a spreadsheet would
    interpret as a formula is prefixed with an apostrophe (OWASP, CSV Injection).
    """
    file = io.StringIO(newline="")
    writer = csv.writer(file)
    origin = text(report.language, f"origin.{report.origin}")
    writer.writerow([*report.columns, text(report.language, "csv.origin")])
    writer.writerows([[*map(_cell, row), origin] for row in report.records])
    return file.getvalue().encode("utf-8-sig")


def _cell(value: str | int | float | None) -> str | int | float | None:
    return f"'{value}" if isinstance(value, str) and value.lstrip(" \n").startswith(_FORMULA) else value
