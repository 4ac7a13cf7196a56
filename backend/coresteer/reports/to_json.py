"""Writes a report as JSON, with the data from which it was made."""

import msgspec

from coresteer.reports.model import Report

FORMAT = "coresteer-report-1"


def to_json(report: Report) -> bytes:
    """Return a report as JSON: ``format``, ``simulated``, ``report`` (sentences, tables, charts) and its ``source``."""
    built = msgspec.to_builtins(report)
    source = built.pop("source")
    for part in ("columns", "records"):  # which the source contains already
        del built[part]
    document = {"format": FORMAT, "simulated": report.origin != "measured", "report": built, **source}
    return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"
