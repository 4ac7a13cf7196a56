"""Experiments on simulated nodes: their runs are short, and their figures follow from the settings."""

import asyncio
from collections.abc import Callable
from statistics import mean

import pytest
from msgspec.structs import replace
from tests.support.polling import PATIENCE_S
from websockets.asyncio.server import ServerConnection, serve
from websockets.uri import parse_uri

from coresteer_agent.simulate.agent import FleetStatistics, SimulatedAgent
from coresteer_agent.simulate.bsp_experiment import bsp_figures
from coresteer_agent.simulate.cache import SimulationCache
from coresteer_agent.simulate.experiments import SimulatedExperiments, simulate_run
from coresteer_agent.simulate.fleet import run
from coresteer_agent.simulate.machine import make_machine
from coresteer_agent.simulate.memory_experiment import memory_figures
from coresteer_agent.simulate.node import SimulatedNode
from coresteer_agent.simulate.numa_tasks import has_traffic
from coresteer_core.experiments.model import (
    Classes,
    Command,
    Iperf3,
    Memory,
    Observe,
    Run,
    RunState,
    TcpRequest,
    TcpStream,
    UdpFlood,
    Workload,
)
from coresteer_core.experiments.parallel_jobs import Bsp
from coresteer_core.metrics import EXPERIMENT_METRICS
from coresteer_core.policies.base import ROUND_PERIOD_S
from coresteer_core.protocol import (
    PROTOCOL_VERSION,
    BeginExperiment,
    CloseCode,
    EndExperiment,
    ExperimentMessage,
    RunExperiment,
    Welcome,
    decode_to_backend,
    encode,
)
from coresteer_core.settings import NetdevParam
from coresteer_core.settings.kernel import KernelParameter

_IGB, _MLX5 = 1, 0


def a_node(kind: int, cpus: int = 16) -> SimulatedNode:
    machine = make_machine(cpus=cpus, irqs=40, kind=kind, seed=0)
    return SimulatedNode(name="sim1", key="", index=9, seed=0, machine=machine, cache=SimulationCache(1.0), stream="s")


def a_run(workload: Workload, run_id: str = "1") -> Run:
    return Run(run_id=run_id, workload=workload, role="alone", warmup_s=0.5, measure_s=1.0)


def figures(node: SimulatedNode, workload: Workload, name: str) -> list[float]:
    """Of ten runs."""
    return [simulate_run(node, a_run(workload, str(number)), 0).figures[name] for number in range(10)]


class Clock:
    """An event loop's call_later with simulated time."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._waiting: list[tuple[float, Callable[[], None]]] = []

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        self._waiting.append((self.now_s + seconds, call))

    def pass_s(self, seconds: float) -> None:
        self.now_s += seconds
        due = [call for at_s, call in self._waiting if at_s <= self.now_s]
        self._waiting = [(at_s, call) for at_s, call in self._waiting if at_s > self.now_s]
        for call in due:
            call()


class ExperimentOnNode:
    """An experiment on a node, and what it messages."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.messages: list[ExperimentMessage] = []
        self.node = a_node(_IGB)
        self.experiments = SimulatedExperiments(self.node, self.messages.append, self.clock.later)

    def states(self) -> list[RunState]:
        return [message.state for message in self.messages]


def test_a_run_is_loaded_and_then_measured_in_a_tenth_of_its_time() -> None:
    one = ExperimentOnNode()
    one.experiments.handle(BeginExperiment(7, TcpRequest(), "alone"))
    assert (one.messages[0].netdev, one.messages[0].address) == ("eno1", "198.18.0.1:9000")
    one.experiments.handle(RunExperiment(7, a_run(TcpRequest(), "a")))
    one.clock.pass_s(0.11)
    assert one.states() == [RunState.READY, RunState.LOADED]
    one.clock.pass_s(0.13)
    assert one.states() == [RunState.READY, RunState.LOADED]
    one.clock.pass_s(0.02)
    last = one.messages[-1]
    assert (last.experiment_id, last.state, last.run_id) == (7, RunState.MEASURED, "a")
    assert last.measured is not None
    assert last.measured.duration_s == 1.0
    assert last.measured.disturbed == []


def test_a_policy_has_all_of_its_time_to_act_before_a_run_is_measured() -> None:
    one = ExperimentOnNode()
    one.experiments.handle(BeginExperiment(7, TcpRequest(), "alone"))
    one.experiments.handle(RunExperiment(7, replace(a_run(TcpRequest()), warmup_s=ROUND_PERIOD_S)))
    one.clock.pass_s(ROUND_PERIOD_S)
    assert one.states() == [RunState.READY, RunState.LOADED]
    one.clock.pass_s(0.3)
    assert one.states()[-1] is RunState.MEASURED


def test_a_run_of_an_experiment_that_was_ended_is_never_measured() -> None:
    one = ExperimentOnNode()
    one.experiments.handle(BeginExperiment(7, TcpRequest(), "alone"))
    one.experiments.handle(RunExperiment(7, a_run(TcpRequest())))
    one.experiments.handle(EndExperiment(7))
    one.clock.pass_s(60)
    assert one.states() == [RunState.READY]


def test_a_run_of_an_experiment_that_has_not_begun_fails_with_its_number() -> None:
    one = ExperimentOnNode()
    one.experiments.handle(RunExperiment(8, a_run(TcpRequest())))
    assert one.states() == [RunState.FAILED]
    assert "8" in one.messages[0].sentence


@pytest.mark.parametrize(
    "workload",
    [
        TcpStream(),
        TcpRequest(),
        UdpFlood(),
        Iperf3(),
        Classes(),
        Classes(method="gate"),
        Memory(),
        Bsp(),
        Observe(),
        Command(name="x"),
    ],
    ids=lambda workload: type(workload).__name__,
)
@pytest.mark.parametrize("kind", [0, 1, 2])
def test_figures_are_known_metrics_and_reproducible(workload: Workload, kind: int) -> None:
    node = a_node(kind)
    node.sample(1.7e9)
    measured = simulate_run(node, a_run(workload), 5)
    assert measured == simulate_run(node, a_run(workload), 5)
    assert {name for name in measured.figures if not name.startswith("command.")} <= set(EXPERIMENT_METRICS)
    assert all(value >= 0 for value in measured.figures.values())
    for kind_of_time in ("busy", "user", "system", "irq", "softirq"):
        shares = measured.cpus[kind_of_time]
        assert len(shares) == 16
        assert all(share is not None and 0 <= share <= 100 for share in shares)


def test_a_longer_wait_of_the_nic_means_fewer_interrupts_and_later_answers() -> None:
    node = a_node(_IGB)
    node.write(NetdevParam("eno1", "coalesce/rx-usecs"), "10")
    few = {name: mean(figures(node, TcpRequest(), name)) for name in ("interrupts_per_s", "rtt_p50_us")}
    node.write(NetdevParam("eno1", "coalesce/rx-usecs"), "200")
    many = {name: mean(figures(node, TcpRequest(), name)) for name in ("interrupts_per_s", "rtt_p50_us")}
    assert many["interrupts_per_s"] < few["interrupts_per_s"] / 2
    assert many["rtt_p50_us"] > 1.5 * few["rtt_p50_us"]


def test_existing_traffic_is_measured_in_the_nodes_own_samples() -> None:
    node = a_node(_MLX5)
    sample = node.sample(1.7e9)
    assert sample.tcp is not None
    spread = mean(figures(node, Observe(), "rtt_p99_us"))
    assert spread == pytest.approx(sample.tcp.rtt_p99_us, rel=0.2)
    for row in node.inventory.irqs:
        if row.netdev == node.inventory.netdevs[0].name:
            node.set_irq_affinity(row.irq, "3")
    assert mean(figures(node, Observe(), "rtt_p99_us")) > 1.3 * spread
    busiest = simulate_run(node, a_run(Observe()), 0).cpus["softirq"]
    assert busiest.index(max(share or 0.0 for share in busiest)) == 3


def test_neither_too_few_nor_too_many_interrupt_cpus_give_the_most_throughput() -> None:
    node = a_node(_MLX5)
    netdev = node.inventory.netdevs[0].name
    found = {}
    for cpus in (1, 8, 15):
        for irq in [row.irq for row in node.inventory.irqs if row.netdev == netdev]:
            node.set_irq_affinity(irq, f"0-{cpus - 1}")
        found[cpus] = mean(figures(node, TcpStream(server_cpus=f"{cpus}-15"), "throughput_bit_per_s"))
    assert found[8] > 1.5 * max(found[1], found[15])


def test_runs_of_the_same_settings_differ_by_about_a_hundredth() -> None:
    rates = figures(a_node(_IGB), TcpStream(limit_mbit_per_s=500), "throughput_bit_per_s")
    assert 1.002 < max(rates) / min(rates) < 1.15


async def test_a_simulated_node_answers_the_backend_over_its_connection() -> None:
    messages: list[ExperimentMessage] = []

    async def serve_one(link: ServerConnection) -> None:
        await link.recv()
        one = Run(run_id="a", workload=TcpRequest(), role="alone", warmup_s=0, measure_s=0.05)
        for message in (
            Welcome(PROTOCOL_VERSION, 1, 0),
            BeginExperiment(7, TcpRequest(), "alone"),
            RunExperiment(7, one),
        ):
            await link.send(encode(message))
        async for frame in link:
            assert isinstance(frame, bytes)
            message_back = decode_to_backend(frame)
            if isinstance(message_back, ExperimentMessage):
                messages.append(message_back)
                if message_back.state is RunState.MEASURED:
                    await link.close(CloseCode.BAD_KEY, "It is done.")

    async with serve(serve_one, "127.0.0.1", 0) as server, asyncio.timeout(PATIENCE_S):
        uri = parse_uri(f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/api/agent")
        agent = SimulatedAgent(a_node(_IGB), uri, FleetStatistics(), record_latencies=False)
        await run([agent], interval_s=1.0, duration_s=None, tls=None)
    assert [message.state for message in messages] == [RunState.READY, RunState.LOADED, RunState.MEASURED]


def test_the_memory_of_a_simulated_node_is_shared_remote_and_moved() -> None:
    machines = [make_machine(cpus=64, irqs=60, kind=kind, seed=seed) for kind in range(3) for seed in range(4)]
    machine = next(each for each in machines if has_traffic(each) and len(each.topology.numa_nodes) > 1)
    node = SimulatedNode(name="s", key="", index=9, seed=0, machine=machine, cache=SimulationCache(1.0), stream="s")
    crowd = [memory_figures(node, Memory(compute_processes=0, memory_processes=count)) for count in (1, 4, 16)]
    assert crowd[0]["memory_run_s"] == crowd[1]["memory_run_s"] < crowd[2]["memory_run_s"]
    assert crowd[0]["contention_factor"] == 0 < crowd[1]["contention_factor"] < crowd[2]["contention_factor"]
    automatic = memory_figures(node, Memory())
    node.write(KernelParameter("numa_balancing"), "0")
    kernel = memory_figures(node, Memory())
    pins = memory_figures(node, Memory(memory_cpus="0", compute_cpus="63"))
    assert pins["makespan_s"] < automatic["makespan_s"] < kernel["makespan_s"]
    assert (kernel["pages_moved"], pins["remote_numa_share"]) == (0, 0)


def test_simulated_jobs_that_share_cpus_or_are_unbalanced_take_longer() -> None:
    alone, shared = (bsp_figures(Bsp(jobs=jobs)) for jobs in (1, 3))
    assert alone["job_response_s"] < shared["job_response_s"]
    assert alone["involuntary_switches_per_loop"] == 0 < shared["involuntary_switches_per_loop"]
    assert bsp_figures(Bsp(imbalance=0.5))["job_response_s"] < bsp_figures(Bsp(imbalance=1.5))["job_response_s"]
    blocked, spinning = (bsp_figures(replace(Bsp(), wait=wait)) for wait in ("block", "busy-wait"))
    assert blocked["spin_s"] == 0 < spinning["spin_s"]
