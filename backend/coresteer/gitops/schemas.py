"""Request and response bodies of sets of managed resources."""

from enum import StrEnum
from typing import Annotated

from fastapi import Path
from pydantic import BaseModel, Field

from coresteer.inputs import RequestBody, RowId

MAX_MANAGED = 10_000
"""Resources in all sets together."""

SetName = Annotated[str, Path(min_length=1, max_length=63, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]


class ManagedKind(StrEnum):
    """Kinds of resources that files may manage."""

    POLICY = "Policy"
    ALERT_RULE = "AlertRule"


class ManagedResource(RequestBody):
    """A resource that files manage."""

    kind: ManagedKind
    id: RowId


class ManagedSetBody(RequestBody):
    """All resources of a set; empty to release them.

    was: those that the caller knows of; then only the differences between both are made, and what others add or release
    at the same time stays so.
    """

    resources: Annotated[list[ManagedResource], Field(max_length=MAX_MANAGED)]
    was: Annotated[list[ManagedResource] | None, Field(max_length=MAX_MANAGED)] = None


class ManagedSet(BaseModel):
    """Resources that were applied from the same set of files, `coresteer apply --managed-by NAME`."""

    name: str
    resources: list[ManagedResource]
