"""A report's single figures as CSV in long form, safe to open in a spreadsheet."""

import csv
import io

from coresteer.reports.model import Report

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def to_csv(report: Report) -> bytes:
    """UTF-8 with a mark, for spreadsheets know Korean by it; a row for each figure. Absent is empty.

    A text that a spreadsheet would take for a formula gets an apostrophe before it (OWASP, CSV Injection).
    """
    file = io.StringIO(newline="")
    writer = csv.writer(file)
    writer.writerow(report.columns)
    writer.writerows([[_cell(value) for value in row] for row in report.records])
    return file.getvalue().encode("utf-8-sig")


def _cell(value: str | int | float | None) -> str | int | float | None:
    return f"'{value}" if isinstance(value, str) and value.lstrip(" \n").startswith(_FORMULA) else value
