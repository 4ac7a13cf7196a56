"""What docs/API.md promises: what a program uses of the previous release's API works with today's."""

import io
import json
import tarfile
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import pytest
from tests.upgrade.releases import PREVIOUS, archive

from coresteer.config import REPOSITORY
from coresteer.paths import API

GOLDEN = "tests/fixtures/golden/openapi.json"
NOT_COVERED = tuple(f"{API}/{part}" for part in ("schemas", "live", "simulat"))
"""Paths that docs/API.md excepts."""
Json = dict[str, Any]  # OpenAPI is JSON of any shape


class Comparison:
    """Two OpenAPI documents, and what of the former one the later one breaks."""

    def __init__(self, before: Json, after: Json) -> None:
        self._before, self._after = before, after
        self._compared: set[tuple[str, str, bool]] = set()

    def breaks(self) -> Iterator[str]:
        """Yield a sentence for each break."""
        for path, methods in self._before["paths"].items():
            if not path.startswith(f"{API}/") or path.startswith(NOT_COVERED):
                continue
            for method, operation in methods.items():
                at = f"{method.upper()} {path}"
                now = self._after["paths"].get(path, {}).get(method)
                if now is None:
                    yield f"{at} is gone"
                    continue
                yield from self._parameters(operation, now, at)
                yield from self._content(operation.get("requestBody"), now.get("requestBody"), at, answer=False)
                for status, response in operation["responses"].items():
                    if status.startswith("2"):
                        yield from self._content(response, now["responses"].get(status), f"{at} {status}", answer=True)

    def _parameters(self, before: Json, after: Json, at: str) -> Iterator[str]:
        was = {(each["in"], each["name"]): each for each in before.get("parameters", [])}
        now = {(each["in"], each["name"]): each for each in after.get("parameters", [])}
        yield from (f"{at}: the parameter {name} is gone" for place, name in was.keys() - now.keys())
        for key, each in now.items():
            if each.get("required") and not was.get(key, {}).get("required"):
                yield f"{at}: the parameter {key[1]} is required"
            if key in was:
                yield from self._schemas(was[key]["schema"], each["schema"], f"{at} {key[1]}", answer=False)

    def _content(self, before: Json | None, after: Json | None, at: str, *, answer: bool) -> Iterator[str]:
        if after is None:
            if before is not None:
                yield f"{at}: its body is gone"
            return
        if before is None:
            if after.get("required"):
                yield f"{at}: a body is required"
            return
        for media_type, each in before.get("content", {}).items():
            if (now := after.get("content", {}).get(media_type)) is None:
                yield f"{at}: {media_type} is gone"
            elif "schema" in each:
                yield from self._schemas(each["schema"], now.get("schema", {}), at, answer=answer)

    def _schemas(self, before: Json, after: Json, at: str, *, answer: bool) -> Iterator[str]:
        key = (json.dumps(before, sort_keys=True), json.dumps(after, sort_keys=True), answer)
        if key in self._compared:
            return
        self._compared.add(key)
        was, now = _variants(self._before, before), _variants(self._after, after)
        types = [{each.get("type", "any") for each in variants} for variants in (was, now)]
        if (wrong := types[1] - types[0] if answer else types[0] - types[1]) and "any" not in types[0] | types[1]:
            yield f"{at}: {'it may be' if answer else 'it may no more be'} {' or '.join(sorted(wrong))}"
        for each in was:
            same = [other for other in now if other.get("type") == each.get("type")]
            titled = [other for other in same if other.get("title") == each.get("title")]
            if len(same) > 1 and not titled:
                yield f"{at}: {each.get('title')} is gone"
            for other in (titled or same)[:1]:
                yield from self._objects(each, other, at, answer=answer)
                if "items" in each:
                    yield from self._schemas(each["items"], other.get("items", {}), f"{at}[]", answer=answer)

    def _objects(self, before: Json, after: Json, at: str, *, answer: bool) -> Iterator[str]:
        was, now = before.get("properties", {}), after.get("properties", {})
        yield from (f"{at}: {name} is gone" for name in sorted(was.keys() - now.keys()))
        if not answer:
            required = set(after.get("required", [])) - set(before.get("required", []))
            yield from (f"{at}: {name} is required" for name in sorted(required))
        for name in was.keys() & now.keys():
            yield from self._schemas(was[name], now[name], f"{at} {name}", answer=answer)


def _variants(document: Json, schema: Json) -> list[Json]:
    """The schemas that a value may have, without references."""
    if "$ref" in schema:
        return _variants(document, document["components"]["schemas"][schema["$ref"].rpartition("/")[2]])
    several = schema.get("anyOf") or schema.get("oneOf")
    return [found for each in several for found in _variants(document, each)] if several else [schema]


def today() -> Json:
    found: Json = json.loads((REPOSITORY / GOLDEN).read_text())
    return found


@pytest.mark.usefixtures("history")
def test_a_program_for_the_previous_release_works_with_todays_api() -> None:
    with tarfile.open(fileobj=io.BytesIO(archive(PREVIOUS, GOLDEN))) as files:
        member = files.extractfile(GOLDEN)
        assert member is not None
        before = json.load(member)
    assert list(Comparison(before, today()).breaks()) == []


def without_operation(document: Json) -> None:
    del document["paths"][f"{API}/nodes"]["get"]


def without_parameter(document: Json) -> None:
    document["paths"][f"{API}/nodes"]["get"]["parameters"].clear()


def without_field(document: Json) -> None:
    del document["components"]["schemas"]["NodeSummary"]["properties"]["name"]


def nullable_field(document: Json) -> None:
    fields = document["components"]["schemas"]["NodeSummary"]["properties"]
    fields["name"] = {"anyOf": [fields["name"], {"type": "null"}]}


def required_field(document: Json) -> None:
    document["components"]["schemas"]["ApiTokenCreate"]["required"].append("expires_in_days")


@pytest.mark.parametrize(
    ("change", "end"),
    [
        (without_operation, "GET /api/v1/nodes is gone"),
        (without_parameter, "GET /api/v1/nodes: the parameter name is gone"),
        (without_field, "[]: name is gone"),
        (nullable_field, "[] name: it may be null"),
        (required_field, "POST /api/v1/tokens: expires_in_days is required"),
    ],
)
def test_a_break_is_found(change: Callable[[Json], None], end: str) -> None:
    after = today()
    before = deepcopy(after)
    change(after)
    (found,) = Comparison(before, after).breaks()
    assert found.endswith(end)
    assert list(Comparison(before, before).breaks()) == []
