"""What the API says about a network device's interrupt coalescing."""

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel

from coresteer.structs import AsStruct
from coresteer_core.node.nic import Timer, Tried
from coresteer_core.node.nic_model import Prediction


class QueueParams(BaseModel):
    """A queue that has settings of its own, by the end of their key."""

    name: str
    params: dict[str, str]


class Traffic(BaseModel):
    """What a netdev receives. measured_s: the mean of so many seconds; None where somebody asked “what if”.

    packets_per_s_a_queue: of its busiest queue. gap_us: how long a frame takes on the wire, None with an unknown link
    speed.
    """

    packets_per_s: float
    packets_per_s_a_queue: float
    frame_bytes: float
    gap_us: float | None
    measured_s: float | None


class Standing(BaseModel):
    """The values that stand, the receive interrupts that were measured with them, and what the model says of them.

    own_pace: rx_usecs is no time but tells the driver to set its own pace; as with adaptive, the model says nothing.
    """

    rx_usecs: int | None
    rx_frames: int | None
    adaptive: bool
    own_pace: bool
    interrupts_per_s: float | None
    predicted: Annotated[Prediction, AsStruct()] | None


class Surface(BaseModel):
    """What the model says of pairs of values. predicted, bound_us and product_us: a row each of rx_frames, a column
    each of rx_usecs; one row where rx_frames is empty, for the driver counts none.

    predicted: interrupts of the whole netdev, packets per interrupt and latency of its busiest queue; None where one
    of rx_usecs is no time but tells the driver to set its own pace. bound_us: no packet waits longer for its interrupt;
    None where nothing ends the wait. product_us: the bound of the authors of the model, rx-usecs × rx-frames.
    """

    rx_usecs: list[int]
    rx_frames: list[int]
    predicted: list[list[Annotated[Prediction, AsStruct()] | None]]
    bound_us: list[list[float | None]]
    product_us: list[list[float | None]]


class MeasuredPoint(BaseModel):
    """What the netdev did while these values stood; predicted_interrupts_per_s: the model's word for that traffic."""

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
    """A policy in force that says how much latency this netdev's coalescing may add."""

    policy_id: int
    name: str
    max_added_us: float


class Coalescing(BaseModel):
    """A netdev's interrupt coalescing: what is set, what its driver made of what was asked, and the trade-off.

    params, params_max: its settings, by the end of their key. timer: None where the driver's is not known; timer_why
    says so. rank_correlation: Spearman's, of measured and predicted interrupts over the points, from three on.
    can_wait: for all that is known, the NIC can be told to. why_not: why there is no surface.
    """

    netdev: str
    driver: str | None
    kernel: str | None
    params: dict[str, str]
    params_max: dict[str, str]
    queues: list[QueueParams]
    timer: Timer | None
    timer_why: str
    tried: list[Annotated[Tried, AsStruct()]]
    traffic: Traffic | None
    current: Standing
    surface: Surface | None
    points: list[MeasuredPoint]
    rank_correlation: float | None
    bounds: list[PolicyBound]
    can_wait: bool
    why_not: str | None
