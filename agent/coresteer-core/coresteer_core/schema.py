"""Labels, units and help texts of struct fields, and the JSON Schema from which the front end renders forms.

A field is declared once, in its struct: type, bounds and default by msgspec, texts by ``labelled``. Validation
(``msgspec.convert``), the API's documentation and the forms of the front end all derive from that declaration.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Literal  # Any: JSON Schema is JSON of any shape

import msgspec
from msgspec import Meta, Struct, inspect

Group = Literal["basic", "advanced"]
Format = Literal["cpu-list", "labels", "proof-metric", "service-classes"]
"""cpu-list: text such as ``0-3,8``. labels: ``name=pattern`` pairs. proof-metric, service-classes: edited by a form of
their own."""


class Preset(Struct, frozen=True):
    """Named values of some fields of a struct, for a form. summary: what they are for, in a sentence."""

    label: str
    summary: str
    values: dict[str, float]


def labelled(
    label: str,
    help_text: str = "",
    *,
    unit: str = "",
    group: Group = "basic",
    scale: float | None = None,
    format: Format | None = None,
    placeholder: str = "",
    options: Mapping[str, str] | None = None,
    option_help: Mapping[str, str] | None = None,
) -> Meta:
    """Return a field's label, help text and unit for forms, as msgspec metadata to annotate the field with.

    unit: of the value as shown. group: advanced fields are folded away. scale: what a value is multiplied by where it
    is shown (100 shows a share in percent). placeholder: shown while the field is empty. options, option_help: a
    label and a sentence for each value of an enumeration.
    """
    extra: dict[str, Any] = {"unit": unit, "placeholder": placeholder, "group": "" if group == "basic" else group}
    extra |= {"scale": scale, "format": format, "enum_labels": options and dict(options)}
    extra["enum_descriptions"] = option_help and dict(option_help)
    return Meta(
        title=label,
        description=help_text or None,
        extra_json_schema={key: value for key, value in extra.items() if value not in (None, "")},
    )


def json_schema(kind: Any, *, is_response: bool = False) -> dict[str, Any]:  # noqa: ANN401 - a type, or a union of types
    """Return the JSON Schema of a struct or a union of tagged structs, without ``$ref``.

    A struct that has a ``label`` and a ``summary`` carries them as title and description, and its ``metrics`` and
    ``presets`` as keywords of their own. is_response: every field is always present; otherwise other fields are
    refused. Struct types must not refer to themselves.
    """
    document = msgspec.json.schema(kind)
    definitions = document.get("$defs", {})
    for struct in _structs(inspect.type_info(kind)):
        if isinstance(label := getattr(struct, "label", None), str):
            definitions[struct.__name__] |= {"title": label, "description": getattr(struct, "summary", "")}
        if isinstance(metrics := getattr(struct, "metrics", None), tuple):
            definitions[struct.__name__]["metrics"] = list(metrics)
        if isinstance(presets := getattr(struct, "presets", None), tuple):
            definitions[struct.__name__]["presets"] = [msgspec.to_builtins(preset) for preset in presets]
    return inline_references(document, is_response=is_response)


def inline_references(document: dict[str, Any], *, is_response: bool = False) -> dict[str, Any]:
    """Return a JSON Schema with each ``$ref`` replaced by its definition. is_response: as in json_schema()."""
    resolved: dict[str, Any] = _inline(document, document.get("$defs", {}), is_response=is_response)
    return resolved


def _structs(kind: inspect.Type) -> Iterator[type]:
    """Yield the struct types in a type, such as those of a union or of fields, each at least once."""
    match kind:
        case inspect.Metadata(type=inner) | inspect.ListType(item_type=inner) | inspect.DictType(value_type=inner):
            yield from _structs(inner)
        case inspect.UnionType(types=members) | inspect.TupleType(item_types=members):
            for member in members:
                yield from _structs(member)
        case inspect.StructType(cls=struct, fields=fields):
            yield struct
            for field in fields:
                yield from _structs(field.type)


def _inline(node: Any, definitions: dict[str, Any], *, is_response: bool) -> Any:  # noqa: ANN401 - JSON of any shape
    if isinstance(node, list):
        return [_inline(item, definitions, is_response=is_response) for item in node]
    if not isinstance(node, dict):
        return node
    found = {
        key: _inline(value, definitions, is_response=is_response)
        for key, value in node.items()
        if key not in ("$defs", "$ref", "discriminator")
    }
    if "$ref" in node:  # what stands beside a reference is more specific than what it refers to
        found = _inline(definitions[node["$ref"].rsplit("/", 1)[1]], definitions, is_response=is_response) | found
    if "enum" in found:
        found.setdefault("type", "string")  # all enumerations here are of texts
    options = found.get("items", found)
    if "enum" in options and "enum_labels" in found:
        options["enum"] = list(found["enum_labels"])  # in the order of the declaration
    if found.get("type") == "object" and "properties" in found:
        found.pop("default", None)  # its fields have theirs
        if is_response:
            found["required"] = list(found["properties"])
        else:
            found["additionalProperties"] = False
    return found
