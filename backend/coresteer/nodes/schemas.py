"""Response bodies about nodes."""

from pydantic import BaseModel


class EnrolledNode(BaseModel):
    """A node's own key, which the agent keeps; told once."""

    node_id: int
    name: str
    key: str
