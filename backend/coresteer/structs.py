"""Lets the API speak coresteer_core's structs as they are, so that nothing is defined twice."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from coresteer.inputs import can_be_kept, refused
from coresteer_core.schema import json_schema

_MOST_ITEMS = 64
_LONGEST_TEXT = 4096


@dataclass(frozen=True)
class Shown:
    """Annotation for a field of a Pydantic model: what forms show of it, as ``labelled`` returns it."""

    texts: msgspec.Meta

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Return the field's schema with the texts."""
        found = dict(handler.resolve_ref_schema(handler(schema)))
        texts = {"title": self.texts.title, "description": self.texts.description}
        return found | {key: text for key, text in texts.items() if text} | (self.texts.extra_json_schema or {})


class AsStruct:
    """Annotation for a msgspec Struct in an answer's model: ``topology: Annotated[Topology, AsStruct()]``."""

    def __get_pydantic_core_schema__(self, source: type[msgspec.Struct], _: GetCoreSchemaHandler) -> CoreSchema:
        """Taken as it is, serialized by msgspec.to_builtins."""
        return core_schema.is_instance_schema(
            source,
            serialization=core_schema.plain_serializer_function_ser_schema(msgspec.to_builtins),
            metadata={"struct": source},
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, _: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Every field is told."""
        return json_schema(schema["metadata"]["struct"], is_answer=True)


def reason_and_path(error: msgspec.ValidationError) -> tuple[str, str]:
    """Return why a value does not fit a struct, as a sentence, and where: ``.exclude``, empty for the whole."""
    reason, _, path = str(error).replace("`", "").partition(" - at $")
    return f"{reason}.", path


class FromStruct:
    """Annotation for a msgspec Struct, or a union of tagged ones, in a request: the bounds are those of its fields.

    A field that the struct does not have is refused. Numbers must be finite, texts such as the database can hold.
    """

    def __get_pydantic_core_schema__(self, source: Any, _: GetCoreSchemaHandler) -> CoreSchema:  # noqa: ANN401 - a type or a union
        """Made by msgspec.convert, serialized by msgspec.to_builtins."""

        def check(value: object) -> object:
            if isinstance(value, msgspec.Struct):
                return value
            if wrong := next(_not_storable(value), None):
                raise refused(wrong)
            try:
                made: object = msgspec.convert(value, source)
            except msgspec.ValidationError as error:
                sentence, path = reason_and_path(error)
                raise refused(sentence, path=path) from None
            given = set(value) if isinstance(value, dict) else set()
            known = msgspec.to_builtins(made).keys()
            if unknown := sorted(given - known):
                sentence = f"{unknown[0]} is not a field here; the fields are {', '.join(sorted(known))}."
                raise refused(sentence, path=f".{unknown[0]}")
            return made

        return core_schema.no_info_plain_validator_function(
            check,
            serialization=core_schema.plain_serializer_function_ser_schema(msgspec.to_builtins),
            metadata={"struct": source},
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, _: GetJsonSchemaHandler) -> JsonSchemaValue:
        """The same for requests and answers."""
        return json_schema(schema["metadata"]["struct"])


def _not_storable(value: object) -> Iterator[str]:
    """What the database or a later reader could not take, in sentences."""
    match value:
        case str():
            if len(value) > _LONGEST_TEXT:
                yield f"A text in it has {len(value)} characters; {_LONGEST_TEXT} are the most."
            try:
                can_be_kept(value)
            except ValueError as error:
                yield str(error)
        case float() if not math.isfinite(value):
            yield f"{value} is not a number it can use."
        case dict():
            for key, item in value.items():
                yield from _not_storable(key)
                yield from _not_storable(item)
        case list():
            if len(value) > _MOST_ITEMS:
                yield f"A list in it has {len(value)} items; {_MOST_ITEMS} are the most."
            for item in value:
                yield from _not_storable(item)
