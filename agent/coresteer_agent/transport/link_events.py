"""What the link delivers to the agent's loop: requests of the backend, and that the connection began or ended."""

from typing import TypeAlias

from coresteer_core.changes.events import BackendLost, BackendReconnected
from coresteer_core.protocol import (
    Apply,
    BeginExperiment,
    ChangeAck,
    Confirm,
    EndExperiment,
    Extend,
    Policies,
    Rollback,
    RunExperiment,
)

Request: TypeAlias = (
    Apply | Confirm | Rollback | Extend | ChangeAck | Policies | BeginExperiment | RunExperiment | EndExperiment
)
"""Messages of the backend that the loop handles."""
LinkEvent: TypeAlias = Request | BackendReconnected | BackendLost
