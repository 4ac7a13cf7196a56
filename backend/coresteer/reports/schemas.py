"""Request and response bodies of links to reports."""

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, Field

from coresteer.inputs import Body


class ShareAnswer(BaseModel):
    """A link that shows the report to whoever has it, without signing in."""

    url: str
    token: str
    expires_at: datetime


class ShareRequest(Body):
    """How long the link works."""

    days: Annotated[int, Field(ge=1, le=365)] = 30
