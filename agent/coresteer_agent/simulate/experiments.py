"""Simulated experiments: runs generate no load and return plausible metrics in a tenth of their time.

A run with existing traffic measures the node's own samples. For a load, a small model derives the figures from the
node's settings: the CPUs that serve the NIC's interrupts process a limited number of packets, the server has the
remaining CPU time, and the NIC's timer (coresteer_core.node.nic_model) trades interrupts for latency. The noise of a
run is seeded by its id, so the same run of the same node has the same figures.
"""

import random
import time
from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from coresteer_agent.simulate.bsp_experiment import bsp_figures
from coresteer_agent.simulate.coalescing import interrupts_per_s
from coresteer_agent.simulate.machine import ADDRESS
from coresteer_agent.simulate.memory_experiment import memory_figures
from coresteer_agent.simulate.node import SimulatedNode
from coresteer_agent.simulate.own_traffic import measure_traffic
from coresteer_agent.simulate.seeded_random import seeded_random
from coresteer_core.cpuset import parse_cpu_list
from coresteer_core.experiments.model import (
    Classes,
    Command,
    Iperf3,
    Memory,
    Observe,
    Run,
    RunResult,
    RunState,
    TcpRequest,
    TcpStream,
    Traffic,
    UdpFlood,
    Workload,
    has_client,
)
from coresteer_core.experiments.parallel_jobs import Bsp
from coresteer_core.experiments.run_metrics import cost_of_traffic
from coresteer_core.metrics import packets_per_interrupt
from coresteer_core.node.nic_model import HostCosts, QueueTraffic, predict
from coresteer_core.policies.base import ROUND_PERIOD_S
from coresteer_core.protocol import BeginExperiment, EndExperiment, ExperimentMessage, RunExperiment

_LOAD_S = 0.1
_SPEEDUP = 10.0
_PORT = 9000
_SEGMENT_BYTES = 1448
_HEADER_BYTES = 66
_WIRE = 0.94
"""Share of a link's rate available to TCP payload."""
_SOFTIRQ_US = 1.6
_IRQ_US = 1.5
_APPLICATION_US = {TcpStream: 0.9, Iperf3: 0.9, UdpFlood: 1.5, TcpRequest: 7.0}
"""CPU time of the server for each packet or request."""
_PATH_US = 45.0
_FULL = 0.96
_IDLE = 0.015
_ROUNDS = 6
_SPEED_NOISE = 0.012
_OWN_NOISE = 0.008
_CLASS_MEAN_US = 160_000.0
_SPREAD = {
    "default": (1.0, 1.0, 1.0, 1.0, 1.0),
    "nice": (0.86, 0.92, 0.99, 1.07, 1.16),
    "cgroup": (0.82, 0.9, 0.98, 1.09, 1.21),
    "gate": (0.46, 0.66, 0.9, 1.18, 1.47),
    "weight": (0.6, 0.77, 0.95, 1.13, 1.35),
}
"""Mean of each class relative to the mean of all; plausible values, ordered as measured on real machines."""


class WorkloadModel(Struct):
    """Modelled packets, work and interrupts per second and CPU shares of a workload, without noise.

    packets: received. works: packets or requests that the server processed. dropped: packets. rtt_us: median, p95, p99.
    shares: by kind, of each CPU's time.
    """

    packets: float
    works: float
    interrupts: float
    dropped: float
    rtt_us: tuple[float, float, float] | None
    shares: dict[str, list[float]]


class SimulatedExperiments:
    """Handles experiments on one simulated node. call_later: as of an asyncio event loop."""

    def __init__(
        self,
        node: SimulatedNode,
        send: Callable[[ExperimentMessage], None],
        call_later: Callable[[float, Callable[[], None]], object],
    ) -> None:
        self._node = node
        self._send = send
        self._call_later = call_later
        self._open: int | None = None
        self._run: Run | None = None

    def handle(self, message: BeginExperiment | RunExperiment | EndExperiment) -> None:
        """Handle a request of the backend; responses are sent when the simulated time has passed."""
        match message:
            case BeginExperiment(experiment_id, workload, role):
                self._open, self._run = experiment_id, None
                serves = has_client(workload) and role != "client"
                netdev = self._node.inventory.netdevs[0].name if serves else ""
                address = f"{ADDRESS}:{_PORT}" if serves else ""
                ready = ExperimentMessage(experiment_id, RunState.READY, address=address, netdev=netdev)
                self._send(replace(ready, receipts_port=_PORT) if serves else ready)
            case RunExperiment(experiment_id, run):
                self._begin(experiment_id, run)
            case EndExperiment(experiment_id):
                if experiment_id == self._open:
                    self._open = self._run = None

    def _begin(self, experiment_id: int, run: Run) -> None:
        if experiment_id != self._open:
            sentence = f"Experiment {experiment_id} has not begun on this node."
            self._send(ExperimentMessage(experiment_id, RunState.FAILED, run.run_id, sentence))
            return
        self._run = run
        # only policies need their real time, because they act in steps
        warmup_s = run.warmup_s / (1 if run.warmup_s >= ROUND_PERIOD_S else _SPEEDUP)
        self._call_later(_LOAD_S, lambda: self._loaded(run))
        self._call_later(_LOAD_S + warmup_s + _measured_s(run) / _SPEEDUP, lambda: self._measured(run))

    def _loaded(self, run: Run) -> None:
        if self._run is run and self._open is not None:
            self._send(ExperimentMessage(self._open, RunState.LOADED, run.run_id))

    def _measured(self, run: Run) -> None:
        if self._run is run and self._open is not None:
            self._run = None
            measured = simulate_run(self._node, run, int((time.time() - _measured_s(run)) * 1000))
            self._send(ExperimentMessage(self._open, RunState.MEASURED, run.run_id, measured=measured))


def simulate_run(node: SimulatedNode, run: Run, started_ms: int) -> RunResult:
    """Return the metrics of an experiment's run with the node's present settings, with noise."""
    own = seeded_random("experiment", node.name, run.run_id)
    if isinstance(run.workload, Observe):
        measured = measure_traffic(node, run.netdevs, run.measure_s, now_s=started_ms / 1000 + run.measure_s, own=own)
        return _result(run, measured.figures, measured.cpus, started_ms, own)
    modelled = model_workload(node, run.workload)
    speed = own.lognormvariate(0, _SPEED_NOISE)
    figures = {
        name: value
        * speed ** (-1 if name.endswith(("_us", "run_s", "makespan_s", "response_s")) else 1)
        * own.lognormvariate(0, _OWN_NOISE)
        for name, value in _figures(node, run.workload, modelled, own.random()).items()
    }
    if modelled.packets and (ratio := packets_per_interrupt(figures["packets_per_s"], figures["interrupts_per_s"])):
        figures["packets_per_interrupt"] = max(1.0, ratio)
    cpus: dict[str, list[float | None]] = {
        kind: [min(100.0, 100 * share * own.lognormvariate(0, 3 * _OWN_NOISE)) for share in shares]
        for kind, shares in modelled.shares.items()
    }
    cpus["busy"] = [min(100.0, sum(kinds)) for kinds in zip(*(cpus[kind] for kind in modelled.shares), strict=True)]
    return _result(run, figures, cpus, started_ms, own)


def _result(
    run: Run, figures: dict[str, float], cpus: dict[str, list[float | None]], started_ms: int, own: random.Random
) -> RunResult:
    return RunResult(
        started_ms=started_ms,
        duration_s=_measured_s(run),
        figures=figures,
        cpus=cpus,
        load_before=own.uniform(0.1, 0.6),
        steal_percent=0.0,
    )


def _measured_s(run: Run) -> float:
    """Return how long a run is measured; one with a fixed amount of work ends before the limit."""
    if isinstance(run.workload, Memory | Bsp | Classes):
        return min(run.measure_s, run.workload.work_s)
    return run.measure_s


def model_workload(node: SimulatedNode, workload: Workload) -> WorkloadModel:
    """Return a workload's modelled rates without noise; an unlimited one is limited by link, interrupts or server."""
    cpus = len(node.machine.topology.cpus)
    irq_cpus = node.rx_irqs_by_cpu()
    listed = workload.server_cpus if isinstance(workload, Traffic) else ""
    server_cpus = sorted(parse_cpu_list(listed) if listed else node.machine.topology.online())
    work_us = _APPLICATION_US.get(type(workload), 1.0) + getattr(workload, "work_us", 0)
    packets_per_work = _packets_of(workload) if isinstance(workload, TcpRequest) else 1.0
    works, packets = _offered(node, workload), 0.0
    shares = {kind: [_IDLE / 4] * cpus for kind in ("user", "system", "irq", "softirq")}
    interrupts = dropped = added_us = added_p99_us = 0.0
    for _ in range(_ROUNDS):  # the limits depend on the throughput and vice versa
        if isinstance(workload, TcpRequest):
            round_us = _PATH_US + work_us + added_us
            works = min(workload.limit_per_s, workload.connections * 1e6 / round_us)
        taken = [_FULL - (shares["irq"][cpu] + shares["softirq"][cpu] if cpu in irq_cpus else 0) for cpu in server_cpus]
        works = min(works, sum(max(0.02, share) for share in taken) * 1e6 / work_us)
        arriving = works * packets_per_work
        packets = min(arriving, _handled(arriving, irq_cpus))
        dropped = arriving - packets if isinstance(workload, UdpFlood) else 0.0
        works = packets / packets_per_work
        interrupts, added_us, added_p99_us = _interrupts(node, workload, arriving, sum(irq_cpus.values()))
        _share(shares, works * work_us, packets, interrupts, irq_cpus=irq_cpus, server_cpus=server_cpus)
    if isinstance(workload, Memory | Bsp):
        online = node.machine.topology.online()
        busy = _processes_of(workload) / len(online)
        shares["user"] = [min(_FULL, busy) if cpu in online else 0.0 for cpu in range(cpus)]
    rtt_us = None
    if isinstance(workload, TcpRequest):
        median_us = max(_PATH_US + work_us + added_us, workload.connections * 1e6 / works if works else 0)
        tail_us = max(0.0, added_p99_us - added_us)
        rtt_us = (median_us, 1.6 * median_us + 0.7 * tail_us, 2.4 * median_us + tail_us)
    return WorkloadModel(packets, works, interrupts, dropped, rtt_us, shares)


def _processes_of(workload: Memory | Bsp) -> int:
    """Return how many processes use a CPU at a time."""
    if isinstance(workload, Bsp):
        return workload.processes
    return workload.compute_processes + workload.memory_processes


def _offered(node: SimulatedNode, workload: Workload) -> float:
    """Return the packets per second that a workload sends; 0 for requests, which depend on their response time."""
    link = node.inventory.netdevs[0].speed_bits_per_s or 10**9
    match workload:
        case TcpStream(limit_mbit_per_s=limit) | Iperf3(limit_mbit_per_s=limit):
            return min(limit * 1e6, _WIRE * link) / 8 / _SEGMENT_BYTES
        case UdpFlood(packets_per_s=rate, payload_bytes=size):
            return min(rate, link / 8 / (size + _HEADER_BYTES))
        case _:
            return 0.0


def _packets_of(workload: TcpRequest) -> float:
    """Return the packets received for one request: its segments, and an ACK for every second one of the response."""
    return -(-workload.request_bytes // _SEGMENT_BYTES) + workload.response_bytes / _SEGMENT_BYTES / 2


def _handled(arriving: float, irq_cpus: dict[int, int]) -> float:
    """Return how many of the arriving packets per second are processed. irq_cpus: number of queues by CPU."""
    queues = sum(irq_cpus.values())
    return sum(min(arriving * count / queues, _FULL * 1e6 / _SOFTIRQ_US) for count in irq_cpus.values())


def _interrupts(node: SimulatedNode, workload: Workload, packets: float, queues: int) -> tuple[float, float, float]:
    """Return the interrupts per second of all queues, and the added latency in µs: mean and 99th percentile."""
    wait, each = node.first_nic_coalescing, packets / max(1, queues)
    if wait is None or each <= 0:
        return queues * interrupts_per_s(wait, each), 0.0, 0.0
    size = workload.request_bytes if isinstance(workload, TcpRequest) else _SEGMENT_BYTES
    arrivals = QueueTraffic(each, min(size, _SEGMENT_BYTES) + _HEADER_BYTES, node.inventory.netdevs[0].speed_bits_per_s)
    found = predict(arrivals, wait, HostCosts(packet_us=_SOFTIRQ_US))
    return queues * found.interrupts_per_s, found.added_mean_us, found.added_p99_us


def _share(
    shares: dict[str, list[float]],
    server_us: float,
    packets: float,
    interrupts: float,
    *,
    irq_cpus: dict[int, int],
    server_cpus: list[int],
) -> None:
    """Update each CPU's utilization by kind. server_us: CPU time per second, over all of the server's CPUs."""
    queues = max(1, sum(irq_cpus.values()))
    for cpu in range(len(shares["irq"])):
        part = irq_cpus.get(cpu, 0) / queues
        shares["irq"][cpu] = min(0.3, _IDLE / 4 + part * interrupts * _IRQ_US * 1e-6)
        shares["softirq"][cpu] = min(_FULL, _IDLE / 4 + part * packets * _SOFTIRQ_US * 1e-6)
        left = max(0.0, 1 - shares["irq"][cpu] - shares["softirq"][cpu])
        served = min(left, server_us * 1e-6 / len(server_cpus)) if cpu in server_cpus else 0.0
        shares["user"][cpu], shares["system"][cpu] = _IDLE / 4 + 0.35 * served, _IDLE / 4 + 0.65 * served


def _figures(node: SimulatedNode, workload: Workload, found: WorkloadModel, uniform: float) -> dict[str, float]:
    """Return metrics by their names in metrics.EXPERIMENT_METRICS, and one for a Command. uniform: random, 0 to 1."""
    percent = {kind: 100 * sum(shares) for kind, shares in found.shares.items()}
    figures = {f"cpu_{kind}_percent": share for kind, share in percent.items()}
    figures["cpu_busy_percent"] = sum(percent.values())
    figures["context_switches_per_s"] = 400 + 0.4 * found.interrupts + (1.6 * found.works if found.rtt_us else 0)
    figures["migrations_per_s"] = 2 + 6 * uniform
    figures["squeezed_per_s"] = sum(max(0.0, share - 0.6) * 300 for share in found.shares["softirq"])
    figures["dropped_per_s"] = found.dropped
    figures["interrupts_per_s"] = max(1.0, found.interrupts)
    figures["packets_per_s"] = found.packets
    match workload:
        case TcpStream() | Iperf3():
            figures["throughput_bit_per_s"] = found.packets * _SEGMENT_BYTES * 8
        case UdpFlood(payload_bytes=size):
            figures["throughput_bit_per_s"] = found.packets * size * 8
        case TcpRequest(request_bytes=request, response_bytes=response):
            figures["throughput_bit_per_s"] = found.works * (request + response) * 8
        case Classes(method=method):
            figures |= {f"c{n}_mean_us": _CLASS_MEAN_US * share for n, share in enumerate(_SPREAD[method], 1)}
            figures["all_mean_us"] = _CLASS_MEAN_US
            figures["c5_by_c1"] = _SPREAD[method][4] / _SPREAD[method][0]
            figures["longest_wait_us"] = _CLASS_MEAN_US * (3 + 5 * uniform)
        case Memory():
            figures |= memory_figures(node, workload)
        case Bsp():
            figures |= bsp_figures(workload)
        case Command():
            figures["command.value"] = 100.0
    if found.rtt_us is not None:
        figures["requests_per_s"] = found.works
        figures |= zip(("rtt_p50_us", "rtt_p95_us", "rtt_p99_us"), found.rtt_us, strict=True)
    return figures | cost_of_traffic(figures["cpu_busy_percent"], figures.get("throughput_bit_per_s"))
