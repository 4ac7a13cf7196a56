"""The JSON Schemas of forms: published to viewers, complete, and the same declaration that validates."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.backend.conftest import Backend

from coresteer.forms.endpoints import schemas

LABELLED_BY_THEIR_LIST = {"type", "settings", "policy", "workload", "key", "value", "metric", "max"}


async def test_a_viewer_reads_the_schemas(backend: Backend) -> None:
    answer = await (await backend.client("viewer")).get("/api/v1/schemas")
    assert answer.status_code == 200
    assert answer.json() == schemas().model_dump(mode="json")
    assert (await backend.anonymous().get("/api/v1/schemas")).status_code == 401


def fields(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, field in schema.get("properties", {}).items():
        yield f"{path}.{name}", field
        yield from fields(field, f"{path}.{name}")
    for member in [*schema.get("anyOf", []), *([schema["items"]] if "items" in schema else [])]:
        yield from fields(member, path)


def numbers(schema: dict[str, Any]) -> list[dict[str, Any]]:
    return [each for each in (schema, *schema.get("anyOf", [])) if each.get("type") in ("integer", "number")]


EVERY = [(path, field) for part, schema in schemas() for path, field in fields(schema, part)]


@pytest.mark.parametrize(("path", "field"), EVERY, ids=[path for path, _ in EVERY])
def test_every_field_has_a_label_and_every_number_its_bounds(path: str, field: dict[str, Any]) -> None:
    name = path.rsplit(".", 1)[1]
    if name not in LABELLED_BY_THEIR_LIST:
        assert field["title"][0].isupper() or field["title"] in ("iperf3", "irqbalance runs"), field
    for number in numbers(field):
        if path != "experiment.factors.levels.value" and not path.endswith("guardrails.max"):
            assert number.keys() & {"minimum", "exclusiveMinimum"} and number.keys() & {"maximum"}, field
    for value in field.get("enum_labels", {}):
        assert value in field.get("items", field).get("enum", [value])
