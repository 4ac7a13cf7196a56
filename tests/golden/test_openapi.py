"""The HTTP API as it is described to clients."""

from tests.golden.store import check

from coresteer import app
from coresteer.config import Config
from coresteer.forms.endpoints import schemas


def test_the_http_api_is_described_as_before() -> None:
    check("openapi", app.openapi(app.create_app(Config())))


def test_the_forms_are_described_as_before() -> None:
    check("form_schemas", schemas().model_dump(), ordered=True)
