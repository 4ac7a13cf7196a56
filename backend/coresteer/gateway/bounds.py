"""Bounds that hold for several kinds of what agents say.

Each function returns a sentence that says what is wrong, or None.
"""

import re
from collections.abc import Iterable

from coresteer_core.cpuset import CpuListError, parse_cpu_list

MAX_NAME = 256
MAX_VALUE = 65_536
MAX_TEXT = 2000
_MAX_CLOCK_ERROR_MS = 24 * 3600 * 1000
MAX_INT = 2**53
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def bad_time(time_ms: int, now_ms: int) -> str | None:
    """Why a node's time cannot be reckoned with."""
    if abs(time_ms - now_ms) <= _MAX_CLOCK_ERROR_MS:
        return None
    return f"{time_ms} ms is more than 24 hours from the backend's {now_ms} ms; set the node's clock."


def bad_text(texts: Iterable[str | None], longest: int) -> str | None:
    """Which text is too long to be kept, or cannot be shown."""
    known = {text for text in texts if text}
    if max(map(len, known), default=0) <= longest and not _CONTROL.search("".join(known)):
        return None  # all at once, for an inventory holds thousands
    for text in known:
        if len(text) > longest:
            return f"a text of {len(text)} characters is longer than {longest}: {text[:40]!r}…"
        if _CONTROL.search(text):
            return f"{text[:40]!r} holds control characters."
    return None


def bad_integers(numbers: Iterable[int | None]) -> str | None:
    """Which of the numbers is out of range; -1 is what the kernel says for none."""
    for number in numbers:
        if number is not None and not -1 <= number < MAX_INT:
            return f"{number} is out of range."
    return None


def bad_cpu_lists(lists: Iterable[str | None]) -> str | None:
    """Which text is no CPU list."""
    for text in {text for text in lists if text}:
        if len(text) > 65_536:
            return "a CPU list is longer than 65536 characters."
        try:
            parse_cpu_list(text)
        except CpuListError as error:
            return str(error)
    return None


def bad_policy_id(text: str) -> str | None:
    """Why it names no policy."""
    if text.isdecimal() and text.isascii() and len(text) <= 9:
        return None
    return f"{text[:40]!r} is not a policy's number."
