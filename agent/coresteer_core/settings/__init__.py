"""Everything Coresteer can change, as keys and values. What is not a Setting here cannot be touched.

A kind of Setting is a frozen Struct with the methods of IrqAffinity, a line in Setting and one in _KINDS.
"""

import re
from collections.abc import Callable
from typing import TypeAlias

from coresteer_core.settings.base import SettingError
from coresteer_core.settings.irq import IrqAffinity
from coresteer_core.settings.task import TaskAffinity

__all__ = ["IrqAffinity", "Setting", "SettingError", "TaskAffinity", "parse_setting"]

Setting: TypeAlias = IrqAffinity | TaskAffinity
"""A union of every kind of Setting."""

_NUMBER = r"(0|[1-9]\d{0,6})"

_KINDS: list[tuple[str, str, Callable[[re.Match[str]], Setting]]] = [
    ("irq/NUMBER/affinity", rf"irq/{_NUMBER}/affinity", lambda m: IrqAffinity(int(m[1]))),
    ("task/PID/affinity", r"task/([1-9]\d{0,6})/affinity", lambda m: TaskAffinity(int(m[1]))),
]
_PATTERNS = [(re.compile(rf"{pattern}\Z", re.ASCII), make) for _, pattern, make in _KINDS]


def parse_setting(key: str) -> Setting:
    """The Setting that a key addresses. Raises SettingError with the kinds there are."""
    for pattern, make in _PATTERNS:
        if match := pattern.match(key):
            return make(match)
    known = ", ".join(form for form, _, _ in _KINDS)
    raise SettingError(f"“{key[:60]}” is not a setting Coresteer knows; it knows {known}.")
