"""Names and labels of nodes, and response bodies about nodes."""

from typing import Annotated

from pydantic import BaseModel, Field

from coresteer.inputs import STORABLE, TextPattern
from coresteer_core.bounds import LABEL_NAME, MAX_LABEL

LabelName = Annotated[
    str,
    Field(min_length=1, max_length=MAX_LABEL),
    TextPattern(
        LABEL_NAME,
        "A label's name is made of small letters, digits and . _ / -, and begins with a letter or digit.",
    ),
]
LabelValue = Annotated[str, Field(max_length=MAX_LABEL), STORABLE]


class EnrolledNode(BaseModel):
    """A node's own key, which the agent stores; it is returned only once. existed: the node keeps its history."""

    node_id: int
    name: str
    key: str
    existed: bool
