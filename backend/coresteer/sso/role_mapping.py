"""Which role the groups of a user at the issuer give here. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from coresteer.auth.schemas import Role

EVERYBODY = "*"
"""Stands for every user of the issuer, whatever their groups."""


@dataclass(frozen=True)
class MappedRole:
    """A role, and for operators the patterns of the labels of their nodes; empty for every node."""

    role: Role
    labels: Mapping[str, str] = field(default_factory=dict)


def parse_role(text: str) -> MappedRole:
    """Parse ``admin``, ``operator`` or ``operator:role=db,rack=r0*``, whose form the configuration has checked."""
    name, _, labels = text.partition(":")
    return MappedRole(Role(name), dict(part.split("=") for part in labels.split(",") if part))


_RANK = {Role.VIEWER: 0, Role.OPERATOR: 1, Role.ADMIN: 2}


def role_of(groups: Iterable[str], mapping: Mapping[str, str]) -> MappedRole | None:
    """Return the highest role that the groups give, None without any; of equal roles, the one that is named first."""
    member_of = {EVERYBODY, *groups}
    found = [parse_role(text) for group, text in mapping.items() if group in member_of]
    return max(found, key=lambda mapped: _RANK[mapped.role], default=None)
