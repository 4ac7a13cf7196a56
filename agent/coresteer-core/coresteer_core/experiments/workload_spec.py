"""Base of the workloads of experiments."""

from typing import Annotated, ClassVar, TypeAlias

from msgspec import Meta, Struct

CPU_METRICS = (
    "cpu_busy_percent",
    "cpu_softirq_percent",
    "cpu_irq_percent",
    "cpu_user_percent",
    "cpu_system_percent",
    "context_switches_per_s",
    "migrations_per_s",
    "remote_numa_share",
)

CpuText: TypeAlias = Annotated[str, Meta(max_length=1024)]
"""A CPU list for the processes of a workload; empty leaves the choice to the kernel."""


class WorkloadSpec(Struct, frozen=True, kw_only=True):
    """Base of the workloads: the load that runs during an experiment, with its parameters.

    label, label_ko: its name in English and Korean, for forms and reports. summary: one sentence about it. metrics:
    those that may be primary, the usual one first.
    """

    label: ClassVar[str]
    label_ko: ClassVar[str]
    summary: ClassVar[str]
    metrics: ClassVar[tuple[str, ...]]
