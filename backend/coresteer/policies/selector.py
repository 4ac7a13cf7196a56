"""Selectors: match nodes by labels, names, network devices and drivers. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from coresteer.policies.schemas import Selector


@dataclass(frozen=True)
class NodeAttributes:
    """Attributes of a node that a selector matches. netdevs: driver by device name, None without a driver."""

    node_id: int
    name: str
    hostname: str | None
    labels: Mapping[str, str]
    netdevs: Mapping[str, str | None]


def matches(selector: Selector, node: NodeAttributes) -> bool:
    """Return whether the selector matches the node."""
    labels = all(name in node.labels and fnmatchcase(node.labels[name], glob) for name, glob in selector.labels.items())
    return (
        labels
        and _any(selector.hostnames, (node.name, node.hostname))
        and _any(selector.netdevs, node.netdevs)
        and _any(selector.drivers, node.netdevs.values())
    )


def _any(globs: list[str], texts: Iterable[str | None]) -> bool:
    known = [text for text in texts if text is not None]
    return not globs or any(fnmatchcase(text, glob) for glob in globs for text in known)
