"""Response bodies about interrupt coalescing of a network device."""

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, Field

from coresteer.inputs import RequestBody, RowId
from coresteer.structs import AsStruct, FromStruct
from coresteer_core.node.nic import DriverResponse, Timer
from coresteer_core.node.nic_knee import Knee
from coresteer_core.node.nic_model import Prediction
from coresteer_core.policies.base import Scope
from coresteer_core.policies.coalescing.outcome import Outcome
from coresteer_core.policies.coalescing.spec import Coalescing as CoalescingSpec


class QueueParams(BaseModel):
    """A queue with coalescing settings of its own, by the last part of their keys."""

    name: str
    params: dict[str, str]


class Traffic(BaseModel):
    """Received traffic of a network device. measured_s: seconds of the mean, None for a what-if.

    packets_per_s_a_queue: of its busiest queue. gap_us: time of a frame on the wire, None for an unknown link speed.
    """

    packets_per_s: float
    packets_per_s_a_queue: float
    frame_bytes: float
    gap_us: float | None
    measured_s: float | None


class PresentCoalescing(BaseModel):
    """The present coalescing values, the receive interrupts measured with them, and the model's prediction.

    adaptive_mode: rx_usecs is not a time but selects the driver's own mode; as with adaptive, there is no prediction.
    """

    rx_usecs: int | None
    rx_frames: int | None
    adaptive: bool
    adaptive_mode: bool
    interrupts_per_s: float | None
    predicted: Annotated[Prediction, AsStruct()] | None


class Surface(BaseModel):
    """Predictions for pairs of coalescing values: a row per rx_frames, a column per rx_usecs.

    One row if rx_frames is empty.

    predicted: interrupts of the whole device, packets per interrupt and latency of its busiest queue; None where
    rx_usecs selects the driver's own mode. bound_us: longest wait of a packet for its interrupt, None if unbounded.
    product_us: the bound of the model's authors, rx-usecs × rx-frames.
    """

    rx_usecs: list[int]
    rx_frames: list[int]
    predicted: list[list[Annotated[Prediction, AsStruct()] | None]]
    bound_us: list[list[float | None]]
    product_us: list[list[float | None]]


class MeasuredPoint(BaseModel):
    """Measurements with one pair of coalescing values.

    predicted_interrupts_per_s: the model's prediction for that traffic.
    """

    rx_usecs: int | None
    rx_frames: int | None
    adaptive: bool
    seconds: float
    packets_per_s: float
    frame_bytes: float
    interrupts_per_s: float
    packets_per_interrupt: float | None
    dropped_per_s: float
    rtt_p50_us: float | None
    last_at: datetime
    predicted_interrupts_per_s: float | None


class PolicyBound(BaseModel):
    """A policy in force that limits the latency that this device's coalescing may add."""

    policy_id: int
    name: str
    max_added_us: float


class Coalescing(BaseModel):
    """Interrupt coalescing of a network device: settings, what its driver did with requested values, and the trade-off.

    params, params_max: its settings, by the end of their key. timer: None for an unknown driver; timer_why: the reason.
    rank_correlation: Spearman's, of measured and predicted interrupts over at least three points. can_wait: False when
    the NIC is known not to support rx-usecs. why_not: why there is no surface.
    """

    netdev: str
    driver: str | None
    kernel: str | None
    params: dict[str, str]
    params_max: dict[str, str]
    queues: list[QueueParams]
    timer: Timer | None
    timer_why: str
    responses: list[Annotated[DriverResponse, AsStruct()]]
    traffic: Traffic | None
    current: PresentCoalescing
    surface: Surface | None
    points: list[MeasuredPoint]
    rank_correlation: float | None
    bounds: list[PolicyBound]
    can_wait: bool
    why_not: str | None


class OutcomesRequest(RequestBody):
    """Parameters of a coalescing policy, stored or not, and the nodes whose traffic they are applied to."""

    spec: Annotated[CoalescingSpec, FromStruct()]
    scope: Annotated[Scope, FromStruct()] = Field(default={}, validate_default=True)
    node_ids: list[RowId] = Field(default=[], max_length=8)


class BoundsOutcome(BaseModel):
    """What bounds result in on some traffic. preset: their name, None for those of the request."""

    preset: str | None
    max_added_us: float
    packets_per_interrupt: float
    outcome: Annotated[Outcome, AsStruct()]


class TrafficOutcomes(BaseModel):
    """What bounds result in on one network device, or on typical traffic (node_id None).

    usecs, frames, interrupts_per_s: the present values and the measured rate, None where there is none. knee: the
    shortest delay within the request's bounds at which coalescing takes effect. why_not: why there is no outcome.
    """

    node_id: int | None
    label: str
    usecs: int | None
    frames: int | None
    packets_per_s: float | None
    frame_bytes: float | None
    interrupts_per_s: float | None
    outcomes: list[BoundsOutcome]
    knee: Annotated[Knee, AsStruct()] | None
    why_not: str | None
