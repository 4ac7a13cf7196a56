"""Metrics: one row for each number that Coresteer measures; every layer derives its names, labels and units from it.

Derived from the rows: the counters that the agent reads, the columns of chunks and roll-ups, the series of the history
API, live frames, the fleet's figures, guardrails, the metrics of experiments and reports, and the front end's
src/api/metrics.ts.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Literal, TypeAlias

from msgspec import Struct

SourceKind: TypeAlias = Literal["netdev", "cpu", "irq", "tcp", "agent", "counter"]
Chart: TypeAlias = Literal[
    "", "throughput", "packets", "interrupts", "softirq", "round-trip", "losses", "distance", "polling", "agent"
]

SNMP_PATH, NETSTAT_PATH, VMSTAT_PATH = "proc/net/snmp", "proc/net/netstat", "proc/vmstat"


class Source(Struct, frozen=True):
    """Source of a metric: where its amount is read, and the field name in samples, chunks and roll-ups.

    kind: ``netdev``: the field of NetdevCounts, summed over the netdevs that count; ``cpu``: a column of Rates.counts,
    summed over the CPUs; ``irq``: interrupts of devices, without architecture rows such as LOC; ``tcp``: the field of
    TcpLatency; ``agent``: the field of Rates; ``counter``: the entry of Rates.counters, which the agent reads from a
    column of a table in a file in the format of /proc/net/snmp (kernel: net/ipv4/proc.c), or without a table from the
    line of that name, as in /proc/vmstat (kernel: mm/vmstat.c), or computes, without a path.
    level: a value at a moment, whose roll-up is the maximum, and in reports the mean. Otherwise an increment: its
    roll-up is the sum, and its metric is a rate.
    """

    kind: SourceKind
    field: str
    level: bool = False
    column: str = ""
    table: str = ""
    path: str = ""


class MetricLabel(Struct, frozen=True):
    """Label of a metric in English, the unit of its values, and whether more or less is better.

    better: empty where neither direction is an improvement by itself.
    """

    label: str
    unit: str
    better: Literal["more", "less", ""] = ""


class Metric(MetricLabel, frozen=True, kw_only=True):
    """Declaration of one metric: label, unit, direction, source or formula, and where it is shown.

    label_ko: its name in Korean reports; short: in legends of charts and headings of tables. source, factor: the value
    is amount × factor, per second where the amount is an increment. formula: for a metric that is computed otherwise.

    Where it is shown. history: a series of the history API, and in live frames; chart: of the node's page; fleet: a
    figure of the fleet's page; experiment: measured in runs; report: in reports on a node's stored minutes; guardrail:
    how sentences name it, empty where a guardrail cannot watch it.
    """

    label_ko: str
    source: Source | None = None
    factor: float = 1.0
    formula: str = ""
    short: str = ""
    history: bool = False
    chart: Chart = ""
    fleet: bool = False
    experiment: bool = False
    report: bool = False
    guardrail: str = ""

    def value(self, amount: float, duration_s: float) -> float:
        """Return the value of an amount of the source in an interval of duration_s > 0."""
        is_level = self.source is not None and self.source.level
        return amount * self.factor / (1.0 if is_level else duration_s)


_CPU_TIME = "sum over the CPUs of the percentage of time"
_CPU_UNIT = "% of one CPU"
CLASS_NAMES = ("c1", "c2", "c3", "c4", "c5")
"""The service classes of the workload ``classes``, the most preferred first."""
_LOAD = "measured by the load, from its own requests"
_LOAD_ITSELF = "measured by the load itself"
DISTANCES = {
    "core": ("the same core", "같은 코어"),
    "l2": ("a shared L2", "공유 L2"),
    "l3": ("a shared L3", "공유 L3"),
    "node": ("the same NUMA node", "같은 NUMA 노드"),
    "remote": ("another NUMA node", "다른 NUMA 노드"),
    "unknown": ("unknown CPUs", "알 수 없는 CPU"),
}
"""Classes of the distance between the CPU that handles received bytes and their process, by field of ByDistance."""
_RECEIVED: tuple[tuple[str, str, str, Chart], ...] = (
    ("rx", "Received, protocol work on", "프로토콜 처리된", "distance"),
    ("polled", "Received, polled on", "폴링된", "polling"),
)

METRICS: Mapping[str, Metric] = MappingProxyType(
    {
        "rx_bytes_per_s": Metric(
            "Received", "B/s", label_ko="수신 속도", source=Source("netdev", "rx_bytes"),
            short="received", history=True, chart="throughput", fleet=True,
        ),
        "tx_bytes_per_s": Metric(
            "Sent", "B/s", label_ko="송신 속도", source=Source("netdev", "tx_bytes"),
            short="sent", history=True, chart="throughput", fleet=True,
        ),
        "rx_packets_per_s": Metric(
            "Packets received", "1/s", label_ko="초당 수신 패킷 수", source=Source("netdev", "rx_packets"),
            short="received", history=True, chart="packets", fleet=True,
        ),
        "rx_bit_per_s": Metric(
            "Received", "bit/s", label_ko="수신 속도", source=Source("netdev", "rx_bytes"), factor=8, report=True
        ),
        "tx_bit_per_s": Metric(
            "Sent", "bit/s", label_ko="송신 속도", source=Source("netdev", "tx_bytes"), factor=8, report=True
        ),
        "throughput_bit_per_s": Metric(
            "Throughput", "bit/s", "more", label_ko="처리량", experiment=True,
            formula=f"payload, of requests and responses; without a load, all bytes of the netdevs × 8 / s ({_LOAD})",
        ),
        "requests_per_s": Metric("Requests", "1/s", "more", label_ko="초당 요청 수", formula=_LOAD, experiment=True),
        "packets_per_s": Metric(
            "Packets received", "1/s", "more", label_ko="초당 수신 패킷 수", source=Source("netdev", "rx_packets"),
            experiment=True, report=True,
        ),
        "tx_packets_per_s": Metric(
            "Packets sent", "1/s", label_ko="초당 송신 패킷 수", source=Source("netdev", "tx_packets"),
            short="sent", history=True, chart="packets", report=True,
        ),
        "interrupts_per_s": Metric(
            "Device interrupts", "1/s", "less", label_ko="초당 장치 인터럽트 수", source=Source("irq", "interrupts"),
            short="interrupts", history=True, chart="interrupts", fleet=True, experiment=True, report=True,
        ),
        "packets_per_interrupt": Metric(
            "Packets per interrupt", "", label_ko="인터럽트당 패킷 수",
            formula="received packets / interrupts (coresteer_core.metrics.packets_per_interrupt); in experiments of "
            "netdevs that have interrupts of their own",
            experiment=True, report=True,
        ),
        "cpu_busy_percent": Metric(
            "CPU, all CPUs together", _CPU_UNIT, "less", label_ko="전체 CPU 사용률 합계",
            formula=f"{_CPU_TIME} in user, system, irq and softirq", experiment=True, report=True,
        ),
        "cpu_softirq_percent": Metric(
            "CPU in softirq", _CPU_UNIT, label_ko="softirq CPU 사용률",
            formula=f"{_CPU_TIME} in softirq", experiment=True, report=True,
        ),
        "cpu_irq_percent": Metric(
            "CPU in interrupts", _CPU_UNIT, label_ko="하드웨어 인터럽트 CPU 사용률",
            formula=f"{_CPU_TIME} in irq", experiment=True, report=True,
        ),
        "cpu_user_percent": Metric(
            "CPU in user space", _CPU_UNIT, label_ko="사용자 영역 CPU 사용률",
            formula=f"{_CPU_TIME} in user", experiment=True, report=True,
        ),
        "cpu_system_percent": Metric(
            "CPU in the kernel", _CPU_UNIT, label_ko="커널 영역 CPU 사용률",
            formula=f"{_CPU_TIME} in system", experiment=True, report=True,
        ),
        "cpu_s_per_gbit": Metric(
            "CPU per gigabit", "s/Gbit", "less", label_ko="기가비트당 CPU 시간",
            formula="CPU seconds / gigabits moved (coresteer_core.metrics.cpu_s_per_gbit)",
            experiment=True, report=True,
        ),
        "gbit_per_cpu_s": Metric(
            "CPU effectiveness", "Gbit/s per CPU", "more", label_ko="CPU 효율(CPU 시간당 전송량)",
            formula="gigabits moved / CPU seconds (coresteer_core.metrics.gbit_per_cpu_s)", experiment=True,
        ),
        "busiest_cpu_percent": Metric(
            "Busiest CPU", "%", "less", label_ko="가장 바쁜 CPU 사용률", formula="largest busy share of a CPU",
            short="busiest CPU", fleet=True, guardrail="busiest CPU in percent",
        ),
        "softirq_cpu_percent": Metric(
            "Softirq on its busiest CPU", "%", "less", label_ko="softirq가 가장 많은 CPU의 비율",
            formula="largest softirq share of a CPU", short="softirq, hottest", chart="softirq", fleet=True,
        ),
        "rtt_p50_us": Metric(
            "Round-trip time, median", "µs", "less", label_ko="왕복 시간 중앙값",
            source=Source("tcp", "rtt_p50_us", level=True),
            short="RTT p50", history=True, chart="round-trip", experiment=True, report=True,
        ),
        "rtt_p95_us": Metric(
            "Round-trip time, 95th percentile", "µs", "less", label_ko="왕복 시간 95백분위수",
            source=Source("tcp", "rtt_p95_us", level=True),
            short="RTT p95", history=True, chart="round-trip", experiment=True, report=True,
        ),
        "rtt_p99_us": Metric(
            "Round-trip time, 99th percentile", "µs", "less", label_ko="왕복 시간 99백분위수",
            source=Source("tcp", "rtt_p99_us", level=True),
            short="RTT p99", history=True, chart="round-trip", fleet=True, experiment=True, report=True,
            guardrail="TCP round-trip time p99 in µs",
        ),
        "dropped_per_s": Metric(
            "Packets dropped by netdevs", "1/s", "less", label_ko="초당 네트워크 장치 손실 패킷 수",
            formula="rx_dropped + tx_dropped of the netdevs, which include softnet's drops",
            short="dropped packets", experiment=True, guardrail="dropped packets per second",
        ),
        "softnet_dropped_per_s": Metric(
            "Packets dropped by softnet", "1/s", "less", label_ko="초당 softnet 손실 패킷 수",
            source=Source("cpu", "dropped", column="dropped"),
            short="softnet drops", history=True, chart="losses", fleet=True, report=True,
        ),
        "squeezed_per_s": Metric(
            "Softirq budget used up", "1/s", "less", label_ko="초당 softirq 예산 소진 횟수",
            source=Source("cpu", "squeezed", column="time_squeeze"),
            short="squeezed", history=True, chart="losses", fleet=True, experiment=True, report=True,
        ),
        "retransmits_per_s": Metric(
            "TCP retransmissions", "1/s", "less", label_ko="초당 TCP 재전송 횟수",
            source=Source("counter", "tcp_retransmits", column="RetransSegs", table="Tcp", path=SNMP_PATH),
            short="retransmitted", history=True, chart="losses", report=True,
        ),
        "tcp_listen_overflows_per_s": Metric(
            "TCP listen queue overflows", "1/s", "less", label_ko="초당 TCP listen 큐 넘침 횟수", source=Source(
                "counter", "tcp_listen_overflows", column="ListenOverflows", table="TcpExt", path=NETSTAT_PATH
            ),
            short="listen overflows", history=True, chart="losses", report=True,
        ),
        "tcp_segments_sent_per_s": Metric(
            "TCP segments sent", "1/s", label_ko="초당 TCP 세그먼트 송신 수",
            source=Source("counter", "tcp_out_segments", column="OutSegs", table="Tcp", path=SNMP_PATH),
            short="segments sent", history=True,
        ),
        "context_switches_per_s": Metric(
            "Context switches", "1/s", label_ko="초당 문맥 교환 횟수", formula="ctxt of /proc/stat", experiment=True
        ),
        "migrations_per_s": Metric(
            "Tasks moved between CPUs", "1/s", "less", label_ko="초당 태스크의 CPU 간 이동 횟수",
            formula="the scheduler's migrations of tasks", experiment=True,
        ),
        "remote_numa_share": Metric(
            "Memory from another NUMA node", "", "less", label_ko="원격 NUMA 노드 메모리 비율",
            formula="other_node / (local_node + other_node) of numastat; in the workload memory, the share of its "
            "memory on other nodes than its CPU, when a process ends; in reports from /proc/vmstat",
            experiment=True, report=True,
        ),
        "numa_local_per_s": Metric(
            "Pages allocated on the own NUMA node", "1/s", label_ko="초당 로컬 NUMA 노드 페이지 할당 수",
            source=Source("counter", "numa_local", column="numa_local", path=VMSTAT_PATH), report=True,
        ),
        "numa_other_per_s": Metric(
            "Pages allocated on another NUMA node", "1/s", "less", label_ko="초당 원격 NUMA 노드 페이지 할당 수",
            source=Source("counter", "numa_other", column="numa_other", path=VMSTAT_PATH), report=True,
        ),
        "pages_moved_per_s": Metric(
            "Pages moved per second", "1/s", "less", label_ko="초당 이동한 페이지 수",
            source=Source("counter", "pages_moved", column="pgmigrate_success", path=VMSTAT_PATH), report=True,
        ),
        "pages_moved": Metric(
            "Pages moved", "", "less", label_ko="이동한 페이지 수",
            formula="pgmigrate_success of /proc/vmstat: by page moves, NUMA balancing and compaction", experiment=True,
        ),
        "contention_factor": Metric(
            "Contention factor", "", "less", label_ko="경합 계수",
            formula="largest contention degradation factor of a process (coresteer_core.policies.numa.factors), "
            "mean over a run", experiment=True,
        ),
        "makespan_s": Metric(
            "Total run time", "s", "less", label_ko="총 실행 시간",
            formula=f"from the common start to the end of the last process ({_LOAD_ITSELF})", experiment=True,
        ),
        "memory_run_s": Metric(
            "Run time of memory processes", "s", "less", label_ko="메모리 프로세스 실행 시간",
            formula=f"mean over processes ({_LOAD_ITSELF})", experiment=True,
        ),
        "compute_run_s": Metric(
            "Run time of computing processes", "s", "less", label_ko="연산 프로세스 실행 시간",
            formula=f"mean over processes ({_LOAD_ITSELF})", experiment=True,
        ),
        "job_response_s": Metric(
            "Response time of a job", "s", "less", label_ko="작업 응답 시간",
            formula=f"from the arrival of a job to the end of its last process, mean over jobs ({_LOAD_ITSELF})",
            experiment=True,
        ),
        "loops_per_s": Metric(
            "Loops of jobs", "1/s", "more", label_ko="초당 작업 루프 수",
            formula=f"loops of all jobs / total run time ({_LOAD_ITSELF})", experiment=True,
        ),
        "spin_s": Metric(
            "CPU time spent spinning", "s", "less", label_ko="스핀 CPU 시간",
            formula=f"CPU time of polling for messages that had not arrived, over all processes ({_LOAD_ITSELF})",
            experiment=True,
        ),
        "idle_percent": Metric(
            "Idle, CPUs of the load", "%", "less", label_ko="부하 CPU의 유휴 비율",
            formula=f"share of idle and iowait on the CPUs of the load, from the common start to the end "
            f"({_LOAD_ITSELF})", experiment=True,
        ),
        "voluntary_switches_per_loop": Metric(
            "Voluntary context switches per loop", "", label_ko="루프당 자발적 문맥 교환 횟수",
            formula=f"ru_nvcsw of all processes / loops of all jobs ({_LOAD_ITSELF})", experiment=True,
        ),
        "involuntary_switches_per_loop": Metric(
            "Involuntary context switches per loop", "", label_ko="루프당 비자발적 문맥 교환 횟수",
            formula=f"ru_nivcsw of all processes / loops of all jobs ({_LOAD_ITSELF})", experiment=True,
        ),
        **{
            f"{name}_mean_us": Metric(
                f"Response time, class {name[1:]}", "µs", "less", label_ko=f"클래스 {name[1:]} 응답 시간",
                formula=_LOAD, experiment=True,
            )
            for name in CLASS_NAMES
        },
        "all_mean_us": Metric(
            "Response time, all classes", "µs", "less", label_ko="전체 클래스 응답 시간", formula=_LOAD, experiment=True
        ),
        "c5_by_c1": Metric(
            "Class 5 / class 1", "", "more", label_ko="클래스 5 / 클래스 1 비율", formula="c5_mean_us / c1_mean_us",
            experiment=True,
        ),
        "longest_wait_us": Metric(
            "Longest wait for a CPU", "µs", "less", label_ko="CPU 최장 대기 시간", formula=_LOAD, experiment=True
        ),
        **{
            f"{kind}_bytes_{unit}_per_s": Metric(
                f"{label} {where}", "B/s", label_ko=f"{where_ko}에서 {label_ko} 수신 속도",
                source=Source("counter", f"{kind}_bytes_{unit}"), short=where, history=True, chart=chart,
            )
            for kind, label, label_ko, chart in _RECEIVED
            for unit, (where, where_ko) in DISTANCES.items()
        },
        "wrong_node_percent": Metric(
            "Wrong-node bytes", "%", "less", label_ko="다른 NUMA 노드에서 처리된 수신 바이트 비율",
            formula="received bytes whose protocol work is on another NUMA node than their process, of those whose CPU "
            "is known (coresteer_core.metrics.wrong_node_percent)", short="wrong-node bytes", fleet=True,
        ),
        "agent_cpu_percent": Metric(
            "CPU of the agent", _CPU_UNIT, "less", label_ko="에이전트 CPU 사용률",
            source=Source("agent", "agent_cpu_s"), factor=100, short="agent CPU", history=True, chart="agent",
            fleet=True,
        ),
        "agent_rss_bytes": Metric(
            "Memory of the agent", "B", "less", label_ko="에이전트 메모리",
            source=Source("agent", "agent_rss_bytes", level=True), short="agent memory", history=True, fleet=True,
        ),
    }
)  # fmt: skip
"""Every metric by name, in the order in which it is shown."""


HISTORY_METRICS: Mapping[str, Metric] = MappingProxyType({name: one for name, one in METRICS.items() if one.history})
FLEET_METRICS: Mapping[str, Metric] = MappingProxyType({name: one for name, one in METRICS.items() if one.fleet})
EXPERIMENT_METRICS: Mapping[str, Metric] = MappingProxyType(
    {name: one for name, one in METRICS.items() if one.experiment}
)
"""Metrics measured in experiments; a command's own metrics are ``command.NAME``, and unreadable ones are missing."""
REPORT_METRICS: Mapping[str, Metric] = MappingProxyType({name: one for name, one in METRICS.items() if one.report})
GUARDRAIL_METRICS: Mapping[str, str] = MappingProxyType(
    {name: one.guardrail for name, one in METRICS.items() if one.guardrail}
)
"""Metrics that a guardrail may bound, each with its name for a sentence."""

SCALAR_SOURCES: Mapping[str, Source] = MappingProxyType(
    {one.source.field: one.source for one in METRICS.values() if one.source and one.source.kind != "netdev"}
)
"""Sources that chunks and roll-ups store as one number per sample, by field."""
COUNTER_SOURCES: Mapping[str, Source] = MappingProxyType(
    {name: one for name, one in SCALAR_SOURCES.items() if one.kind == "counter"}
)
"""Sources of Rates.counters, by field: read from a file such as /proc/net/snmp, or computed by the agent."""


def cpu_s_per_gbit(cpu_percent: float | None, bit_per_s: float | None) -> float | None:
    """Return CPU seconds per gigabit transferred; None where either is unknown or nothing was transferred.

    cpu_percent: of one CPU, over all CPUs.
    """
    return cpu_percent / 100 / (bit_per_s / 1e9) if cpu_percent is not None and bit_per_s else None


def gbit_per_cpu_s(cpu_percent: float | None, bit_per_s: float | None) -> float | None:
    """Return gigabits transferred per CPU second; None where either is unknown or no CPU time was used.

    cpu_percent: of one CPU, over all CPUs.
    """
    return bit_per_s / 1e9 / (cpu_percent / 100) if cpu_percent and bit_per_s is not None else None


def packets_per_interrupt(packets: float | None, interrupts: float | None) -> float | None:
    """Return the received packets for each interrupt, None where either is unknown or there was no interrupt."""
    return packets / interrupts if packets is not None and interrupts else None


def wrong_node_percent(amount: Callable[[str], float | None]) -> float | None:
    """Return the percentage of received bytes whose protocol work is on another NUMA node than their process.

    Of the bytes whose CPU is known; None without any. amount: of an entry of Rates.counters in some time.
    """
    placed = [amount(f"rx_bytes_{unit}") for unit in DISTANCES if unit != "unknown"]
    total = sum(bytes_ for bytes_ in placed if bytes_ is not None)
    remote = amount("rx_bytes_remote")
    return 100 * remote / total if remote is not None and total else None
