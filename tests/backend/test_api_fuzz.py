"""Requests made from the API's own description, valid and not: none may make the backend fail."""

import asyncio
import contextlib
from collections import Counter
from typing import Any, TypeAlias

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.core.result import Ok
from tests.backend.conftest import Backend
from tests.support.polling import PATIENCE_S

from coresteer.app import openapi
from coresteer.auth.secrets import SESSION_COOKIE

EXAMPLES = 8
Operation: TypeAlias = schemathesis.schemas.APIOperation[Any, Any, Any, Any]  # Any: what kind of schema it came from


def check(answer: schemathesis.Response) -> None:
    """No 500; a refusal is a problem document. An absent or silent agent or a full login limit may be told."""
    if answer.status_code >= 500:
        assert answer.json()["type"] in {"urn:coresteer:node-away", "urn:coresteer:no-answer"}, answer.text
    if answer.status_code >= 400:
        assert answer.headers["content-type"] == ["application/problem+json"]
        problem = answer.json()
        assert problem["status"] == answer.status_code
        assert problem["detail"]


def fuzz(url: str, operation: Operation, headers: dict[str, str], codes: Counter[int]) -> None:
    for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):

        @given(case=operation.as_strategy(generation_mode=mode))
        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        )
        def one(case: schemathesis.Case[Any]) -> None:
            answer = case.call(base_url=url, headers=headers, timeout=PATIENCE_S)
            codes[answer.status_code] += 1
            check(answer)

        # an operation that takes nothing cannot be given anything invalid
        with contextlib.suppress(*([Unsatisfiable] if mode is GenerationMode.NEGATIVE else [])):
            one()


@pytest.mark.slow("sends 16 requests to every operation of the API")
@pytest.mark.parametrize("role", ["admin", "anonymous"])
async def test_no_request_makes_the_api_fail(backend: Backend, role: str) -> None:
    description = openapi(backend.app)
    del description["security"]  # which would be fuzzed as well
    codes: Counter[int] = Counter()
    for result in schemathesis.openapi.from_dict(description).get_all_operations():
        assert isinstance(result, Ok), result
        operation = result.ok()
        headers: dict[str, str] = {}
        if role != "anonymous":  # anew for each operation: logging out or disabling oneself is among them
            client = await backend.client(role)
            headers = {
                "X-CSRF-Token": str(client.session.headers["X-CSRF-Token"]),
                "Cookie": f"{SESSION_COOKIE}={client.session.cookies[SESSION_COOKIE]}",
            }
        await asyncio.to_thread(fuzz, backend.url, operation, headers, codes)
    reached = {"admin": {200, 201, 204, 404, 422}, "anonymous": {200, 401}}[role]
    assert reached <= set(codes), f"the requests did not get far enough: {codes}"
