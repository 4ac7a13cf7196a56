"""Request and response bodies of the enrolment of agents."""

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, Field

from coresteer.auth.schemas import Token
from coresteer.inputs import RequestBody, TextPattern
from coresteer.nodes.schemas import EnrolledNode

NodeName = Annotated[
    str,
    Field(min_length=1, max_length=253),
    TextPattern(r"[A-Za-z0-9._-]+", "A node's name is made of the letters A to Z in either case, digits and . _ -"),
]


class EnrolmentTokenCreate(RequestBody):
    """An enrolment token to create. simulated: for `coresteer-agent simulate`, any number of nodes at once."""

    simulated: bool = False
    expires_in_minutes: Annotated[int, Field(ge=1, le=10080)] = 60


class EnrolmentToken(BaseModel):
    """A new enrolment token and the shell command that uses it."""

    token: str
    command: str
    expires_at: datetime


class EnrolRequest(RequestBody):
    """An agent's one-time token and its node names (several only with a token for simulated nodes)."""

    token: Token
    names: list[NodeName] = Field(min_length=1, max_length=10_000)


class EnrolResponse(BaseModel):
    """The enrolled nodes with their keys, one entry per requested name."""

    nodes: list[EnrolledNode]
