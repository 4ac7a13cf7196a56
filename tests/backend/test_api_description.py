"""The API's description and the page that shows it."""

from pathlib import Path

from tests.backend.conftest import running_backend

from coresteer.app import create_app, openapi
from coresteer.config import Config


async def test_the_page_of_the_api_and_its_description_have_no_weaker_policy(
    own_database_url: str, tmp_path: Path
) -> None:
    (tmp_path / "index.html").write_text("the pages")
    (tmp_path / "docs.html").write_text("the API")
    async with running_backend(own_database_url, frontend_dir=tmp_path) as backend:
        nobody = backend.anonymous()
        page, docs, described = [await nobody.get(path) for path in ("/", "/docs", "/api/v1/openapi.json")]
    assert (page.text, docs.text) == ("the pages", "the API")
    policy = page.headers["content-security-policy"]
    assert "'unsafe-eval'" not in policy
    assert {each.headers["content-security-policy"] for each in (docs, described)} == {policy}
    assert described.json() == openapi(create_app(Config()))


def test_each_operation_has_a_tag_an_id_and_a_description() -> None:
    document = openapi(create_app(Config()))
    assert set(document["components"]["securitySchemes"]) == {"token", "session"}
    for path, methods in document["paths"].items():
        for each in methods.values():
            assert each["tags"] == [path.removeprefix("/api/v1").split("/")[1]]
            assert each["operationId"]
            assert each["description"]
