"""Map former names of audit actions and results to the present ones; stored entries cannot be changed."""

from collections.abc import Mapping
from types import MappingProxyType

PRESENT_ACTIONS: Mapping[str, str] = MappingProxyType(
    {
        "node.labels": "node.set_labels",
        "policy.version": "policy.create_version",
        "rollout.done": "rollout.finish",
        "rollout.undo": "rollout.roll_back",
    }
)
PRESENT_RESULTS: Mapping[str, str] = MappingProxyType({"asked": "requested"})
