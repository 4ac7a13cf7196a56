"""Experiments of a whole agent on this machine, against a backend of the test's own: runs, and cuts."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest
from msgspec.structs import replace
from tests.agent.fake_backend import Backend, Connection
from tests.support.polling import PATIENCE_S, poll

from coresteer_agent.config import Config
from coresteer_agent.runtime import loop
from coresteer_agent.runtime.loop import Agent
from coresteer_agent.transport.enrol import NodeKey
from coresteer_agent.transport.link import Link
from coresteer_core.changes.events import BackendLost, BackendReconnected
from coresteer_core.experiments.model import Observe, Run, RunState, TcpRequest, UdpFlood, Workload
from coresteer_core.policies.base import Mode
from coresteer_core.policies.engine_state import PolicyInForce
from coresteer_core.policies.irq_spread.policy import IrqSpread
from coresteer_core.protocol import (
    BeginExperiment,
    EndExperiment,
    ExperimentMessage,
    Policies,
    RatesMessage,
    RunExperiment,
    encode,
)

WORKLOAD = UdpFlood(flows=4, packets_per_s=1000)


@pytest.fixture
def backend() -> Iterator[Backend]:
    backend = Backend()
    yield backend
    backend.close()


@pytest.fixture
def agent(tmp_path: Path, backend: Backend) -> Iterator[subprocess.Popen[bytes]]:
    """On this machine, told to change nothing."""
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent/key.json").write_bytes(msgspec.json.encode(NodeKey(backend.address, 7, "n", "k")))
    command = [sys.executable, "-m", "coresteer_agent", "run", "--backend", backend.address, "--interval", "0.1"]
    process = subprocess.Popen([*command, "--state-dir", str(tmp_path)], stderr=subprocess.DEVNULL)
    yield process
    process.kill()
    process.wait(PATIENCE_S)


def greet(backend: Backend) -> Connection:
    connection = backend.next_connection()
    connection.hello()
    connection.welcome()
    return connection


def told(connection: Connection, state: RunState) -> ExperimentMessage:
    """The next word of the experiment that says so, or that it has failed."""
    while True:
        message = connection.hear()
        if isinstance(message, ExperimentMessage) and message.state in (state, RunState.FAILED):
            return message


def a_run(netdev: str, *, warmup_s: float = 0.0, measure_s: float = 0.5) -> Run:
    return Run(run_id="r", workload=WORKLOAD, role="alone", warmup_s=warmup_s, measure_s=measure_s, netdevs=[netdev])


def loaded(backend: Backend) -> tuple[Connection, ExperimentMessage]:
    """A run that will not end by itself is on."""
    connection = greet(backend)
    connection.websocket.send(encode(BeginExperiment(1, WORKLOAD, "alone")))
    ready = told(connection, RunState.READY)
    connection.websocket.send(encode(RunExperiment(1, a_run(ready.netdev, warmup_s=600))))
    assert told(connection, RunState.LOADED).sentence == ""
    return connection, ready


def left(process: "subprocess.Popen[bytes]") -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


def poll_removed(netdev: tuple[int, str]) -> None:
    """Wait until the kernel has removed a netdev, some time after the last process of its namespace."""
    poll(lambda: netdev not in socket.if_nameindex())


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes network namespaces")


@needs_root
def test_an_agent_samples_while_it_measures_a_run_and_leaves_nothing(
    backend: Backend, agent: "subprocess.Popen[bytes]"
) -> None:
    connection = greet(backend)
    connection.websocket.send(encode(BeginExperiment(1, WORKLOAD, "alone")))
    ready = told(connection, RunState.READY)
    netdev = (socket.if_nametoindex(ready.netdev), ready.netdev)
    connection.websocket.send(encode(RunExperiment(1, a_run(ready.netdev, measure_s=1.0))))
    rates: list[RatesMessage] = []
    while True:
        message = connection.hear()
        if isinstance(message, RatesMessage):
            rates.append(message)
        if isinstance(message, ExperimentMessage) and message.state in (RunState.MEASURED, RunState.FAILED):
            break
    assert message.measured is not None, message.sentence
    assert message.measured.figures["packets_per_s"] > 0
    assert message.measured.duration_s >= 1.0
    assert rates
    connection.websocket.send(encode(EndExperiment(1)))
    poll_removed(netdev)
    poll(lambda: not left(agent))  # a child that has ended counts until the agent has waited for it


@needs_root
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_an_agent_that_ends_during_a_run_leaves_no_process_and_no_netdev(
    number: signal.Signals, backend: Backend, agent: "subprocess.Popen[bytes]"
) -> None:
    _, ready = loaded(backend)
    netdev = (socket.if_nametoindex(ready.netdev), ready.netdev)
    processes = left(agent)
    assert len(processes) > 2
    agent.send_signal(number)
    agent.wait(PATIENCE_S)
    _, alive = psutil.wait_procs(processes, PATIENCE_S)
    assert alive == []
    poll_removed(netdev)


@needs_root
def test_a_load_that_is_killed_fails_the_run_and_the_next_one_is_measured(
    backend: Backend, agent: "subprocess.Popen[bytes]"
) -> None:
    connection, ready = loaded(backend)
    [client] = [
        child for child in psutil.Process(agent.pid).children() if "traffic_client" in " ".join(child.cmdline())
    ]
    client.kill()
    assert told(connection, RunState.MEASURED).state is RunState.FAILED
    connection.websocket.send(encode(RunExperiment(1, replace(a_run(ready.netdev, measure_s=0.2), run_id="again"))))
    measured = told(connection, RunState.MEASURED)
    assert (measured.state, measured.run_id) == (RunState.MEASURED, "again")


@needs_root
@pytest.mark.parametrize("begun", [Observe(), WORKLOAD], ids=["that did not begin so", "that nobody receives"])
def test_an_agent_sends_no_load_of_an_experiment(
    begun: Workload, backend: Backend, agent: "subprocess.Popen[bytes]"
) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as bystander:
        bystander.bind(("127.0.0.1", 0))
        bystander.setblocking(False)
        connection = greet(backend)
        connection.websocket.send(encode(BeginExperiment(1, begun, "client")))
        assert told(connection, RunState.READY).sentence == ""
        address = f"127.0.0.1:{bystander.getsockname()[1]}"
        run = replace(a_run("", warmup_s=600), role="client", address=address)
        connection.websocket.send(encode(RunExperiment(1, run)))
        assert told(connection, RunState.LOADED).state is RunState.FAILED
        with pytest.raises(BlockingIOError):
            bystander.recv(9000)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[ExperimentMessage]:
    """What an agent in this process says of experiments."""
    said: list[ExperimentMessage] = []
    monkeypatch.setattr(Link, "send_now", lambda _, message: said.append(message))
    return said


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "proc/irq/41").mkdir(parents=True)
    (root / "proc/irq/41/smp_affinity_list").write_text("0-1\n")
    return root


def agent_here(root: Path) -> Agent:
    address = "http://127.0.0.1:1"
    return Agent(Config((address,), root.parent / "state", root, 0.1, "n"), NodeKey(address, 7, "n", "k"))


def test_a_lost_connection_ends_the_experiment_and_leases_after_the_grace_time(
    root: Path, said: list[ExperimentMessage], monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = agent_here(root)
    own = PolicyInForce("7", 1, "spread", 1, Mode.ENFORCE, IrqSpread())
    agent._handle(Policies([own]))
    agent._handle(Policies([replace(own, mode=Mode.RECOMMEND, leased=True)]))
    run = RunExperiment(1, replace(a_run(""), workload=Observe(), warmup_s=600))
    agent._handle(BeginExperiment(1, Observe(), "alone"))
    agent._session().step()
    agent._handle(BackendLost())
    agent._check_backend()
    agent._handle(run)
    assert [message.state for message in said] == [RunState.READY]
    agent._handle(BackendReconnected())
    agent._handle(run)
    assert "has not begun" in said[-1].sentence
    assert agent._policies.in_force != [own]
    agent._handle(BeginExperiment(1, Observe(), "alone"))
    agent._session().step()
    agent._handle(BackendLost())
    monkeypatch.setattr(loop, "LOST_BACKEND_GRACE_S", 0.0)
    agent._check_backend()
    assert agent._policies.in_force == [own]
    agent._handle(run)
    assert "has not begun" in said[-1].sentence


def test_an_agent_without_experiments_does_not_import_their_modules() -> None:
    script = (
        "import sys, coresteer_agent.runtime.loop\n"
        "print([m for m in sys.modules if 'workload' in m or 'experiment' in m])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert "coresteer_core.experiments.model" in done.stdout  # of the messages
    assert "coresteer_agent" not in done.stdout


def test_a_load_below_a_captured_tree_is_refused_by_the_agent(root: Path, said: list[ExperimentMessage]) -> None:
    agent = agent_here(root)
    agent._handle(BeginExperiment(1, TcpRequest(), "alone"))
    assert (said[-1].state, "a captured machine below" in said[-1].sentence) == (RunState.FAILED, True)
