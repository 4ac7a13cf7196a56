"""What requests may hold, and how a refusal names the field."""

import pytest
from tests.backend.conftest import Backend

NODE = "/api/v1/nodes/1"


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/api/v1/users/1", b"{}", "body"),
        ("/api/v1/users/1", b'{"role": null}', "body"),
        ("/api/v1/users/1", b'{"role": "admin", "admin": true}', "admin"),
        ("/api/v1/users/1", b'{"role": ', "body"),
        ("/api/v1/users/1", b"[1]", "body"),
        ("/api/v1/users/1", b'{"password": "0123456789\\ud800"}', "password"),
        (NODE, b"{}", "labels"),
        (NODE, b'{"labels": {"a": "b"}, "label": {}}', "label"),
        (NODE, b'{"labels": {"a": "\\u0000"}}', "labels.a"),
        (NODE, b'{"labels": {"a": "\\ud800"}}', "labels.a"),
        (NODE, b'{"labels": {"Rack": "b"}}', "labels.Rack"),
    ],
)
async def test_a_missing_or_unknown_field_is_refused_by_name(
    backend: Backend, path: str, body: bytes, field: str
) -> None:
    admin = await backend.client("admin")
    answer = await admin.request("PATCH", path, data=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422, answer.text
    assert [error["field"] for error in answer.json()["errors"]] == [field]


async def test_a_name_with_invalid_characters_is_refused_with_a_sentence(backend: Backend) -> None:
    admin = await backend.client("admin")
    person = await admin.post("/api/v1/users", {"username": "a b", "password": "a password of words", "role": "viewer"})
    label = await admin.patch(NODE, {"labels": {"Rack": "1"}})
    for answer in (person, label):
        (error,) = answer.json()["errors"]
        assert " is made of " in error["message"]
        assert "pattern" not in error["message"]
