"""Writes the single values of a report as CSV in long form, safe to open in a spreadsheet."""

import codecs

from coresteer.localization.text import text
from coresteer.reports.model import Report
from coresteer.spreadsheet import csv_lines


def to_csv(report: Report) -> bytes:
    """Return a report's values as CSV, one row per value, with where it comes from; absent values are empty.

    The encoding is UTF-8 with a byte order mark, by which spreadsheets detect it.
    """
    origin = text(report.language, f"origin.{report.origin}")
    header = [*report.columns, text(report.language, "csv.origin")]
    return codecs.BOM_UTF8 + csv_lines([header, *([*row, origin] for row in report.records)])
