"""Signals: what rules of alerts watch, besides the metrics of the fleet page. Each is declared once."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from msgspec import Struct

from coresteer_core.metrics import FLEET_METRICS


class Of(StrEnum):
    """What a signal has values of: each node, each policy, or the backend as one."""

    NODE = "node"
    POLICY = "policy"
    BACKEND = "backend"


class Signal(Struct, frozen=True):
    """Declaration of a signal: label, unit of its values, what it has values of, and what a value is.

    unit: empty for a count; a signal whose values are 0 and 1 is a condition.
    """

    label: str
    unit: str
    of: Of
    meaning: str


SIGNALS: Mapping[str, Signal] = MappingProxyType(
    {
        "disconnected": Signal("Node disconnected", "", Of.NODE, "1 while the node's agent is not connected, else 0"),
        "rollbacks": Signal(
            "Changes that failed or were rolled back by the agent",
            "",
            Of.NODE,
            "changes in the last hour that failed, or that a guardrail, a lost backend or a restart rolled back",
        ),
        "drifts": Signal(
            "Drifts", "", Of.NODE, "settings of policies that other programs changed in the last 15 minutes"
        ),
        "harmful": Signal(
            "Metrics that a policy makes worse",
            "",
            Of.POLICY,
            "metrics of its version that the proof found worse, in force or within the last 24 hours",
        ),
        "disk_used_percent": Signal(
            "Disk of the database", "%", Of.BACKEND, "used part of the built-in database's disk; unknown of any other"
        ),
        **{
            name: Signal(metric.label, metric.unit, Of.NODE, "mean of a minute, which ended 1 to 2 minutes ago")
            for name, metric in FLEET_METRICS.items()
        },
    }
)
"""Every signal by its name in rules."""
