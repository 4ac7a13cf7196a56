"""Workloads of experiments, and the request and result of one run on a node."""

from enum import StrEnum
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct

from coresteer_core.bounds import Quantity, Sentence
from coresteer_core.cpuset import MAX_CPUS
from coresteer_core.experiments.parallel_jobs import Bsp
from coresteer_core.experiments.workload_spec import CPU_METRICS, CpuText, WorkloadSpec
from coresteer_core.metrics import CLASS_NAMES
from coresteer_core.schema import labelled

_RX_METRICS = ("packets_per_s", "interrupts_per_s", "packets_per_interrupt", "dropped_per_s", "squeezed_per_s")
_RTT_METRICS = ("rtt_p99_us", "rtt_p95_us", "rtt_p50_us")
_CLASS_METRICS = tuple(f"{name}_mean_us" for name in CLASS_NAMES)
VETH_PREFIX = "coresteer"
"""Of the name of the netdev that receives a client's traffic from a network namespace; a number follows."""
THREADS_PER_CLASS = 10
"""Of the workload Classes."""
MAX_RUN_S = 600.0
"""Maximum duration of the measurement of a run, and of a workload that ends by itself."""
_REQUESTS_PER_S = 500
"""Of the workload Classes, about; a fork for each request limits it."""
_SLOWEST = 10
_START_S = 30.0

ClassesMethod: TypeAlias = Literal["default", "nice", "cgroup", "gate", "weight"]
"""Mechanism that prefers service classes in the workload Classes."""

MemoryAccess: TypeAlias = Literal["stream", "chase"]
FirstTouch: TypeAlias = Literal["lowest", "own"]

ServerCpus: TypeAlias = Annotated[
    CpuText,
    labelled(
        "Server CPUs",
        "CPUs of the receiving processes; each process is pinned to one of them, in turn.",
        format="cpu-list",
        placeholder="any",
    ),
]
ClientCpus: TypeAlias = Annotated[
    CpuText,
    labelled(
        "Client CPUs",
        "CPUs of the sending processes; each process is pinned to one of them, in turn.",
        format="cpu-list",
        placeholder="any",
    ),
]
Connections: TypeAlias = Annotated[int, Meta(ge=1, le=64)]
MbitLimit: TypeAlias = Annotated[
    int,
    Meta(ge=1, le=400_000),
    labelled("Rate limit", "Limit for all connections together; 400000: none.", unit="Mbit/s"),
]


class TcpStream(WorkloadSpec, frozen=True, kw_only=True, tag="tcp-stream"):
    """Workload: TCP connections that send to the node under test, which discards the data."""

    label = "TCP stream"
    label_ko = "TCP 스트림"
    summary = "TCP connections that send as fast as the rate limit allows; the node under test discards the data."
    metrics = ("throughput_bit_per_s", "cpu_s_per_gbit", "gbit_per_cpu_s", *_RX_METRICS, *CPU_METRICS)

    connections: Annotated[Connections, labelled("Connections", "TCP connections that send at the same time.")] = 4
    limit_mbit_per_s: MbitLimit = 400_000
    server_cpus: ServerCpus = ""
    client_cpus: ClientCpus = ""


class TcpRequest(WorkloadSpec, frozen=True, kw_only=True, tag="tcp-request"):
    """Workload: requests over TCP; each connection sends the next one when the response has arrived."""

    label = "TCP requests"
    label_ko = "TCP 요청/응답"
    summary = "Each connection sends a request, waits for the response, and repeats."
    metrics = (
        *(*_RTT_METRICS, "requests_per_s", *_RX_METRICS, *CPU_METRICS),
        *("throughput_bit_per_s", "cpu_s_per_gbit"),
    )

    connections: Annotated[
        Connections, labelled("Connections", "TCP connections that send requests at the same time.")
    ] = 8
    request_bytes: Annotated[int, Meta(ge=1, le=65_536), labelled("Request size", unit="bytes")] = 64
    response_bytes: Annotated[int, Meta(ge=1, le=1_048_576), labelled("Response size", unit="bytes")] = 64
    work_us: Annotated[
        int, Meta(ge=0, le=1_000_000), labelled("Server work", "CPU time of the server for each request.", unit="µs")
    ] = 0
    limit_per_s: Annotated[
        int,
        Meta(ge=1, le=10_000_000),
        labelled("Rate limit", "Limit for all connections together.", unit="requests/s"),
    ] = 10_000_000
    server_cpus: ServerCpus = ""
    client_cpus: ClientCpus = ""


class UdpFlood(WorkloadSpec, frozen=True, kw_only=True, tag="udp-flood"):
    """Workload: UDP from many source ports at a steady rate; the node under test counts the packets."""

    label = "UDP flood"
    label_ko = "UDP 플러드"
    summary = "Small UDP packets from many source ports at a constant rate; the node under test counts them."
    metrics = ("packets_per_s", "cpu_busy_percent", *_RX_METRICS[1:], *CPU_METRICS[1:])

    flows: Annotated[
        int,
        Meta(ge=1, le=1024),
        labelled("Flows", "Number of source ports; RSS distributes them over the receive queues."),
    ] = 64
    payload_bytes: Annotated[
        int, Meta(ge=16, le=8_972), labelled("Payload size", "Payload bytes of each packet.", unit="bytes")
    ] = 64
    packets_per_s: Annotated[
        int, Meta(ge=1, le=5_000_000), labelled("Packet rate", "Rate of all flows together.", unit="packets/s")
    ] = 20_000
    server_cpus: ServerCpus = ""
    client_cpus: ClientCpus = ""


class Iperf3(WorkloadSpec, frozen=True, kw_only=True, tag="iperf3"):
    """Workload: the program iperf3, where it is installed, with TCP or UDP."""

    label = "iperf3"
    label_ko = "iperf3"
    summary = "Runs the program iperf3 if it is installed."
    metrics = ("throughput_bit_per_s", "cpu_s_per_gbit", "gbit_per_cpu_s", *_RX_METRICS, *CPU_METRICS)

    udp: Annotated[bool, labelled("UDP instead of TCP")] = False
    streams: Annotated[Connections, labelled("Streams", "Connections or flows that send at the same time.")] = 4
    limit_mbit_per_s: MbitLimit = 10_000
    server_cpus: ServerCpus = ""
    client_cpus: ClientCpus = ""


class Classes(WorkloadSpec, frozen=True, kw_only=True, tag="classes"):
    """Workload: five service classes of requests on loopback (coresteer_agent.workloads.classes).

    It ends with the last response.
    """

    label = "Service classes"
    label_ko = "서비스 클래스"
    summary = "Five clients, one for each class, send requests to an echo server that forks for each request."
    metrics = ("c5_by_c1", "all_mean_us", *_CLASS_METRICS, "longest_wait_us", *CPU_METRICS)

    method: Annotated[
        ClassesMethod,
        labelled(
            "Method",
            "Mechanism that prefers the first classes to the last.",
            options={
                "default": "kernel default",
                "nice": "nice values",
                "cgroup": "cpu.weight of cgroups",
                "gate": "gate",
                "weight": "weights by attainment",
            },
        ),
    ] = "default"
    requests: Annotated[
        int,
        Meta(ge=10, le=10_000),
        labelled(
            "Requests",
            "Of each of the ten threads of a class; a run ends when all are answered. In the paper 1,000.",
            unit="per thread",
        ),
    ] = 100
    window_s: Annotated[
        float,
        Meta(ge=0.1, le=3600),
        labelled(
            "Window",
            "Of the gate and of weights by attainment: N and S count the requests of this time. With a longer window, "
            "the order approaches strict precedence.",
            unit="s",
        ),
    ] = 2.0

    @property
    def total_requests(self) -> int:
        """Return the number of requests of all classes."""
        return len(CLASS_NAMES) * THREADS_PER_CLASS * self.requests

    @property
    def work_s(self) -> float:
        """Return about how long a run takes."""
        return self.total_requests / _REQUESTS_PER_S

    @property
    def limit_s(self) -> float:
        """Return how long a run may take: many times the usual duration, as a run that ends at its limit is lost."""
        return min(MAX_RUN_S, _START_S + _SLOWEST * self.work_s)


class Memory(WorkloadSpec, frozen=True, kw_only=True, tag="memory"):
    """Workload: processes that compute and processes that use memory, each with a fixed amount of work.

    It ends with the last process (coresteer_agent.workloads.memory). seed: of the random order of chased addresses.
    """

    label = "Computing and memory processes"
    label_ko = "연산 및 메모리 프로세스"
    summary = (
        "Some processes compute, others use memory; each has a fixed amount of work, and a run ends with the last."
    )
    metrics = ("makespan_s", "memory_run_s", "compute_run_s", "remote_numa_share", "pages_moved", *CPU_METRICS[:-1])

    compute_processes: Annotated[
        int, Meta(ge=0, le=64), labelled("Computing processes", "Processes that need only a CPU and its cache.")
    ] = 1
    memory_processes: Annotated[int, Meta(ge=1, le=64), labelled("Memory processes")] = 1
    access: Annotated[
        MemoryAccess,
        labelled(
            "Access",
            "How the memory processes use their memory.",
            options={"stream": "streaming", "chase": "pointer chasing"},
            option_help={
                "stream": "Copies one half to the other: needs bandwidth.",
                "chase": "Follows addresses in random order: waits for each access.",
            },
        ),
    ] = "stream"
    mib: Annotated[int, Meta(ge=1, le=65_536), labelled("Memory", "Memory of each memory process.", unit="MiB")] = 256
    work_s: Annotated[
        float,
        Meta(ge=0.01, le=240),
        labelled(
            "Work",
            "Of each process: about this time on a CPU of its own. The amount of work is fixed, not the time.",
            unit="s",
        ),
    ] = 20.0
    first_touch: Annotated[
        FirstTouch,
        labelled(
            "First touch",
            "On which NUMA node the memory is allocated.",
            options={"lowest": "lowest NUMA node", "own": "where the process runs"},
            option_help={
                "lowest": "Each process touches its memory on CPUs of the lowest NUMA node, then runs anywhere.",
                "own": "Each process touches its memory on its own CPU.",
            },
        ),
    ] = "lowest"
    compute_cpus: Annotated[
        CpuText,
        labelled(
            "CPUs of computing processes",
            "Each process is pinned to one of them, in turn.",
            format="cpu-list",
            placeholder="any",
        ),
    ] = ""
    memory_cpus: Annotated[
        CpuText,
        labelled(
            "CPUs of memory processes",
            "Each process is pinned to one of them, in turn.",
            format="cpu-list",
            placeholder="any",
        ),
    ] = ""
    seed: Annotated[int, Meta(ge=0, le=2**31 - 1), labelled("Seed", "Of random addresses.", group="advanced")] = 0


class Observe(WorkloadSpec, frozen=True, kw_only=True, tag="observe"):
    """Workload without generated load: the node's existing traffic is measured."""

    label = "Existing traffic"
    label_ko = "노드의 실제 트래픽(부하를 생성하지 않음)"
    summary = "Generates no load and measures the node's own traffic."
    metrics = (
        "cpu_softirq_percent",
        *_RTT_METRICS[::-1],
        *_RX_METRICS,
        *(name for name in CPU_METRICS if name != "cpu_softirq_percent"),
    )


class Command(WorkloadSpec, frozen=True, kw_only=True, tag="command"):
    """Workload: a command that the operator allowed by name in the agent's configuration file; it ends by itself.

    Its last line of output may be a JSON object of numbers; they become metrics named ``command.NAME``.
    """

    label = "Command"
    label_ko = "명령"
    summary = "Runs a command that the agent's configuration file allows by name, until it exits."
    metrics = ("cpu_busy_percent", *_RX_METRICS, *CPU_METRICS[1:])

    name: Annotated[
        str,
        Meta(min_length=1, max_length=64, pattern="^[a-z0-9][a-z0-9_-]*$"),
        labelled("Name", "The command's name in the agent's configuration."),
    ]


Traffic: TypeAlias = TcpStream | TcpRequest | UdpFlood | Iperf3
"""Workloads of traffic from a client, which is on another node or in a network namespace, to the node under test."""
Finite: TypeAlias = Classes | Memory | Bsp | Command
"""Workloads that end by themselves; a run is measured from their start to their end, without a warm-up."""
Workload: TypeAlias = Traffic | Finite | Observe

Role: TypeAlias = Literal["alone", "server", "client"]
"""Part of a node in a workload. alone: server and client, the latter in a network namespace of its own."""


def has_client(workload: Workload) -> bool:
    """Return whether a part of the workload, its client, runs on another node or in a network namespace of its own."""
    return isinstance(workload, Traffic) or (isinstance(workload, Bsp) and workload.machines > 1)


class Receipts(Struct, frozen=True):
    """How a client recognizes the program that receives its load, on another node.

    port: UDP, at the server's address. key: random, for one run; both sides know it.
    """

    port: Annotated[int, Meta(ge=1, le=65_535)]
    key: Annotated[str, Meta(max_length=128)]


class Run(Struct, frozen=True, kw_only=True):
    """Request for one run of an experiment: start the workload, warm up, measure, stop the workload.

    warmup_s: before a Command starts; other Finite workloads have no warm-up. measure_s: also the most that a Finite
    workload may take.
    irqbalance: let it run meanwhile; every affinity that it changes is restored. irqbalance_cpus: to which alone it may
    move interrupts; empty for its own choice. address: of the server, for it and for its client on another node.
    receipts: for both of them. netdevs: those whose packets count; empty for all NICs that are up
    (Inventory.active_nics()), or where there is none for all netdevs but loopback: on bridges and the ends of veth
    pairs a packet would count again.
    """

    run_id: str
    workload: Workload
    role: Role
    warmup_s: float
    measure_s: float
    irqbalance: bool = False
    irqbalance_cpus: CpuText = ""
    address: str = ""
    receipts: Receipts | None = None
    netdevs: list[str] = []


_CpuPercent: TypeAlias = Annotated[float, Meta(ge=0, le=101)]
"""Above 100, because clock ticks are counted a little early or late."""


class RunResult(Struct, frozen=True, kw_only=True):
    """Result of one run of an experiment on a node: metrics over its measured time.

    figures: by the names of coresteer_core.metrics.EXPERIMENT_METRICS, and ``command.NAME``. cpus: percent of each
    CPU's time by kind (busy, user, system, irq, softirq, steal), an element a CPU number, None where unknown.
    steal_percent: of all CPUs together. load_before: runnable tasks in the last minute before it. disturbed:
    sentences, judged without the measured values, that say why this run should not count (a CPU went offline, the host
    took time away); empty without a reason.
    """

    started_ms: int
    duration_s: Annotated[float, Meta(gt=0, le=86_400)]
    figures: dict[str, Annotated[float, Meta(gt=-1e18, lt=1e18)]]
    cpus: dict[str, Annotated[list[_CpuPercent | None], Meta(max_length=MAX_CPUS)]]
    load_before: Quantity
    steal_percent: Annotated[float, Meta(ge=0, le=100)] | None = None
    disturbed: Annotated[list[Sentence], Meta(max_length=64)] = []


class RunState(StrEnum):
    """State of an experiment, or of one of its runs, on a node: ready, loaded, measured, failed."""

    READY = "ready"
    LOADED = "loaded"
    MEASURED = "measured"
    FAILED = "failed"
