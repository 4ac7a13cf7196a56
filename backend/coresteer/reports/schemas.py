"""Request and response bodies of links to reports."""

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, Field

from coresteer.inputs import RequestBody


class ShareResponse(BaseModel):
    """A new link to a report, which works without signing in."""

    url: str
    token: str
    expires_at: datetime


class ShareRequest(RequestBody):
    """A link to a report to create. days: until it expires."""

    days: Annotated[int, Field(ge=1, le=365)] = 30
