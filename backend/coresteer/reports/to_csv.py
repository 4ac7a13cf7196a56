"""Writes the single values of a report as CSV in long form, safe to open in a spreadsheet."""

import csv
import io

from coresteer.reports.model import Report

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def to_csv(report: Report) -> bytes:
    """Return a report's values as CSV, one row per value; absent values are empty.

    The encoding is UTF-8 with a byte order mark, by which spreadsheets detect it. A text that a spreadsheet would
    interpret as a formula is prefixed with an apostrophe (OWASP, CSV Injection).
    """
    file = io.StringIO(newline="")
    writer = csv.writer(file)
    writer.writerow(report.columns)
    writer.writerows([[_cell(value) for value in row] for row in report.records])
    return file.getvalue().encode("utf-8-sig")


def _cell(value: str | int | float | None) -> str | int | float | None:
    return f"'{value}" if isinstance(value, str) and value.lstrip(" \n").startswith(_FORMULA) else value
