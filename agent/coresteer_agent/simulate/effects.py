"""Planted effects: policy versions that change the CPU time of simulated nodes by a known factor while in force."""

import argparse
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from coresteer_core.policies.base import Mode
from coresteer_core.policies.engine_state import PolicyInForce

_MIN_FACTOR, _MAX_FACTOR = 0.1, 10.0
_FORM = re.compile(r"(?P<policy>.+)@(?P<version>\d{1,9})=(?P<factor>\d{1,3}(\.\d{1,9})?)")


class PolicyVersion(NamedTuple):
    """A version of a policy by its name."""

    policy: str
    version: int


Effects = Mapping[PolicyVersion, float]
"""Factors of the CPU time by policy version."""


def parse_effect(text: str) -> tuple[PolicyVersion, float]:
    """Return the policy version and factor of ``NAME@VERSION=FACTOR``. Raises argparse.ArgumentTypeError."""
    found = _FORM.fullmatch(text)
    if found is None or not _MIN_FACTOR <= (factor := float(found["factor"])) <= _MAX_FACTOR:
        raise argparse.ArgumentTypeError(
            f"“{text}” is not an effect such as spread@2=0.9, with a factor from {_MIN_FACTOR} to {_MAX_FACTOR:g}"
        )
    return PolicyVersion(found["policy"], int(found["version"])), factor


def cpu_factor(effects: Effects, policies: Iterable[PolicyInForce]) -> float:
    """Return the factor of a node's CPU time by the policies that it enforces; those held out have no effect."""
    factor = 1.0
    for policy in policies:
        if policy.mode is Mode.ENFORCE and not policy.holdout:
            factor *= effects.get(PolicyVersion(policy.name, policy.version), 1.0)
    return factor
