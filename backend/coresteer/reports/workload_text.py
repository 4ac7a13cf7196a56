"""A workload and its fields as texts, by the labels that forms use. Pure."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec

from coresteer.experiments.findings import Phrases, label_in_sentence
from coresteer_core.experiments.model import Command, Workload
from coresteer_core.experiments.workload_spec import WorkloadSpec
from coresteer_core.schema import json_schema


def workload_text(phrases: Phrases) -> str:
    """Return the kind of an experiment's workload and its fields, without those that are empty or unlimited."""
    workload = phrases.experiment.spec.workload
    fields = msgspec.to_builtins(workload)
    named = phrases.text(f"workload.{fields.pop('type')}")
    if isinstance(workload, Command):
        return f"{named} {workload.name}"
    unlimited = {field.name: field.default for field in msgspec.structs.fields(workload) if "limit" in field.name}
    given = {name: value for name, value in fields.items() if value not in ("", False) and value != unlimited.get(name)}
    return f"{named} ({fields_text(phrases, workload, given)})" if given else named


def fields_text(phrases: Phrases, workload: Workload, values: Mapping[str, object]) -> str:
    """Return fields of a workload as a text: label, value and unit of each."""
    return ", ".join(_field_text(phrases, _schema(type(workload)).get(name, {}), name, values[name]) for name in values)


def _field_text(phrases: Phrases, schema: Mapping[str, Any], name: str, value: object) -> str:
    label = label_in_sentence(phrases.translated(schema.get("title", name)))
    if isinstance(value, bool):
        return f"{label}: {phrases.text('yes' if value else 'no')}"
    if isinstance(value, int | float):
        shown = f"{value:,}" if isinstance(value, int) else f"{value:g}"
    else:
        shown = phrases.translated(schema.get("enum_labels", {}).get(value, str(value)))
    return f"{label} {shown} {phrases.translated(schema.get('unit', ''))}".rstrip()


@cache
def _schema(kind: type[WorkloadSpec]) -> Mapping[str, Mapping[str, Any]]:  # Any: JSON Schema is JSON of any shape
    properties: Mapping[str, Mapping[str, Any]] = json_schema(kind)["properties"]
    return properties
