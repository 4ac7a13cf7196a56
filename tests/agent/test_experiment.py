"""An experiment's part on a node, with a load of the test's own and with real ones."""

import os
import socket
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

import psutil
import pytest
from msgspec.structs import replace
from tests.support.polling import PATIENCE_S, poll
from tests.support.views import EMPTY

from coresteer_agent.runtime import experiment
from coresteer_agent.runtime.changes import NodeChanges
from coresteer_agent.runtime.experiment import ExperimentSession
from coresteer_core.experiments.model import (
    Classes,
    Command,
    Memory,
    Observe,
    Receipts,
    Role,
    Run,
    RunResult,
    RunState,
    TcpRequest,
    UdpFlood,
    Workload,
)
from coresteer_core.experiments.parallel_jobs import Bsp
from coresteer_core.experiments.run_metrics import Reading, run_result
from coresteer_core.node.inventory import Inventory, Netdev
from coresteer_core.node.limits import Limits, LoadLimits, SettingLimits
from coresteer_core.node.rates import TcpLatency
from coresteer_core.protocol import BeginExperiment, EndExperiment, ExperimentMessage, RunExperiment

WORKLOAD = TcpRequest()
RECEIPTS = Receipts(5001, "k" * 64)


class FakePrepared:
    """What runs share; how: what becomes of it."""

    made: ClassVar[list["FakePrepared"]] = []
    how: str | None = None

    def __init__(self, workload: Workload, role: Role, wires: Sequence[str]) -> None:
        self.address, self.netdev, self.network = "198.18.0.1:5000", "coresteer0", ""
        self.receipts = None
        self.ready, self.failed = self.how is None, self.how
        self.closed = False
        self.made.append(self)

    def close(self) -> None:
        self.closed = True


class FakeLoad:
    """A load that changes its state at once."""

    made: ClassVar[list["FakeLoad"]] = []
    ready: bool = True
    has_traffic: bool = True
    done: bool = False
    failed: str | None = None
    mistake: bool = False

    def __init__(self, prepared: FakePrepared, commands: dict[str, list[str]]) -> None:
        self.commands = commands
        self.calls: list[str] = []
        self.made.append(self)

    def start(self, workload: Workload, role: Role, address: str, receipts: Receipts | None) -> None:
        self.calls.append(f"start {role} {address}")

    def begin_window(self) -> None:
        if self.mistake:
            raise ZeroDivisionError("a mistake of ours")
        self.calls.append("begin")

    def end_window(self) -> None:
        self.calls.append("end")

    def figures(self) -> dict[str, float]:
        return {"requests_per_s": 42.0}

    def stop(self) -> None:
        self.calls.append("stop")


class Node:
    """A session and what it told."""

    def __init__(self, folder: Path, *, root: Path = Path("/"), observe_reason: str | None = None) -> None:
        self.told: list[ExperimentMessage] = []
        self._heard = 0
        self.inventory = Inventory([], [])
        self.changes = NodeChanges(root, folder / "journal.jsonl", observe_reason, lambda: EMPTY, lambda _: None)
        self.session = ExperimentSession(
            root, folder / "commands.toml", self.changes, lambda: self.inventory, self.told.append, observe_reason
        )

    def begin(self, workload: Workload = WORKLOAD, experiment_id: int = 1, role: Role = "alone") -> ExperimentMessage:
        self._heard = len(self.told)
        self.session.handle(BeginExperiment(experiment_id, workload, role))
        return self.until(RunState.READY)

    def run(self, run: Run, experiment_id: int = 1) -> None:
        self._heard = len(self.told)
        self.session.handle(RunExperiment(experiment_id, run))

    def until(self, state: RunState) -> ExperimentMessage:
        """What was asked last has come so far, or has failed. Steps are taken as the loop does it."""
        patience = time.monotonic() + PATIENCE_S
        while len(self.told) == self._heard or self.told[-1].state not in (state, RunState.FAILED):
            assert time.monotonic() < patience
            time.sleep(min(max(0.0, self.session.due - time.monotonic()), 1.0))
            self.session.step()
        return self.told[-1]

    def states(self) -> list[RunState]:
        return [message.state for message in self.told]


def a_run(workload: Workload = WORKLOAD, run_id: str = "r1", warmup_s: float = 0.0, measure_s: float = 0.01) -> Run:
    return Run(run_id=run_id, workload=workload, role="alone", warmup_s=warmup_s, measure_s=measure_s)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeLoad, "made", [])
    monkeypatch.setattr(FakePrepared, "made", [])
    monkeypatch.setattr(experiment, "Load", FakeLoad)
    monkeypatch.setattr(experiment, "Prepared", FakePrepared)
    monkeypatch.setattr(experiment, "STEP_S", 0.001)


@pytest.fixture
def node(tmp_path: Path, fake: None) -> Iterator[Node]:
    node = Node(tmp_path)
    yield node
    node.session.end()
    node.changes.close()


def test_a_run_is_loaded_warmed_up_measured_over_its_window_and_ended(node: Node) -> None:
    ready = node.begin()
    assert (ready.state, ready.address, ready.netdev) == (RunState.READY, "198.18.0.1:5000", "coresteer0")
    node.run(replace(a_run(measure_s=0.2), address="198.18.0.1:5000"))
    told = node.until(RunState.MEASURED)
    assert node.states() == [RunState.READY, RunState.LOADED, RunState.MEASURED]
    assert FakeLoad.made[0].calls == ["start alone 198.18.0.1:5000", "begin", "end", "stop"]
    assert told.measured is not None
    assert told.measured.duration_s >= 0.2
    assert told.measured.figures["requests_per_s"] == 42
    assert "cpu_busy_percent" in told.measured.figures
    assert node.session.due == float("inf")


def test_a_server_warms_up_with_its_clients_traffic_and_serves_until_the_client_has_measured(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeLoad, "has_traffic", False)
    node.begin(role="server")
    node.run(replace(a_run(), role="server", receipts=RECEIPTS))
    node.until(RunState.LOADED)
    (load,) = FakeLoad.made
    for _ in range(3):
        node.session.step()
    assert load.calls == ["start server "]
    monkeypatch.setattr(FakeLoad, "has_traffic", True)
    assert node.until(RunState.MEASURED).state is RunState.MEASURED
    assert load.calls == ["start server ", "begin", "end"]
    node.run(replace(a_run(run_id="r2"), role="server", receipts=RECEIPTS))
    assert load.calls[-1] == "stop"
    node.until(RunState.MEASURED)
    node.session.handle(EndExperiment(1))
    assert FakeLoad.made[1].calls[-1] == "stop"


def test_a_run_without_a_begun_experiment_fails(node: Node) -> None:
    node.run(a_run())
    node.begin()
    node.run(a_run(), experiment_id=2)
    failed = [told for told in node.told if told.state is RunState.FAILED]
    assert [told.sentence for told in failed] == [
        "Experiment 1 has not begun on this node, so its run is not possible.",
        "Experiment 2 is not ready on this node, so its run is not possible.",
    ]
    assert {told.run_id for told in failed} == {"r1"}
    assert FakeLoad.made == []


@pytest.mark.parametrize(
    ("begun", "role", "run", "sentence"),
    [
        (Observe(), "alone", a_run(UdpFlood()), "another kind of workload or another role than its experiment"),
        (UdpFlood(), "client", a_run(), "another kind of workload or another role than its experiment"),
        (UdpFlood(), "alone", replace(a_run(UdpFlood()), role="client"), "another kind of workload or another role"),
        (Bsp(), "alone", a_run(Bsp(machines=2)), "another kind of workload or another role than its experiment"),
        (UdpFlood(), "alone", replace(a_run(UdpFlood()), address="10.0.0.1:1"), "names the server 10.0.0.1:1, but"),
        (UdpFlood(), "client", replace(a_run(UdpFlood()), role="client", address="10.0.0.1:1"), "needs receipts of"),
        (
            UdpFlood(),
            "server",
            replace(a_run(UdpFlood()), role="server", address="10.0.0.1:1", receipts=RECEIPTS),
            "names the server 10.0.0.1:1, but this node's is 198.18.0.1:5000.",
        ),
        (
            UdpFlood(),
            "client",
            replace(a_run(UdpFlood()), role="client", address="224.0.0.1:1", receipts=RECEIPTS),
            "224.0.0.1 is not the address of one node",
        ),
        (WORKLOAD, "alone", a_run(measure_s=601), "may each last at most 600 s."),
        (WORKLOAD, "alone", a_run(TcpRequest(server_cpus="x")), "The CPUs of the workload are invalid"),
    ],
)
def test_a_run_that_its_experiment_has_not_begun_with_generates_no_load(
    begun: Workload, role: Role, run: Run, sentence: str, node: Node
) -> None:
    node.begin(begun, role=role)
    node.run(run)
    assert (node.told[-1].state, node.told[-1].run_id) == (RunState.FAILED, "r1")
    assert sentence in node.told[-1].sentence
    assert all("start" not in call for load in FakeLoad.made for call in load.calls)


def test_a_load_that_the_nodes_limits_exclude_is_not_generated(node: Node) -> None:
    node.inventory = Inventory([], [], limits=Limits(loads=LoadLimits(allow=False)))
    assert "loads.allow is false" in node.begin().sentence
    node.inventory = Inventory([], [], limits=Limits(loads=LoadLimits(addresses=["10.0.0.0/8"])))
    node.begin(UdpFlood(), role="client")
    node.run(replace(a_run(UdpFlood()), role="client", address="192.0.2.1:1", receipts=RECEIPTS))
    assert "allows no load to 192.0.2.1; loads.addresses allows: 10.0.0.0/8." in node.told[-1].sentence
    node.inventory = Inventory([], [], limits=Limits(loads=LoadLimits(max_packets_per_s=1)))
    node.run(replace(a_run(UdpFlood()), role="client", address="10.0.0.1:1", receipts=RECEIPTS))
    assert "allows loads of 1 packets/s" in node.told[-1].sentence
    assert FakeLoad.made == []


def test_no_load_runs_on_a_cpu_that_is_off_limits(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.sched_getaffinity(0)
    seen: list[set[int]] = []
    monkeypatch.setattr(FakeLoad, "start", lambda *_: seen.append(os.sched_getaffinity(0)))
    node.inventory = Inventory([], [], limits=Limits(SettingLimits(cpus_off_limits=str(min(before)))))
    node.begin()
    node.run(a_run())
    assert os.sched_getaffinity(0) == before
    assert seen == ([before - {min(before)}] if len(before) > 1 else [])


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="There is no other CPU.")
def test_an_agent_whose_own_cpus_are_off_limits_generates_load_on_the_others(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = os.sched_getaffinity(0)
    own = {min(before)}
    seen: list[set[int]] = []
    monkeypatch.setattr(FakeLoad, "start", lambda *_: seen.append(os.sched_getaffinity(0)))
    os.sched_setaffinity(0, own)
    try:
        node.inventory = Inventory([], [], limits=Limits(SettingLimits(cpus_off_limits=str(min(own)))))
        node.begin()
        node.run(a_run())
        assert os.sched_getaffinity(0) == own
    finally:
        os.sched_setaffinity(0, before)
    assert len(seen) == 1
    assert seen[0].isdisjoint(own) and seen[0] >= before - own


def test_where_every_cpu_is_off_limits_no_load_is_generated_and_the_limit_is_named(node: Node) -> None:
    node.inventory = Inventory([], [], limits=Limits(SettingLimits(cpus_off_limits="0-8191")))
    failed = node.begin()
    assert failed.state is RunState.FAILED
    assert failed.sentence.startswith(
        "The agent may use no CPU that is not off limits on this node: see cpus_off_limits"
    )


def test_a_second_begin_ends_the_first(node: Node) -> None:
    node.begin()
    node.run(a_run(warmup_s=60))
    node.until(RunState.LOADED)
    assert node.begin(experiment_id=2).experiment_id == 2
    assert FakeLoad.made[0].calls[-1] == "stop"
    assert [prepared.closed for prepared in FakePrepared.made] == [True, False]


def test_an_experiment_is_ended_at_once_by_its_id(node: Node) -> None:
    node.begin()
    node.run(a_run(warmup_s=60))
    node.until(RunState.LOADED)
    node.session.handle(EndExperiment(7))
    assert [prepared.closed for prepared in FakePrepared.made] == [False]
    node.session.handle(EndExperiment(1))
    assert [prepared.closed for prepared in FakePrepared.made] == [True]
    assert FakeLoad.made[0].calls[-1] == "stop"


def test_a_repeated_run_request_is_ignored_and_another_run_replaces_it(node: Node) -> None:
    node.begin()
    node.run(a_run(warmup_s=60))
    node.until(RunState.LOADED)
    node.run(a_run(warmup_s=60))
    assert len(FakeLoad.made) == 1
    node.run(a_run(run_id="r2"))
    assert node.until(RunState.MEASURED).run_id == "r2"
    assert FakeLoad.made[0].calls[-1] == "stop"


@pytest.mark.parametrize(
    ("load", "workload", "sentence"),
    [
        ({"failed": "The client was refused."}, WORKLOAD, "The client was refused."),
        ({"ready": False}, WORKLOAD, "The load of the run did not start within 0 s."),
        ({}, Classes(), "The workload was not finished after 0.01 s, the maximum of a run."),
        (
            {"mistake": True},
            WORKLOAD,
            "An internal error of the agent ended the experiment's run: ZeroDivisionError('a mistake of ours')",
        ),
    ],
)
def test_a_failed_run_has_a_reason_and_the_next_one_runs(
    load: dict[str, str | bool], workload: Workload, sentence: str, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.begin(workload)
    with monkeypatch.context() as patch:
        patch.setattr(experiment, "READY_TIMEOUT_S", 0.0)
        for name, value in load.items():
            patch.setattr(FakeLoad, name, value)
        node.run(a_run(workload))
        failed = node.until(RunState.MEASURED)
    assert (failed.state, failed.run_id, failed.sentence) == (RunState.FAILED, "r1", sentence)
    assert "stop" in FakeLoad.made[0].calls
    monkeypatch.setattr(FakeLoad, "done", True)
    node.run(a_run(workload, run_id="r2"))
    assert node.until(RunState.MEASURED).state is RunState.MEASURED


def test_a_run_that_cannot_start_fails_with_a_reason(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.begin()

    def unreadable(_root: Path) -> None:
        raise ZeroDivisionError("a mistake of ours")

    monkeypatch.setattr(experiment, "Meter", unreadable)
    node.run(a_run())
    assert (node.told[-1].state, "a mistake of ours" in node.told[-1].sentence) == (RunState.FAILED, True)


def test_a_packet_that_passes_a_card_and_a_bridge_counts_once(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[Sequence[str]] = []

    def counts(before: Reading, after: Reading, *, netdevs: Sequence[str], **_: object) -> RunResult:
        counted.append(netdevs)
        return run_result(before, after, netdevs=netdevs, irqs={}, load={}, load_before=0)

    monkeypatch.setattr(experiment, "run_result", counts)
    node.inventory = Inventory(
        [*(Netdev(name, None, None, 1500, None, True, name == "br0", False, []) for name in ("br0", "eth0"))], []
    )
    node.begin(Observe())
    for run in (a_run(Observe()), replace(a_run(Observe(), run_id="r2"), netdevs=["br0"])):
        node.run(run)
        node.until(RunState.MEASURED)
    assert counted == [["eth0"], ["br0"]]


def test_a_finite_workload_is_measured_from_start_to_end(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeLoad, "done", True)
    node.begin(Classes())
    node.run(a_run(Classes(), warmup_s=60, measure_s=60))
    node.until(RunState.MEASURED)
    assert FakeLoad.made[0].calls == ["begin", "start alone ", "end", "stop"]


def test_a_command_starts_and_is_measured_after_the_settling_time(node: Node, tmp_path: Path) -> None:
    file = tmp_path / "commands.toml"
    file.write_text('[commands]\nweb-load = ["/bin/true"]\n')
    file.chmod(0o600)
    node.begin(Command(name="web-load"))
    node.run(a_run(Command(name="web-load"), warmup_s=600))
    node.session.step()
    assert FakeLoad.made[0].calls == []
    node.run(a_run(Command(name="web-load"), run_id="r2", measure_s=60))
    node.until(RunState.LOADED)
    assert FakeLoad.made[1].calls == ["begin", "start alone "]


def test_a_failed_preparation_fails_the_experiment(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakePrepared, "how", "No namespace can be made.")
    failed = node.begin()
    assert (failed.state, failed.run_id, failed.sentence) == (RunState.FAILED, None, "No namespace can be made.")
    node.run(a_run())
    assert "has not begun" in node.told[-1].sentence
    assert FakePrepared.made[0].closed


def test_a_namespace_that_is_gone_fails_the_run_and_the_experiment(node: Node) -> None:
    node.begin()
    node.run(a_run(warmup_s=60))
    node.until(RunState.LOADED)
    FakePrepared.made[0].failed = "It is\ngone."
    node.until(RunState.MEASURED)
    assert [(told.state, told.run_id, told.sentence) for told in node.told[-2:]] == [
        (RunState.FAILED, "r1", "It is gone."),
        (RunState.FAILED, None, "It is gone."),
    ]
    assert FakePrepared.made[0].closed


def test_only_commands_that_the_operator_allowed_are_run(node: Node, tmp_path: Path) -> None:
    assert "does not allow the command web-load" in node.begin(Command(name="web-load")).sentence
    file = tmp_path / "commands.toml"
    file.write_text('[commands]\nweb-load = ["/bin/true"]\n')
    file.chmod(0o600)
    assert node.begin(Command(name="web-load")).state is RunState.READY
    node.run(a_run(Command(name="web-load")))
    assert FakeLoad.made[0].commands == {"web-load": ["/bin/true"]}
    node.run(a_run(Command(name="other"), run_id="r2"))
    assert node.told[-1].state is RunState.FAILED


def test_an_observing_agent_generates_no_load_and_measures_existing_traffic(tmp_path: Path, fake: None) -> None:
    node = Node(tmp_path, observe_reason="It may not write below /proc/irq; run it as root to change interrupts.")
    refused = node.begin()
    assert refused.state is RunState.FAILED
    assert refused.sentence.startswith("This agent generates no load, because it only observes. It may not write")
    assert node.begin(Observe(), experiment_id=2).state is RunState.READY
    node.run(replace(a_run(Observe()), irqbalance=True), experiment_id=2)
    assert node.told[-1].sentence.startswith("This agent changes nothing, so irqbalance is not started.")
    node.run(a_run(Observe(), measure_s=0.05), experiment_id=2)
    node.until(RunState.LOADED)
    while node.session._run is not None and node.session._run.before is None:
        node.session.step()
    node.session.add_latency(TcpLatency(1, 100, 200, 300))
    measured = node.until(RunState.MEASURED).measured
    assert measured is not None
    assert measured.figures["rtt_p50_us"] == 100
    assert "throughput_bit_per_s" in measured.figures


def test_below_a_captured_tree_nothing_is_loaded(tmp_path: Path, fake: None) -> None:
    node = Node(tmp_path / "state", root=tmp_path)
    assert "reads a captured machine below" in node.begin().sentence


def test_the_contention_factor_of_a_run_is_the_mean_of_those_that_are_known(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    factors = iter((0.5, None, 1.5))
    monkeypatch.setattr(experiment, "largest_contention", lambda _: next(factors))
    node.begin()
    node.session.add_contention(lambda: EMPTY)
    node.run(a_run(measure_s=0.05))
    node.until(RunState.LOADED)
    while node.session._run is not None and node.session._run.before is None:
        node.session.step()
    for _ in range(3):
        node.session.add_contention(lambda: EMPTY)
    measured = node.until(RunState.MEASURED).measured
    assert measured is not None
    assert measured.figures["contention_factor"] == 1.0


def test_settings_changed_during_a_measurement_disturb_the_run(node: Node) -> None:
    node.begin()
    node.session.note_disturbance(frozenset({"irq/1/affinity"}))
    node.run(a_run(measure_s=0.05))
    node.until(RunState.LOADED)
    while node.session._run is not None and node.session._run.before is None:
        node.session.step()
    node.session.note_disturbance(frozenset())
    node.session.note_disturbance(frozenset({"irq/41/affinity"}))
    measured = node.until(RunState.MEASURED).measured
    assert measured is not None
    assert measured.disturbed == ["irq/41/affinity changed during the measurement."]


def index_of(netdev: str) -> int | None:
    """The number that no other device has, also not a later one of that name."""
    return {name: index for index, name in socket.if_nameindex()}.get(netdev)


def running_children(others: list[psutil.Process]) -> list[psutil.Process]:
    """Return this process's children that run, except others: an earlier test's server may run beside."""
    children = [child for child in psutil.Process().children() if child not in others]
    return [child for child in children if child.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes network namespaces")
@pytest.mark.parametrize(
    ("workload", "measure_s", "figures"),
    [
        (TcpRequest(connections=2, limit_per_s=2000), 0.3, {"requests_per_s", "rtt_p50_us", "packets_per_s"}),
        (UdpFlood(flows=8, packets_per_s=2000), 0.3, {"throughput_bit_per_s", "cpu_s_per_gbit"}),
        (Classes(requests=10), PATIENCE_S, {"c1_mean_us", "c5_by_c1"}),
        (
            Bsp(loops=5, exchange_ms=1),
            PATIENCE_S,
            {"job_response_s", "spin_s", "loops_per_s", "context_switches_per_s"},
        ),
        (Memory(mib=4, work_s=0.5), PATIENCE_S, {"makespan_s", "memory_run_s", "compute_run_s", "cpu_busy_percent"}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_real_load_is_measured_and_nothing_of_it_is_left(
    workload: Workload, measure_s: float, figures: set[str], tmp_path: Path
) -> None:
    others = psutil.Process().children()
    node = Node(tmp_path)
    ready = node.begin(workload)
    assert ready.state is RunState.READY, ready.sentence
    index = index_of(ready.netdev)
    run = a_run(workload, measure_s=measure_s)
    node.run(replace(run, netdevs=[ready.netdev] if ready.netdev else []))
    told = node.until(RunState.MEASURED)
    assert told.measured is not None, told.sentence
    assert figures <= told.measured.figures.keys()
    assert told.measured.disturbed == []
    node.session.handle(EndExperiment(1))
    assert running_children(others) == []
    poll(lambda: index is None or index_of(ready.netdev) != index)  # the kernel removes it after the last process
