"""The workload of parallel jobs, as in the paper on coscheduling by reordering (PROC)."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta

from coresteer_core.experiments.workload_spec import CPU_METRICS, CpuText, WorkloadSpec
from coresteer_core.schema import labelled

COMMAND = "coresteer-bsp"
"""Name of the processes as a policy sees it, which differs from that of other Python programs."""
JobType: TypeAlias = Literal["j1", "j2", "j3"]
JOB_SHARES: Mapping[JobType, tuple[float, float, float]] = MappingProxyType(
    {"j1": (0.70, 0.05, 0.25), "j2": (0.40, 0.20, 0.40), "j3": (0.25, 0.05, 0.70)}
)
"""Shares of computation, I/O and communication in a loop of a parallel job [PROC, section 4]."""
JobPattern: TypeAlias = Literal["nn", "aa"]
MessageWait: TypeAlias = Literal["block", "spin-block", "busy-wait"]


class Bsp(WorkloadSpec, frozen=True, kw_only=True, tag="bsp"):
    """Workload: bulk-synchronous parallel jobs, whose processes compute, sleep as in I/O, and exchange messages by TCP.

    It ends with the last job (coresteer_agent.workloads.bsp). Each CPU has the role of a node of its own; with two
    machines, so has each machine. imbalance: v of the paper; computation and I/O of each loop are multiplied by uniform
    numbers in [1 − v/2, 1 + v/2]. seed: of these.
    """

    label = "Parallel jobs"
    label_ko = "병렬 작업"
    summary = (
        "Processes of parallel jobs compute, wait as for I/O and exchange messages in each loop; jobs share the CPUs."
    )
    metrics = (
        "job_response_s",
        "makespan_s",
        "loops_per_s",
        "spin_s",
        "idle_percent",
        "voluntary_switches_per_loop",
        "involuntary_switches_per_loop",
        *CPU_METRICS[:-1],
    )

    jobs: Annotated[int, Meta(ge=1, le=16), labelled("Jobs", "All arrive at the start of a run.")] = 3
    processes: Annotated[
        int,
        Meta(ge=2, le=8),
        labelled("Processes of a job", "Each on a CPU of its own; with too few CPUs they share them."),
    ] = 2
    machines: Annotated[
        int,
        Meta(ge=1, le=2),
        labelled(
            "Machines",
            "With 2, every other process of a job runs on the traffic source, or in a network namespace of this node.",
        ),
    ] = 1
    mpl: Annotated[
        int,
        Meta(ge=1, le=16),
        labelled("Multiprogramming level", "Jobs on the same CPUs at a time; further jobs use other CPUs, or wait."),
    ] = 3
    loops: Annotated[int, Meta(ge=1, le=10_000), labelled("Loops", "Of each job.")] = 40
    job_type: Annotated[
        JobType,
        labelled(
            "Job type",
            "Computation / I/O / communication, in percent of a loop.",
            options={
                name: f"{name.upper()}: {'/'.join(f'{100 * share:.0f}' for share in shares)}"
                for name, shares in JOB_SHARES.items()
            },
        ),
    ] = "j1"
    pattern: Annotated[
        JobPattern,
        labelled(
            "Pattern",
            "With which processes of its job a process exchanges messages.",
            options={"nn": "nearest neighbors (NN)", "aa": "all to all (AA)"},
            option_help={"nn": "With its two neighbors in a ring.", "aa": "With all others."},
        ),
    ] = "nn"
    wait: Annotated[
        MessageWait,
        labelled(
            "Waiting",
            "What a process does while a message has not arrived.",
            options={"block": "block", "spin-block": "spin, then block", "busy-wait": "busy-wait"},
            option_help={
                "block": "Sleeps at once.",
                "spin-block": "Polls for a time, then sleeps.",
                "busy-wait": "Polls until the message arrives, and uses the CPU meanwhile.",
            },
        ),
    ] = "spin-block"
    spin_us: Annotated[
        int, Meta(ge=0, le=100_000), labelled("Spin time", "Before a process sleeps in spin, then block.", unit="µs")
    ] = 150
    imbalance: Annotated[
        float, Meta(ge=0, le=2), labelled("Imbalance v", "Range of computation and I/O, relative to their mean.")
    ] = 0.5
    exchange_ms: Annotated[
        float,
        Meta(ge=0.05, le=50),
        labelled(
            "Communication of a loop",
            "About this time if all processes of the job run at once; the amount of data is fixed, not the time.",
            unit="ms",
        ),
    ] = 10.0
    cpus: Annotated[
        CpuText,
        labelled(
            "CPUs",
            "Each process is pinned to one of them.",
            format="cpu-list",
            placeholder="the lowest that suffice",
        ),
    ] = ""
    seed: Annotated[int, Meta(ge=0, le=2**31 - 1), labelled("Seed", "Of the imbalance.", group="advanced")] = 0

    @property
    def loop_s(self) -> tuple[float, float, float]:
        """Return the mean time of computation, I/O and communication of a loop of a process that is never preempted."""
        shares, exchange_s = JOB_SHARES[self.job_type], self.exchange_ms / 1000
        compute_s, io_s = (exchange_s * share / shares[2] for share in shares[:2])
        return compute_s, io_s, exchange_s

    @property
    def work_s(self) -> float:
        """Return about how long all jobs take if they take turns on the same CPUs."""
        return self.jobs * self.loops * sum(self.loop_s)
