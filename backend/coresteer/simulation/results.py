"""The outcome of a run."""

from msgspec import Struct


class Result(Struct, frozen=True):
    """Outcome of a run. Times in seconds; compute_s to idle_s: of all nodes together, they add up to elapsed × nodes.

    response_s: mean over the jobs, from arrival to end, waiting for a free place included.
    """

    response_s: float
    elapsed_s: float
    compute_s: float
    spin_s: float
    switch_s: float
    overhead_s: float
    idle_s: float
    switches: int
    messages: int
    events: int
