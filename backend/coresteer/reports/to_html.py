"""Writes a report as one HTML page without external resources, for light, dark and print."""

from base64 import b64encode
from functools import cache, partial
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from coresteer.localization.language import Language
from coresteer.localization.text import text
from coresteer.reports.model import Figure, Report
from coresteer.reports.svg import HTML_PALETTE, draw

_environment = Environment(
    loader=PackageLoader("coresteer.reports", "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_template = _environment.get_template("report.html.jinja")


def to_html(report: Report) -> bytes:
    """Return a report as an HTML page in UTF-8. All texts are escaped."""
    page = _template.render(
        report=report,
        text=partial(text, report.language),
        tag=lambda block: block.__struct_config__.tag,
        draw=partial(_draw, report.language),
        hangul=_hangul() if report.language == "ko" else "",
    )
    return page.encode()


def _draw(language: Language, figure: Figure) -> Markup:
    return Markup(draw(figure, HTML_PALETTE, language))  # noqa: S704  draw escapes every text itself


@cache
def _hangul() -> str:
    """Return the Korean font, which a system may lack, in base64."""
    return b64encode((Path(__file__).parent / "fonts" / "CoresteerReport-Hangul.woff2").read_bytes()).decode()
