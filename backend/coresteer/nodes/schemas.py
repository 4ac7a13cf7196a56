"""Response bodies about nodes."""

from pydantic import BaseModel


class EnrolledNode(BaseModel):
    """A node's own key, which the agent stores; it is returned only once."""

    node_id: int
    name: str
    key: str
