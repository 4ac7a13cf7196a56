"""Writes a report as PDF, set by typst.

It uses the fonts of this package only, so that every machine makes the same bytes.
"""

from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from coresteer.extras import PDF
from coresteer.localization.text import text
from coresteer.reports.model import Bars, Dots, Heat, Lines, Report, Runs
from coresteer.reports.svg import PDF_PALETTE, draw

if TYPE_CHECKING:
    import typst

_FOLDER = Path(__file__).parent
_NO_TIME = datetime(2000, 1, 1, tzinfo=UTC)
"""Creation time in the PDF: constant, so that the same report gives the same bytes."""


@cache
def _fonts() -> "typst.Fonts":
    import typst  # noqa: PLC0415 - an extra

    return typst.Fonts(include_system_fonts=False, include_embedded_fonts=False, font_paths=[_FOLDER / "fonts"])


def to_pdf(report: Report) -> bytes:
    """Return a report as PDF/UA-1. Texts are passed to typst as data, never as its markup. Raises MissingExtraError."""
    PDF.require()
    import typst  # noqa: PLC0415 - an extra

    data = {
        "language": report.language,
        "mark": report.mark,
        "title": report.title,
        "kind": report.kind,
        "heading": text(report.language, "findings"),
        "page": text(report.language, "page"),
        "findings": report.findings,
        "facts": report.facts,
        "sections": [
            {"title": section.title, "blocks": [_block(block, report) for block in section.blocks]}
            for section in report.sections
        ],
    }
    compiler = typst.Compiler(
        input=(_FOLDER / "templates" / "report.typ").read_bytes(),
        font_paths=_fonts(),
        sys_inputs={"report": msgspec.json.encode(data).decode()},
    )
    output = compiler.compile(format="pdf", timestamp=_NO_TIME, pdf_standards="ua-1")
    assert isinstance(output, bytes)  # noqa: S101  typst returns a list for images only
    return output


def _block(block: object, report: Report) -> dict[str, object]:
    if isinstance(block, Dots | Runs | Lines | Heat | Bars):
        picture = draw(block, PDF_PALETTE, report.language)
        return {"type": "figure", "title": block.title, "note": block.note, "svg": picture}
    built: dict[str, object] = msgspec.to_builtins(block)
    return built
