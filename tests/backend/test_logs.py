"""Logs of the backend: lines for people, or JSON with what a log search filters by."""

import json
import logging
import re
from collections.abc import Iterator

import pytest
from structlog.contextvars import bound_contextvars
from tests.backend.conftest import Backend

from coresteer.logs import set_up_logs

log = logging.getLogger("coresteer.test")


@pytest.fixture(autouse=True)
def kept_handlers() -> Iterator[None]:
    """The handlers of pytest are put back."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers.clear()
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def fail() -> None:
    try:
        raise ValueError("broken")
    except ValueError:
        log.exception("It %s.", "failed")


def test_an_entry_in_json_has_what_is_searched_for(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logs("json")
    with bound_contextvars(node="web-1"):
        log.warning("The clock differs by %d s.", 9)
    fail()
    first, second = map(json.loads, capsys.readouterr().err.splitlines())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z", first.pop("time"))
    about = {"level": "warning", "logger": "coresteer.test", "message": "The clock differs by 9 s.", "node": "web-1"}
    assert first == about
    assert second["message"] == "It failed."
    assert "ValueError: broken" in second["exception"]
    assert "node" not in second


def test_an_entry_for_people_is_a_line_with_its_traceback_below(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logs("text")
    with bound_contextvars(request="7f"):
        fail()
    first, *rest = capsys.readouterr().err.splitlines()
    assert first == "ERROR It failed."
    assert rest[0] == "Traceback (most recent call last):"
    assert rest[-1] == "ValueError: broken"


@pytest.mark.parametrize(("given", "kept"), [("from-a-proxy.1", True), ("two words", False), ("x" * 65, False)])
async def test_a_request_has_an_id_and_keeps_that_of_a_proxy(backend: Backend, given: str, kept: bool) -> None:
    answer = await backend.anonymous().get("/livez", headers={"X-Request-ID": given})
    assert (answer.headers["x-request-id"] == given) == kept
    assert re.fullmatch(r"[0-9a-f]{32}|from-a-proxy\.1", answer.headers["x-request-id"])
