"""Values of any msgspec type with every field filled in, the same each time, from the type alone."""

import re
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import inspect

_TEXTS = ("text", "0-3", "http://127.0.0.1:9100/metrics#seconds", "10.0.0.0/8", "7", "gate", "0" * 64)
"""Texts of which one fits every pattern there is."""
_FIELDS: dict[str, object] = {"clients": ["10.0.0.0/8"]}
"""Fields whose value is checked by more than their type."""


def instances(kind: type[msgspec.Struct]) -> Iterator[msgspec.Struct]:
    """As many instances as it takes to meet each member of each union, enum and literal in it at least once.

    The first has all defaults; the others have every field filled in.
    """
    described = inspect.type_info(kind)
    yield _filled(described, 0, defaults=True)
    for turn in range(_width(described)):
        yield _filled(described, turn)


def _width(kind: inspect.Type) -> int:  # noqa: PLR0911 - one line a kind of type
    match kind:
        case inspect.Metadata(type=bare):
            return _width(bare)
        case inspect.StructType(fields=fields):
            return max((_width(field.type) for field in fields if field.name not in _FIELDS), default=1)
        case inspect.UnionType(types=types):
            members = _members(types)
            return max(len(members), *(len(members) * _width(member) for member in members if _width(member) > 1), 1)
        case inspect.EnumType(cls=enum):
            return len(list(enum))
        case inspect.LiteralType(values=values):
            return len(values)
        case inspect.ListType(item_type=item):
            return _width(item)
        case inspect.DictType(value_type=value):
            return _width(value)
    return 1


def _members(types: tuple[inspect.Type, ...]) -> list[inspect.Type]:
    return [member for member in types if not isinstance(member, inspect.NoneType)]


def _filled(kind: inspect.Type, turn: int, *, defaults: bool = False) -> Any:  # noqa: ANN401, PLR0911, PLR0912 - any type's value
    match kind:
        case inspect.Metadata(type=bare):
            return _filled(bare, turn, defaults=defaults)
        case inspect.StructType(cls=cls, fields=fields):
            wanted = [field for field in fields if field.required or not defaults]
            values = {field.name: _FIELDS.get(field.name) or _filled(field.type, turn) for field in wanted}
            return cls(**values)
        case inspect.UnionType(types=types):
            members = _members(types)
            return _filled(members[turn % len(members)], turn // len(members))
        case inspect.EnumType(cls=enum):
            return list(enum)[turn % len(list(enum))]
        case inspect.LiteralType(values=values):
            return values[turn % len(values)]
        case inspect.ListType(item_type=item):
            return [_filled(item, turn)]
        case inspect.DictType(key_type=key, value_type=value):
            return {_filled(key, turn): _filled(value, turn)}
        case inspect.TupleType(item_types=items):
            return tuple(_filled(item, turn) for item in items)
        case inspect.StrType(pattern=pattern):
            return next(text for text in _TEXTS if pattern is None or re.search(pattern, text))
        case inspect.IntType(ge=least, gt=over, le=most):
            found = int(max(7, least or 0, (over or 0) + 1))
            return found if most is None else min(found, int(most))
        case inspect.FloatType(ge=least, le=most):
            return float(min(max(1.5, least or 0), most or 1.5))
        case inspect.Metadata(type=inner):
            return _filled(inner, turn, defaults=defaults)
        case inspect.BoolType():
            return True
        case inspect.BytesType():
            return bytes(range(8))
    raise TypeError(f"No value is known for {kind}.")
