"""Request and response bodies of two-person approval."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, Field

from coresteer.inputs import STORABLE, RequestBody


class PolicyAction(StrEnum):
    """An action on a policy that may wait for approval."""

    ENABLE = "enable"
    DISABLE = "disable"
    DELETE = "delete"
    ROLL_OUT = "roll_out"


class ApprovalState(StrEnum):
    """State of a request. approved: and carried out; outdated: no longer what was requested, so not carried out."""

    WAITING = "waiting"
    APPROVED = "approved"
    REJECTED = "rejected"
    WITHDRAWN = "withdrawn"
    EXPIRED = "expired"
    OUTDATED = "outdated"


class Approval(BaseModel):
    """A request for the approval of another operator. what: the action in words; sentence: its state in words.

    nodes: how many it concerned when it was requested, more than above. decided_by: None for one that expired.
    """

    id: int
    policy_id: int
    policy_name: str
    action: PolicyAction
    what: str
    nodes: int
    above: int
    state: ApprovalState
    sentence: str
    requested_at: datetime
    requested_by: str
    expires_at: datetime
    decided_at: datetime | None
    decided_by: str | None


class ApprovalThreshold(RequestBody):
    """Actions on policies that concern more nodes than this wait for the approval of another operator; 0 for never."""

    above: Annotated[int, Field(ge=0, le=1_000_000)]


class Rejection(RequestBody):
    """Why a request is rejected."""

    reason: Annotated[str, Field(max_length=500), STORABLE] = ""
