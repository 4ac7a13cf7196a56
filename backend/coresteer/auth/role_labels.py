"""Label patterns that limit the role operator to some nodes. Pure."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TypeAlias

Patterns: TypeAlias = Mapping[str, str]
"""Shell patterns by name of a label, as in a policy's selector; all must match."""

_WILDCARDS = frozenset("*?[")


def match(labels: Mapping[str, str], patterns: Patterns) -> bool:
    """Return whether a node's labels match all patterns."""
    return all(name in labels and fnmatchcase(labels[name], glob) for name, glob in patterns.items())


def implies(selected: Patterns, patterns: Patterns) -> bool:
    """Return whether every node that `selected` matches, now or later, also matches the patterns.

    It is sufficient, not necessary: a pattern implies itself, and a value without wildcards what matches it.
    """
    return all(
        (given := selected.get(name)) is not None
        and (given == glob or (_WILDCARDS.isdisjoint(given) and fnmatchcase(given, glob)))
        for name, glob in patterns.items()
    )


def to_text(limits: Sequence[Patterns]) -> str:
    """Return the patterns as people write them: ``rack=r0* role=db``."""
    return " ".join(sorted({f"{name}={glob}" for patterns in limits for name, glob in patterns.items()}))
