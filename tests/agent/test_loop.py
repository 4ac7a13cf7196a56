"""A whole agent in a process of its own, on a small captured tree, against a backend of the test's own."""

import errno
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.agent.fake_backend import Backend, Connection
from tests.support.polling import PATIENCE_S

from coresteer_agent.__main__ import main
from coresteer_agent.config import Config
from coresteer_agent.observe.flows import FlowReader
from coresteer_agent.runtime import changes, loop
from coresteer_agent.runtime.identity import observe_reason
from coresteer_agent.runtime.loop import Agent
from coresteer_agent.runtime.nic_learning import NicLearningFile
from coresteer_agent.runtime.schedule import Schedule
from coresteer_agent.transport.enrol import NodeKey
from coresteer_agent.transport.link import Link
from coresteer_core.changes.events import ApplyRequested, BackendReconnected
from coresteer_core.changes.plan import Action, Plan
from coresteer_core.changes.report import ChangeMessage, ChangeState, EndedBy
from coresteer_core.node.nic import CoalescingPoint, DriverRecord, DriverResponse, NicKnowledge, Verdict
from coresteer_core.node.tasks import NetTask
from coresteer_core.node.view import View
from coresteer_core.policies import engine
from coresteer_core.policies.base import Decision, Mode, Proposal
from coresteer_core.policies.engine_state import PolicyInForce
from coresteer_core.policies.irq_spread.policy import IrqSpread, IrqSpreadMemory
from coresteer_core.protocol import (
    Apply,
    ChangeAck,
    Confirm,
    DecisionMessage,
    FlowsMessage,
    InventoryMessage,
    LearnedMessage,
    Policies,
    RatesMessage,
    Rollback,
    TasksMessage,
    TopologyMessage,
    encode,
)

STAT = "cpu  0 0 0 0 0 0 0 0 0 0\ncpu0 1 0 1 9 0 0 0 0 0 0\ncpu1 1 0 1 9 0 0 0 0 0 0\n"
INTERRUPTS = (
    "           CPU0       CPU1       \n"
    " 41:          1          0   PCI-MSI 524288-edge      eth0-rx-0\n"
    " 42:          1          0   PCI-MSI 524289-edge      eth0-rx-1\n"
)


def plant(root: Path) -> None:
    """Write the small captured tree: two CPUs, a NIC with two interrupts that may be moved."""
    files = {
        "proc/stat": STAT,
        "proc/interrupts": INTERRUPTS,
        "sys/devices/system/cpu/online": "0-1\n",
        "sys/devices/system/cpu/present": "0-1\n",
        "sys/devices/system/cpu/possible": "0-1\n",
        "proc/irq/41/smp_affinity_list": "0-1\n",
        "proc/irq/42/smp_affinity_list": "0-1\n",
        "proc/irq/41/effective_affinity_list": "0\n",
        "proc/irq/42/effective_affinity_list": "0\n",
    }
    for cpu in (0, 1):
        files[f"sys/devices/system/cpu/cpu{cpu}/topology/core_id"] = f"{cpu}\n"
        files[f"sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id"] = "0\n"
        files[f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"] = f"{cpu}\n"
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    plant(root)
    return root


@pytest.fixture
def backend() -> Iterator[Backend]:
    backend = Backend()
    yield backend
    backend.close()


Start = Callable[[], subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path, root: Path, backend: Backend) -> Iterator[Start]:
    state = tmp_path / "state"
    (state / "agent").mkdir(parents=True)
    (state / "agent/key.json").write_bytes(msgspec.json.encode(NodeKey(backend.address, 7, "n", "k")))
    running: list[subprocess.Popen[str]] = []
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CORESTEER_")}

    def start() -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "coresteer_agent", "run", "--backend", backend.address, "--interval", "0.1"]
        command += ["--root", str(root), "--state-dir", str(state)]
        running.append(subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment))
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.communicate(timeout=PATIENCE_S)


def affinity(root: Path, irq: int = 41) -> str:
    return (root / f"proc/irq/{irq}/smp_affinity_list").read_text().strip()


def next_change(connection: Connection) -> ChangeMessage:
    while not isinstance(message := connection.hear(), ChangeMessage):
        pass
    return message


def greet(backend: Backend) -> Connection:
    connection = backend.next_connection()
    connection.hello()
    connection.welcome()
    return connection


def move(connection: Connection, change_id: str = "c", becomes: str = "1") -> ChangeMessage:
    plan = Plan([Action("irq/41/affinity", "0-1", becomes, "test")])
    connection.websocket.send(encode(Apply(change_id, plan, 60)))
    assert next_change(connection).state is ChangeState.APPLYING
    return next_change(connection)


def test_an_agent_reports_the_node_and_then_samples_in_order(backend: Backend, start: Start) -> None:
    start()
    connection = backend.next_connection()
    hello = connection.hello()
    assert (hello.mode, hello.interval_s, hello.first_seq) == ("control", 0.1, 1)
    connection.welcome()
    topology, inventory = connection.hear(), connection.hear()
    assert isinstance(topology, TopologyMessage)
    assert sorted(topology.topology.online()) == [0, 1]
    assert isinstance(inventory, InventoryMessage)
    assert [irq.irq for irq in inventory.inventory.irqs] == [41, 42]
    assert connection.seqs(5) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("content", [b"", b"\0" * 300], ids=["emptied", "zeroed"])
def test_an_agent_that_lost_its_journal_observes_and_says_so_until_that_is_accepted(
    backend: Backend, start: Start, root: Path, tmp_path: Path, content: bytes
) -> None:
    first = start()
    connection = greet(backend)
    move(connection)
    first.kill()
    first.wait(PATIENCE_S)
    for file in (tmp_path / "state/agent").glob("journal*.jsonl"):
        file.write_bytes(content)
    second = start()
    hello = backend.next_connection().hello()
    assert hello.mode == "observe"
    assert "coresteer-agent accept-lost-journal" in (hello.observe_reason or "")
    assert affinity(root) == "1", "its original value is unknown"
    second.kill()
    second.wait(PATIENCE_S)
    assert main(["restore", "--root", str(root), "--state-dir", str(tmp_path / "state")]) == 1
    for _ in range(2):
        assert main(["accept-lost-journal", "--root", str(root), "--state-dir", str(tmp_path / "state")]) == 0
    start()
    assert backend.next_connection().hello().mode == "control"


def test_what_was_learned_of_nics_is_saved_and_reported_again(
    backend: Backend, start: Start, root: Path, tmp_path: Path
) -> None:
    (root / "proc/sys/kernel").mkdir(parents=True)
    (root / "proc/sys/kernel/osrelease").write_text("6.12\n")
    tried = DriverResponse("coalesce/rx-usecs", "500", Verdict.ROUNDED, "504", "", time.time_ns() // 1_000_000)
    learned = NicKnowledge(
        [DriverRecord("igb", "6.12", [tried])], [CoalescingPoint("eth0", 504, None, False, 5.0, 1, 1, 1, 0)]
    )
    NicLearningFile(tmp_path / "state/agent/nics.json").write(learned)
    for _ in range(2):
        process = start()
        connection = backend.next_connection()
        connection.hello()
        connection.welcome()
        assert next(m for m in iter(connection.hear, None) if isinstance(m, LearnedMessage)).learned == learned
        process.terminate()
        process.wait(PATIENCE_S)


def test_an_interrupt_is_moved_confirmed_and_rolled_back(backend: Backend, start: Start, root: Path) -> None:
    start()
    connection = greet(backend)
    waiting = move(connection)
    assert (waiting.state, affinity(root)) == (ChangeState.UNCONFIRMED, "1")
    assert waiting.deadline_ms is not None
    connection.websocket.send(encode(Confirm("c")))
    assert next_change(connection).state is ChangeState.CONFIRMED
    connection.websocket.send(encode(Rollback("c")))
    ended = next_change(connection)
    assert (ended.state, ended.ended_by, affinity(root)) == (ChangeState.ROLLED_BACK, EndedBy.USER, "0-1")


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[ChangeMessage]:
    """What an agent in this process says about its changes."""
    told: list[ChangeMessage] = []

    def send_now(_: Link, message: TasksMessage | ChangeMessage) -> None:
        if isinstance(message, ChangeMessage):
            told.append(message)

    monkeypatch.setattr(Link, "send_now", send_now)
    monkeypatch.setattr(loop, "HOUSEKEEPING_S", 0.01)
    return told


def agent_here(root: Path, state_dir: Path) -> Agent:
    """An agent in this process whose backend is never there."""
    address = "http://127.0.0.1:1"
    return Agent(Config((address,), state_dir, root, 0.1, "n"), NodeKey(address, 7, "n", "k"))


MOVE = Apply("c", Plan([Action("irq/41/affinity", "0-1", "1", "test")]), 60)


def test_the_inventory_shows_a_move_at_once(root: Path, tmp_path: Path, told: list[ChangeMessage]) -> None:
    agent = agent_here(root, tmp_path / "state")
    agent._check_node()
    agent._handle(MOVE)
    irq = agent._inventory.irq(41)
    assert irq is not None
    assert irq.requested == "1"


def test_a_plan_with_an_unknown_key_is_refused(root: Path, tmp_path: Path, told: list[ChangeMessage]) -> None:
    agent = agent_here(root, tmp_path / "state")
    agent._check_node()
    agent._handle(Apply("c", Plan([Action("irq/41/../../../etc", "0", "1", "test")]), 60))
    assert told[-1].state is ChangeState.FAILED
    assert "is not a setting Coresteer knows" in told[-1].sentence


def test_an_unreadable_journal_at_a_confirmation_does_not_end_the_agent(
    root: Path, tmp_path: Path, told: list[ChangeMessage]
) -> None:
    agent = agent_here(root, tmp_path / "state")
    agent._check_node()
    plan = Plan([Action("irq/41/affinity", "0-1", "1", "test")])
    agent._changes.feed(ApplyRequested("c", plan, 60, policy="spread", confirm_after_s=0))
    journal = tmp_path / "state/agent/journal.jsonl"
    journal.rename(journal.with_suffix(".away"))
    journal.mkdir()
    agent._changes.tick()
    assert told[-1].state is ChangeState.UNCONFIRMED
    assert "so the change cannot be confirmed yet" in told[-1].sentence
    journal.rmdir()
    journal.with_suffix(".away").rename(journal)
    agent._changes.tick()
    assert (told[-1].state, affinity(root)) == (ChangeState.CONFIRMED, "1")


def test_an_agent_stops_before_the_requests_that_still_wait_and_rolls_back(
    root: Path, tmp_path: Path, told: list[ChangeMessage]
) -> None:
    agent = agent_here(root, tmp_path / "state")
    agent._handle(MOVE)
    for number in range(200):
        agent._inbox.put(Apply(f"flood {number}", Plan([]), 60))
    agent.stop()
    agent.run()
    assert {message.change_id for message in told} == {"c"}
    assert (told[-1].state, affinity(root)) == (ChangeState.ROLLED_BACK, "0-1")


def test_an_unexpected_error_rolls_back_unconfirmed_changes(
    root: Path, tmp_path: Path, told: list[ChangeMessage], monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = agent_here(root, tmp_path / "state")
    agent._handle(MOVE)
    assert (told[-1].state, affinity(root)) == (ChangeState.UNCONFIRMED, "1")

    def broken() -> None:
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr(agent._changes, "tick", broken)
    with pytest.raises(RuntimeError, match="a mistake of ours"):
        agent.run()
    assert (told[-1].state, affinity(root)) == (ChangeState.ROLLED_BACK, "0-1")


@pytest.mark.parametrize("broken", ["_sampler.sample", "_inventory_reader.read", "_processes.scan"])
def test_a_failing_collector_is_logged_once_and_the_confirmation_timer_runs(  # noqa: PLR0917 - fixtures
    broken: str,
    root: Path,
    tmp_path: Path,
    told: list[ChangeMessage],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    agent = agent_here(root, tmp_path / "state")
    agent._check_node()
    agent._handle(MOVE)
    failures = []

    def fail(*_: object) -> None:
        failures.append(broken)
        if len(failures) == 3:
            clock = SimpleNamespace(monotonic=lambda: time.monotonic() + 60, time_ns=time.time_ns)
            monkeypatch.setattr(changes, "time", clock)
        raise RuntimeError("a mistake of ours")

    def tell(message: ChangeMessage) -> None:
        told.append(message)
        if message.state is ChangeState.ROLLED_BACK:
            agent.stop()

    monkeypatch.setattr(agent._changes, "_report", tell)
    monkeypatch.setattr(loop, "TASKS_S", 0.01)
    collector, method = broken.split(".")
    monkeypatch.setattr(getattr(agent, collector), method, fail)
    patience = threading.Timer(PATIENCE_S, agent.stop)
    patience.start()
    agent.run()
    patience.cancel()
    assert told[-1].ended_by is EndedBy.TIMEOUT
    assert affinity(root) == "0-1"
    assert len([message for message in caplog.messages if "a mistake of ours" in message]) == 1


@pytest.mark.parametrize("by", ["tick", "check_guardrails"])
def test_a_change_that_ends_by_itself_disturbs_an_experiments_run(
    by: str, root: Path, tmp_path: Path, told: list[ChangeMessage], monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = agent_here(root, tmp_path / "state")
    disturbed = set[str]()

    def roll_back(*_: object) -> frozenset[str]:
        agent.stop()
        return frozenset({"irq/41/affinity"})

    session = MagicMock(due=math.inf, note_disturbance=disturbed.update)
    session.step.return_value = session.end.return_value = frozenset()
    monkeypatch.setattr(agent, "_experiment", session)
    monkeypatch.setattr(agent._changes, by, roll_back)
    patience = threading.Timer(PATIENCE_S, agent.stop)
    patience.start()
    agent.run()
    patience.cancel()
    assert disturbed == {"irq/41/affinity"}


def test_policies_are_evaluated_while_persisted_settings_fail(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = agent_here(root, tmp_path / "state")
    called = []

    def fail(_: View) -> frozenset[str]:
        called.append("persisted settings")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def decide() -> frozenset[str]:
        called.append("policies")
        agent.stop()
        return frozenset()

    monkeypatch.setattr(agent._persisted, "step", fail)
    monkeypatch.setattr(agent, "_decide", decide)
    monkeypatch.setattr(loop, "ROUND_PERIOD_S", 0.1)
    patience = threading.Timer(PATIENCE_S, agent.stop)
    patience.start()
    agent.run()
    patience.cancel()
    assert called == ["persisted settings", "policies"]


def test_policies_are_evaluated_with_recent_rates_and_network_processes(
    root: Path, tmp_path: Path, told: list[ChangeMessage], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spread sees who talks, moves an interrupt, and the agent goes on with it after a restart without a backend."""
    talker = NetTask(812, 1, "nginx", None, 1, "0-1", "0-1", 0, 0.5, 0.0, [])
    flows = [[talker], [talker], [], []]
    views: list[View] = []
    said: list[FlowsMessage | DecisionMessage] = []
    repeated: list[DecisionMessage] = []

    def decide(view: View, *_: object) -> Decision:
        views.append(view)
        irq = view.inventory.irq(41)
        moved = irq is not None and irq.requested == "1"
        return Decision("", IrqSpreadMemory(), [] if moved else [Proposal("irq/41/affinity", "1", "IRQ 41", "test")])

    monkeypatch.setattr(engine, "decide", decide)
    monkeypatch.setattr(FlowReader, "read", lambda *_: flows.pop(0))
    monkeypatch.setattr(
        Link, "send_decision", lambda _, message, again=False: (repeated if again else said).append(message)
    )
    monkeypatch.setattr(Link, "send_flows", lambda _, message: said.append(message))
    monkeypatch.setattr(loop, "ROUND_PERIOD_S", 0.3)
    agent = agent_here(root, tmp_path / "state")
    agent._handle(Policies([PolicyInForce("7", 1, "spread", 1, Mode.ENFORCE, IrqSpread())]))

    def step() -> frozenset[str]:
        touched = decided()
        if not flows:
            agent.stop()
        return touched

    decided = agent._decide
    monkeypatch.setattr(agent, "_decide", step)
    agent.run()
    assert [len(told.tasks) for told in said if isinstance(told, FlowsMessage)] == [1, 1, 0]
    decisions = [told for told in said if isinstance(told, DecisionMessage)]
    assert [decision.change_id is None for decision in decisions] == [False, True]
    assert decisions[0].change_id == told[0].change_id
    assert views[0].tasks == [talker]
    assert 0 < views[-1].load.seconds < views[-1].time_s - views[0].time_s, "of the last round, not of all"
    irq = views[1].inventory.irq(41)
    assert irq is not None
    assert irq.requested == "1"
    assert told[-1].ended_by is EndedBy.AGENT_RESTART
    agent._handle(BackendReconnected())
    assert repeated == [decisions[-1]]
    again = agent_here(root, tmp_path / "state")
    again._check_node()
    flows.append([])
    again._decide()
    assert affinity(root) == "1"
    again._check_node()
    assert again._inventory.held == {"irq/41/affinity": "7"}


def test_policies_do_not_use_old_rates_where_none_can_be_read(
    root: Path, tmp_path: Path, told: list[ChangeMessage], monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = agent_here(root, tmp_path / "state")
    views: list[View] = []
    agent._policies.set_policies([PolicyInForce("7", 1, "spread", 1, Mode.ENFORCE, IrqSpread())])

    def step(view: View) -> frozenset[str]:
        views.append(view)
        return frozenset()

    monkeypatch.setattr(agent._policies, "step", step)
    talker = NetTask(812, 1, "nginx", None, 1, "0-1", "0-1", 0, 0.5, 0.0, [])
    monkeypatch.setattr(FlowReader, "read", lambda *_: [talker])

    def look() -> None:
        agent._sample()
        agent._attempt("flows", agent._report_flows)
        agent._decide()

    look()
    look()
    assert views[-1].tasks == [talker]
    agent._sample()
    assert agent._rates is not None
    assert agent._rates.counters["rx_bytes_remote"] == 0, "bytes by distance are of the processes read last"
    assert views[-1].load.seconds > 0

    def fail(*_: object) -> None:
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr(agent._sampler, "sample", fail)
    monkeypatch.setattr(FlowReader, "read", fail)
    look()
    assert (views[-1].tasks, views[-1].load.seconds) == ([], 0)


@pytest.mark.parametrize("name", ["isolated", "nohz_full"])
def test_a_cpu_that_was_just_isolated_is_refused(
    name: str, root: Path, tmp_path: Path, told: list[ChangeMessage]
) -> None:
    agent = agent_here(root, tmp_path / "state")
    agent._check_node()
    (root / "sys/devices/system/cpu" / name).write_text("1\n")
    agent._handle(MOVE)
    assert (told[-1].state, affinity(root)) == (ChangeState.FAILED, "0-1")
    assert "isolcpus" in told[-1].sentence


def test_without_hot_plug_events_the_topology_is_read_again_after_a_while(
    root: Path, tmp_path: Path, told: list[ChangeMessage]
) -> None:
    agent = agent_here(root, tmp_path / "state")
    (root / "sys/devices/system/cpu/cpu1/topology/physical_package_id").write_text("1\n")
    for _ in range(loop.RESCAN_POLLS):
        assert agent._topology.cpus[1].package == 0
        agent._check_node()
    assert agent._topology.cpus[1].package == 1


def test_a_cpu_that_just_went_offline_is_refused(backend: Backend, start: Start, root: Path) -> None:
    start()
    connection = greet(backend)
    (root / "sys/devices/system/cpu/online").write_text("0\n")
    failed = move(connection)
    assert (failed.state, affinity(root)) == (ChangeState.FAILED, "0-1")
    assert "CPU 1 is not online" in failed.sentence


def test_an_agent_that_stops_rolls_back_unconfirmed_changes(backend: Backend, start: Start, root: Path) -> None:
    agent = start()
    connection = greet(backend)
    move(connection)
    agent.send_signal(signal.SIGHUP)
    agent.send_signal(signal.SIGTERM)
    assert next_change(connection).ended_by is EndedBy.AGENT_RESTART
    assert agent.wait(PATIENCE_S) == 0
    assert affinity(root) == "0-1"
    assert connection.closed.wait(PATIENCE_S)


def test_a_killed_agent_rolls_back_at_its_next_start_and_reports_until_acknowledged(
    backend: Backend, start: Start, root: Path
) -> None:
    agent = start()
    move(greet(backend))
    agent.kill()
    agent.wait(PATIENCE_S)
    assert affinity(root) == "1"
    start()
    connection = greet(backend)
    told = next_change(connection)
    assert (told.change_id, told.ended_by, affinity(root)) == ("c", EndedBy.AGENT_RESTART, "0-1")
    connection.close()
    connection = greet(backend)
    assert next_change(connection) == told
    connection.websocket.send(encode(ChangeAck("c", told.state)))
    connection.websocket.send(encode(Confirm("c")))
    assert next_change(connection) == told  # an answer, so what was sent before it has been heard
    connection.close()
    connection = greet(backend)
    heard = [connection.hear() for _ in range(8)]
    assert not [message for message in heard if isinstance(message, ChangeMessage)]
    assert [message for message in heard if isinstance(message, RatesMessage)]


def test_a_confirmed_change_stays_when_the_agent_ends(backend: Backend, start: Start, root: Path) -> None:
    agent = start()
    connection = greet(backend)
    move(connection)
    connection.websocket.send(encode(Confirm("c")))
    assert next_change(connection).state is ChangeState.CONFIRMED
    agent.terminate()
    assert agent.wait(PATIENCE_S) == 0
    assert affinity(root) == "1"


def test_a_tree_without_interrupts_is_only_observed(backend: Backend, start: Start, root: Path) -> None:
    for irq in (41, 42):
        (root / f"proc/irq/{irq}/smp_affinity_list").unlink()
    start()
    connection = backend.next_connection()
    hello = connection.hello()
    assert hello.mode == "observe"
    assert hello.observe_reason == observe_reason(root)
    connection.welcome()
    plan = Plan([Action("irq/41/affinity", "0-1", "1", "test")])
    connection.websocket.send(encode(Apply("c", plan, 60)))
    refused = next_change(connection)
    assert refused.state is ChangeState.FAILED
    assert str(hello.observe_reason) in refused.sentence


def test_a_tree_without_counters_is_sampled_without_a_crash(
    backend: Backend, start: Start, root: Path, tmp_path: Path
) -> None:
    root.rename(tmp_path / "away")
    (root / "sys/devices/system/cpu").mkdir(parents=True)
    (root / "sys/devices/system/cpu/present").write_text("0\n")
    start()
    connection = greet(backend)
    while not isinstance(message := connection.hear(), RatesMessage):
        pass
    assert set(message.rates.shares.values()) <= {None}


@given(st.floats(0.1, 60), st.lists(st.floats(0, 500), max_size=30))
def test_periods_do_not_drift_and_missed_ones_are_skipped(interval_s: float, waits: list[float]) -> None:
    schedule = Schedule(interval_s, 1000.0)
    now = 1000.0
    for wait in waits:
        now += wait
        was_due = schedule.due <= now
        assert schedule.is_due(now) is was_due
        assert schedule.due - now <= interval_s * 1.001
        assert schedule.is_due(now) is False
        beats = (schedule.due - 1000.0) / interval_s
        assert abs(beats - round(beats)) < 1e-6


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ([], 2, "required: COMMAND"),
        (["run", "--backend", "nonsense"], 2, "is not a backend address"),
        (["run", "--backend", "http://192.0.2.1"], 2, "not encrypted"),
        (["run", "--interval", "0.01"], 2, "0.1 to 60 seconds"),
        (["run", "--load-option-ports", "http"], 2, "is not a TCP port"),
        (["run", "--root", "/nonexistent"], 2, "does not exist"),
        (["run", "--state-dir", "/nonexistent"], 1, "has no key"),
        (["enrol", "--backend", "http://127.0.0.1:1", "--token", "t"], 1, "cannot be reached"),
        (["topology", "--root", "/dev/null"], 2, "is not a directory"),
    ],
)
def test_command_line_errors_are_sentences_without_a_traceback(arguments: list[str], code: int, says: str) -> None:
    command = [sys.executable, "-m", "coresteer_agent", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code
    assert says in done.stderr
    assert "Traceback" not in done.stderr
