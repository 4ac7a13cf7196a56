"""A report as JSON: what it says, and all it was made from."""

import msgspec

from coresteer.reports.model import Report

FORMAT = "coresteer-report-1"


def to_json(report: Report) -> bytes:
    """``format``, ``report`` with titles, sentences, tables and figures as data, and what it was made from."""
    told = msgspec.to_builtins(report)
    source = told.pop("source")
    for part in ("columns", "records"):  # which the source says already
        del told[part]
    return msgspec.json.format(msgspec.json.encode({"format": FORMAT, "report": told, **source}), indent=1) + b"\n"
