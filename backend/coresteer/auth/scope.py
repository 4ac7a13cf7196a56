"""Which nodes and selectors a request is about, by its path: an operator's limits must include them.

The tables belong to features above this one, as those of `repository.NAMES_OF_USERS`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import LiteralString
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.auth.role_labels import Patterns
from coresteer.errors import NotFound

_LABELS: LiteralString = "SELECT coalesce(hello->'labels', '{}') || token_labels || labels FROM node WHERE id"
_SELECTED: LiteralString = "SELECT body->'selector'->'labels' FROM policy_version WHERE policy_id"


@dataclass(frozen=True)
class _Parameter:
    """A path's parameter: what it names, and the query of the labels of its nodes or of what its selectors select."""

    what: str
    is_selector: bool
    query: LiteralString


_PARAMETERS: Mapping[str, _Parameter] = {
    "node_id": _Parameter("node", False, f"{_LABELS} = :id"),
    "change_id": _Parameter(
        "change",
        False,
        f"{_LABELS} = (SELECT node_id FROM change WHERE id = :id)",  # noqa: S608 - constants, as below
    ),
    "experiment_id": _Parameter(
        "experiment",
        False,
        f"{_LABELS} IN (SELECT unnest(ARRAY[node_id, peer_node_id]) FROM experiment WHERE id = :id)",  # noqa: S608
    ),
    # every version: a rollout, enabling and rolling back put any of them into the place of another
    "policy_id": _Parameter("policy", True, f"{_SELECTED} = :id"),
    "approval_id": _Parameter(
        "request for approval",
        True,
        f"{_SELECTED} = (SELECT policy_id FROM approval WHERE id = :id)",  # noqa: S608
    ),
    "rollout_id": _Parameter(
        "rollout",
        True,
        f"{_SELECTED} = (SELECT policy_id FROM rollout WHERE id = :id)",  # noqa: S608
    ),
}


@dataclass(frozen=True)
class Scope:
    """What a request is about. nodes: labels of each node; selectors: the label patterns of each policy version."""

    nodes: Sequence[Mapping[str, str]] = field(default=())
    selectors: Sequence[Patterns] = field(default=())


async def scope_of_path(session: AsyncSession, parameters: Mapping[str, str]) -> Scope | None:
    """Return what a path's parameters name; None for a path without any that is about nodes. Raises NotFound."""
    known = [name for name in parameters if name in _PARAMETERS]
    nodes: list[Mapping[str, str]] = []
    selectors: list[Patterns] = []
    for name in known:
        parameter = _PARAMETERS[name]
        found = await _rows(session, parameter.query, name, parameters[name])
        if not found:
            raise NotFound(f"There is no {parameter.what} {parameters[name]}.")
        (selectors if parameter.is_selector else nodes).extend(found)
    return Scope(nodes, selectors) if known else None


async def scope_of_nodes(session: AsyncSession, node_ids: Sequence[int]) -> Scope:
    """Return the scope of a request whose body names these nodes; those that do not exist are left out."""
    rows = await session.scalars(text(f"{_LABELS} = ANY(:ids)"), {"ids": list(node_ids)})
    return Scope(nodes=rows.all())


async def _rows(session: AsyncSession, query: LiteralString, name: str, given: str) -> Sequence[Mapping[str, str]]:
    try:
        identifier = UUID(given) if name == "change_id" else int(given)
    except ValueError:
        return []
    if isinstance(identifier, int) and not 0 < identifier < 2**31:
        return []
    return (await session.scalars(text(query), {"id": identifier})).all()
