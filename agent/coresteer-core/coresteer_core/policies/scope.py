"""Which processes a policy's scope includes."""

from fnmatch import fnmatchcase

from coresteer_core.policies.base import Scope


def matches(name: str, patterns: list[str]) -> bool:
    """Return whether a name matches one of the shell patterns, or there are none."""
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


def in_scope(scope: Scope, name: str, cgroup: str | None) -> bool:
    """Return whether a scope includes a process with this name in this cgroup (None where unknown)."""
    return matches(name, scope.tasks) and matches(cgroup or "", scope.cgroups)
