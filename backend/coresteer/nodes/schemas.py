"""Names and labels of nodes, and response bodies about nodes."""

from typing import Annotated

from pydantic import BaseModel, Field

from coresteer.inputs import STORABLE, TextPattern

LabelName = Annotated[
    str,
    Field(min_length=1, max_length=63),
    TextPattern(
        r"[a-z0-9][a-z0-9._/-]*",
        "A label's name is made of small letters, digits and . _ / -, and begins with a letter or digit.",
    ),
]
LabelValue = Annotated[str, Field(max_length=63), STORABLE]


class EnrolledNode(BaseModel):
    """A node's own key, which the agent stores; it is returned only once. existed: the node keeps its history."""

    node_id: int
    name: str
    key: str
    existed: bool
