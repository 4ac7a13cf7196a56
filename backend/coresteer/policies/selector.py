"""Which nodes a policy is for. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from coresteer.policies.schemas import Selector


@dataclass(frozen=True)
class Facts:
    """What a selector looks at. netdevs: their drivers by name, None where there is none."""

    node_id: int
    name: str
    hostname: str | None
    labels: Mapping[str, str]
    netdevs: Mapping[str, str | None]


def fits(selector: Selector, facts: Facts) -> bool:
    """Whether the node is one of those selected."""
    labels = all(
        name in facts.labels and fnmatchcase(facts.labels[name], glob) for name, glob in selector.labels.items()
    )
    return (
        labels
        and _any(selector.hostnames, (facts.name, facts.hostname))
        and _any(selector.netdevs, facts.netdevs)
        and _any(selector.drivers, facts.netdevs.values())
    )


def _any(globs: list[str], texts: Iterable[str | None]) -> bool:
    known = [text for text in texts if text is not None]
    return not globs or any(fnmatchcase(text, glob) for glob in globs for text in known)
