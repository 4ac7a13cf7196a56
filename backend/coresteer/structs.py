"""Pydantic annotations for coresteer_core's msgspec structs, so that the API declares nothing twice."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from coresteer.inputs import check_storable, validation_error
from coresteer_core.schema import json_schema

_MAX_ITEMS = 64
_MAX_TEXT = 4096


@dataclass(frozen=True)
class FormField:
    """Annotation for a field of a Pydantic model: its label and help in forms, as ``labelled`` returns them."""

    texts: msgspec.Meta

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Return the field's schema with the texts."""
        found = dict(handler.resolve_ref_schema(handler(schema)))
        texts = {"title": self.texts.title, "description": self.texts.description}
        return found | {key: text for key, text in texts.items() if text} | (self.texts.extra_json_schema or {})


class InOrder(GenerateJsonSchema):
    """Keeps keys of a JSON Schema in the order of their declaration, which is that of the form."""

    def sort(self, value: JsonSchemaValue, parent_key: str | None = None) -> JsonSchemaValue:
        """Return the value as it is."""
        return value


class AsStruct:
    """Annotation for a msgspec Struct in a response: ``topology: Annotated[Topology, AsStruct()]``."""

    def __get_pydantic_core_schema__(self, source: type[msgspec.Struct], _: GetCoreSchemaHandler) -> CoreSchema:
        """Return a schema that accepts instances and serializes with msgspec.to_builtins."""
        return core_schema.is_instance_schema(
            source,
            serialization=core_schema.plain_serializer_function_ser_schema(msgspec.to_builtins),
            metadata={"struct": source},
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, _: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Return the JSON schema, in which every field is present."""
        return json_schema(schema["metadata"]["struct"], is_response=True)


def reason_and_path(error: msgspec.ValidationError) -> tuple[str, str]:
    """Return why a value does not fit a struct, as a sentence, and the path of the wrong part.

    The path is written as ``.exclude``, empty for the whole.
    """
    reason, _, path = str(error).replace("`", "").partition(" - at $")
    return f"{reason}.", path


class FromStruct:
    """Annotation for a msgspec Struct, or a union of tagged ones, in a request: its fields' bounds apply.

    Unknown fields are refused, at any depth. Numbers must be finite, texts such as the database can store.
    """

    def __get_pydantic_core_schema__(self, source: Any, _: GetCoreSchemaHandler) -> CoreSchema:  # noqa: ANN401 - a type or a union
        """Return a schema that decodes with msgspec.convert and serializes with msgspec.to_builtins."""

        def check(value: object) -> object:
            if isinstance(value, msgspec.Struct):
                return value
            if wrong := next(_not_storable(value), None):
                raise validation_error(wrong)
            try:
                made: object = msgspec.convert(value, source)
            except msgspec.ValidationError as error:
                sentence, path = reason_and_path(error)
                raise validation_error(sentence, path=path) from None
            for path, sentence in _unknown_fields(value, msgspec.to_builtins(made)):
                raise validation_error(sentence, path=path)
            return made

        return core_schema.no_info_plain_validator_function(
            check,
            serialization=core_schema.plain_serializer_function_ser_schema(msgspec.to_builtins),
            metadata={"struct": source},
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, _: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Return the JSON schema, equal for requests and responses."""
        return json_schema(schema["metadata"]["struct"])


def _unknown_fields(value: object, made: object, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the path of each field in a request that its struct does not have, with a sentence. made: as decoded."""
    if isinstance(value, dict) and isinstance(made, dict):
        for name, item in value.items():
            if name in made:
                yield from _unknown_fields(item, made[name], f"{path}.{name}")
            else:
                yield f"{path}.{name}", f"{name} is not a field here; the fields are {', '.join(sorted(made))}."
    elif isinstance(value, list) and isinstance(made, list):
        for index, (item, decoded) in enumerate(zip(value, made, strict=False)):
            yield from _unknown_fields(item, decoded, f"{path}[{index}]")


def _not_storable(value: object) -> Iterator[str]:
    """Yield sentences about values that the database or a later reader could not accept."""
    match value:
        case str():
            if len(value) > _MAX_TEXT:
                yield f"A text in it has {len(value)} characters; at most {_MAX_TEXT} are allowed."
            try:
                check_storable(value)
            except ValueError as error:
                yield str(error)
        case float() if not math.isfinite(value):
            yield f"{value} is not a finite number."
        case dict():
            for key, item in value.items():
                yield from _not_storable(key)
                yield from _not_storable(item)
        case list():
            if len(value) > _MAX_ITEMS:
                yield f"A list in it has {len(value)} items; at most {_MAX_ITEMS} are allowed."
            for item in value:
                yield from _not_storable(item)
