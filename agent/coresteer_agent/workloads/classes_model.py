"""Parameters and result of the service classes' experiment."""

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct

from coresteer_core.experiments.model import ClassesMethod

Disturbance: TypeAlias = Literal["none", "worker", "gate", "silent"]

TARGETS_PERCENT = (90.0, 80.0, 70.0, 60.0, 50.0)
NICE_VALUES = (-20, -19, -18, -17, -16)
NICE_WEIGHTS = (88761, 71755, 56483, 46273, 36291)
"""The scheduler's weights of these nice values (kernel/sched/core.c, sched_prio_to_weight)."""


class WorkloadError(Exception):
    """Raised if a workload could not be run; the message has the reason."""


class Setup(Struct, frozen=True, kw_only=True):
    """Parameters of one run of the service classes' experiment. requests: of each of the ten threads of a class.

    disturbance: worker: one child of each class is killed at a random request in the middle half; gate: the gate is
    killed after a fifth of all requests and restarted after 1 s; silent: the third class sends no requests.
    """

    method: ClassesMethod
    requests: Annotated[int, Meta(ge=1, le=10_000)] = 1_000
    seed: int = 0
    window_s: Annotated[float, Meta(ge=0.1, le=3600)] = 2.0
    disturbance: Disturbance = "none"


class ClassResult(Struct, frozen=True):
    """Response times of one class, from connect to answer in µs; None without an answer.

    longest_wait_us: from accept until the request got a CPU. finished_s: from the start until the last answer.
    """

    name: str
    target_percent: float
    completed: int
    failed: int
    mean_us: float | None
    p50_us: int | None
    p95_us: int | None
    p99_us: int | None
    max_us: int | None
    longest_wait_us: int | None
    finished_s: float | None


class Result(Struct, frozen=True):
    """Result of one run of the service classes' experiment. all: of all classes together.

    server_busy, clients_busy: utilization of the servers' CPU and the clients' CPUs, 0 to 1; the first is near 1 if the
    servers are the bottleneck. server_us: CPU time of the servers and their children per request, waiting excluded.
    realtime: the acceptors were real-time tasks. load_before: load average of the last minute before the run.
    """

    setup: Setup
    classes: list[ClassResult]
    all: ClassResult
    throughput_per_s: float
    duration_s: float
    server_cpu: int
    client_cpus: list[int]
    server_busy: float
    clients_busy: float
    server_us: float
    realtime: bool
    load_before: float
    versions: dict[str, str]
