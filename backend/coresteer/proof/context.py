"""The parts of the application that the proof of policies uses; stored in app.state.proof."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from coresteer.policies.context import PolicyContext
from coresteer.policies.publisher import NodesInUse


@dataclass(frozen=True)
class ProofContext:
    """The parts of the application that the proof of policies uses.

    publish: sends a node its policies, wherever it is connected. chunk_s: seconds of samples in a chunk; its oldest
    one is stored up to 45 s later, with the block that completes it. keep: how long single episodes are kept.
    """

    policies: PolicyContext
    publish: Callable[[int], None]
    nodes_in_use: NodesInUse
    chunk_s: float
    keep: timedelta
