"""The HTTP API as it is described to clients."""

from tests.golden.store import check

from coresteer import app
from coresteer.config import Config


def test_the_http_api_is_described_as_before() -> None:
    check("openapi", app.openapi(app.create_app(Config())))
