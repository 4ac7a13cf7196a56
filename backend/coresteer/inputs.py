"""Building blocks of request bodies: no unknown fields, texts that the database can store, row ids."""

import re
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema


class RequestBody(BaseModel):
    """Base class of request bodies and their parts. Unknown fields are refused: one may be a misspelt limit."""

    model_config = ConfigDict(extra="forbid")


def validation_error(sentence: str, *, path: str = "") -> PydanticCustomError:
    """Return a validation error for a Pydantic validator to raise.

    path: of the invalid value below the field, as ``.exclude``.
    """
    return PydanticCustomError("refused", "{sentence}", {"sentence": sentence, "path": path})


@dataclass(frozen=True)
class TextPattern:
    """Annotation of a text that must match the pattern as a whole; the sentence says which characters are allowed."""

    pattern: str
    sentence: str

    def _check(self, text: str) -> str:
        if not re.fullmatch(self.pattern, text):
            raise validation_error(self.sentence)
        return text

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Check after length and type."""
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Add the pattern."""
        return handler(schema) | {"pattern": f"^{self.pattern}$"}


def check_storable(text: str) -> str:
    """Return the text if PostgreSQL and UTF-8 can store it. Raises ValueError."""
    if "\x00" in text or any("\ud800" <= character <= "\udfff" for character in text):
        raise validation_error("The text has a character that cannot be stored: NUL, or half of a surrogate pair.")
    return text


STORABLE = AfterValidator(check_storable)
"""Annotation for a text that PostgreSQL and UTF-8 can store; checked after its length, which counts characters."""

RowId = Annotated[int, Field(ge=1, le=2**31 - 1)]
"""The id of a row, such as a node, a user or a token."""
