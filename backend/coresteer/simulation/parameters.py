"""Parameters of the simulated machine and workload. The paper gives none: every default is an assumption of ours.

They were fixed before the first study was run and are printed in every report.
"""

from enum import StrEnum
from functools import partial
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import fields

from coresteer.localization.language import Language
from coresteer.localization.text import text
from coresteer_core.experiments.parallel_jobs import JOB_SHARES
from coresteer_core.policies.coscheduling.spec import SIGNS, Enp, ErtSign
from coresteer_core.schema import labelled

Seconds = Annotated[float, Meta(ge=0, le=10)]
Period = Annotated[float, Meta(gt=0, le=10)]
_micros = partial(labelled, unit="µs", scale=1e6, group="advanced")
_millis = partial(labelled, unit="ms", scale=1e3, group="advanced")


class Pattern(StrEnum):
    """With whom a process exchanges messages: its two neighbors in a ring, or all others of its job."""

    NEAREST_NEIGHBOR = "nn"
    ALL_TO_ALL = "aa"


class JobType(StrEnum):
    """Workloads SWL1, SWL2, SWL3: all jobs of type J1, J2, J3."""

    SWL1 = "swl1"
    SWL2 = "swl2"
    SWL3 = "swl3"


SHARES = {JobType.SWL1: JOB_SHARES["j1"], JobType.SWL2: JOB_SHARES["j2"], JobType.SWL3: JOB_SHARES["j3"]}


class Parameters(Struct, frozen=True):
    """Constants of the machine. Times in seconds."""

    nodes: Annotated[int, Meta(ge=2, le=64), labelled("Nodes", "One CPU each.")] = 16
    mpl: Annotated[int, Meta(ge=1, le=8), labelled("Multiprogramming level", "Processes on a node at most.")] = 5
    switch_s: Annotated[Seconds, _micros("Context switch")] = 50e-6
    interrupt_s: Annotated[Seconds, _micros("Interrupt")] = 20e-6
    load_update_s: Annotated[Seconds, _micros("Load update, per message")] = 2e-6
    reorder_s: Annotated[Seconds, _micros("Reordering")] = 1e-6
    reorder_message_s: Annotated[Seconds, _micros("Reordering, per pending message")] = 0.2e-6
    host_s: Annotated[Seconds, _micros("Send or receive a message")] = 5e-6
    latency_s: Annotated[Seconds, _micros("Network latency")] = 10e-6
    exchange_s: Annotated[Period, _millis("Communication phase", "If all processes run at once.")] = 10e-3
    boost_period_s: Annotated[Period, _millis("Boost period", "Of periodic boost.")] = 10e-3
    spin_factor: Annotated[
        float,
        Meta(ge=0, le=1000),
        labelled("Spin time", "A multiple of 2 × (switch + interrupt) + latency.", group="advanced"),
    ] = 1.0
    first_slice_s: Annotated[Period, _millis("Initial mean time slice")] = 50e-3
    wake_window_s: Annotated[Period, _millis("Period of the mean number woken")] = 100e-3
    enp: Enp = "union"
    ert_sign: ErtSign = "minus"
    imbalance: Annotated[
        Literal["per_phase", "per_process", "gamma"],
        labelled(
            "Distribution of the imbalance",
            "Of the factors of computation and I/O, whose mean is 1. Uniform: from 1 − v/2 to 1 + v/2. Gamma: their "
            "squared coefficient of variation is v.",
            group="advanced",
            options={
                "per_phase": "uniform, in each phase",
                "per_process": "uniform, once per process",
                "gamma": "gamma, in each phase",
            },
        ),
    ] = "per_phase"
    offered: Annotated[float, Meta(gt=0, le=2), labelled("Offered load", "Node-seconds of jobs ÷ capacity.")] = 0.9
    mean_run_s: Annotated[float, Meta(gt=0, le=3600), labelled("Mean ideal run time", unit="s")] = 5.0
    jobs: Annotated[int, Meta(ge=1, le=5000), labelled("Jobs")] = 200

    @property
    def spin_s(self) -> float:
        """Return how long spin-block and spin-yield spin: the usual 2-competitive choice by default."""
        return self.spin_factor * (2 * (self.switch_s + self.interrupt_s) + self.latency_s)

    @property
    def sign(self) -> float:
        """Return the sign of the elapsed time, as reorder.expected_run_time() takes it."""
        return SIGNS[self.ert_sign]

    @property
    def is_sum(self) -> bool:
        """Return whether reorder.expected_processes() counts a process twice."""
        return self.enp == "sum"


QUICK = Parameters(mean_run_s=1.0)
SENSITIVE = ("switch_s", "spin_factor", "boost_period_s", "nodes")
"""Halved and doubled in the sensitivity analysis."""


_SCHEMA = msgspec.json.schema(Parameters)["$defs"]["Parameters"]["properties"]


class ParameterFact(NamedTuple):
    """A parameter as reports print it. text: its value with a unit."""

    name: str
    label: str
    help: str
    value: float | str
    text: str


def describe(parameters: Parameters, language: Language = "en") -> list[ParameterFact]:
    """Return every parameter, in the order of their declaration."""
    return [describe_one(field.name, getattr(parameters, field.name), language) for field in fields(parameters)]


def describe_one(name: str, value: float | str, language: Language = "en") -> ParameterFact:
    """Return a value of one parameter."""
    declared = _SCHEMA[name]
    if isinstance(value, str):
        value_text = text(language, f"parameter.{name}.{value}")
    else:
        value_text = f"{value * declared.get('scale', 1):g} {declared.get('unit', '')}".strip()
    help_text = text(language, f"parameter.{name}.help") if "description" in declared else ""
    return ParameterFact(name, text(language, f"parameter.{name}"), help_text, value, value_text)
