"""Rules for texts in decoded messages: control characters, CPU lists, length.

msgspec evaluates patterns field by field in Python, so these two are validated for a whole message at once. Each
function returns a sentence that says what is wrong, or None.
"""

import re
from collections.abc import Iterable, Iterator

import msgspec

from coresteer_core.cpuset import CpuListError, check_cpu_list

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_JSON_ESCAPE = re.compile(rb"\\[^\"]")


def control_characters(value: object) -> str | None:
    """Return which text contains control characters (C0 or DEL) in a struct, list or dict, keys included; None if none.

    JSON writes control characters as escapes, so encoding the value and searching the bytes is faster than visiting
    its texts in Python.
    """
    encoded = msgspec.json.encode(value)
    if b"\x7f" not in encoded and (b"\\" not in encoded or _JSON_ESCAPE.search(encoded.replace(b"\\\\", b"")) is None):
        return None
    texts = _texts(msgspec.to_builtins(value, builtin_types=(bytes,)))
    return next((f"{text[:40]!r} has control characters." for text in texts if _CONTROL.search(text)), None)


def _texts(value: object) -> Iterator[str]:
    match value:
        case str() as text:
            yield text
        case dict() as items:
            for key, item in items.items():
                yield from _texts(key)
                yield from _texts(item)
        case list() | tuple() as items:
            for item in items:
                yield from _texts(item)


def invalid_cpu_list(texts: Iterable[str | None]) -> str | None:
    """Return which text is not a CPU list, None if none; empty texts and None are valid."""
    for text in {text for text in texts if text}:
        try:
            check_cpu_list(text)
        except CpuListError as error:
            return str(error)
    return None


def too_long(texts: Iterable[str | None], longest: int) -> str | None:
    """Return which text has more than ``longest`` characters, None if none; for structs without bounds of their own."""
    for text in texts:
        if text is not None and len(text) > longest:
            return f"{text[:40]!r}… has {len(text)} characters, more than {longest}."
    return None
