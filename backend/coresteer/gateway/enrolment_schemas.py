"""Request and response bodies of the enrolment of agents."""

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, Field, ValidationInfo, field_validator

from coresteer.auth.schemas import Token
from coresteer.inputs import RequestBody, TextPattern, validation_error
from coresteer.nodes.schemas import EnrolledNode, LabelName, LabelValue

NodeName = Annotated[
    str,
    Field(min_length=1, max_length=253),
    TextPattern(r"[A-Za-z0-9._-]+", "A node's name is made of the letters A to Z in either case, digits and . _ -"),
]
NamePattern = Annotated[
    str,
    Field(min_length=1, max_length=253),
    TextPattern(
        r"[A-Za-z0-9._*?\[\]!-]+",
        "A pattern of names is made of the characters of names, * for any text, ? for one character and [0-9] for one "
        "of several.",
    ),
]
_MAX_MINUTES = 90 * 24 * 60
Minutes = Annotated[int, Field(ge=1, le=_MAX_MINUTES)]


class EnrolmentTokenCreate(RequestBody):
    """An enrolment token to create. Each use enrols one node; its labels go before those that its agent reports.

    simulated: for `coresteer-agent simulate`, any number of nodes per use. name_pattern: a shell pattern that the names
    of the nodes must match, None for any. rejoin_for_minutes: for how long nodes that exist may enrol again, which ends
    their present keys; None for never.
    """

    simulated: bool = False
    expires_in_minutes: Minutes = 60
    max_uses: Annotated[int, Field(ge=1, le=100_000)] = 1
    labels: dict[LabelName, LabelValue] = Field(default={}, max_length=16)
    name_pattern: NamePattern | None = None
    rejoin_for_minutes: Minutes | None = None

    @field_validator("rejoin_for_minutes")
    @classmethod
    def _bound_rejoining(cls, minutes: int | None, others: ValidationInfo) -> int | None:
        if minutes is not None and others.data.get("name_pattern") is None:
            raise validation_error(
                "Nodes may enrol again only with a pattern of names: a stolen token could re-enrol any other node."
            )
        if minutes is not None and minutes > others.data.get("expires_in_minutes", _MAX_MINUTES):
            raise validation_error("The token expires before that.")
        return minutes


class EnrolmentToken(BaseModel):
    """An enrolment token, as administrators see it. Its text is returned once, when it is created.

    node_name: of the only node that it readmits, None for one that adds nodes. rejoin_until: until when nodes that
    exist may enrol again, None for never.
    """

    id: int
    created_by: str
    created_at: datetime
    expires_at: datetime
    max_uses: int
    uses_left: int
    last_used_at: datetime | None
    simulated: bool
    node_name: str | None
    name_pattern: str | None
    labels: dict[str, str]
    rejoin_until: datetime | None


class EnrolmentTokenCreated(EnrolmentToken):
    """A new enrolment token with its secret text and the shell command that uses it."""

    token: str
    command: str


class EnrolRequest(RequestBody):
    """An agent's enrolment token and its node names (several only with a token for simulated nodes)."""

    token: Token
    names: list[NodeName] = Field(min_length=1, max_length=10_000)


class EnrolResponse(BaseModel):
    """The enrolled nodes with their keys, one entry per requested name."""

    nodes: list[EnrolledNode]
