"""The gate's socket with real processes: who is let in, and what becomes of those that die, wait or ask nonsense."""

import asyncio
import multiprocessing
import os
import resource
import signal
import socket
import stat
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from ipaddress import ip_address
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from tests.support.gate_fuzz import fuzz_gate
from tests.support.polling import PATIENCE_S, poll

from coresteer_agent.transport import gate_accounts
from coresteer_agent.transport import gate_server as gate_module
from coresteer_agent.transport.gate_accounts import LONGEST_EXCLUSION_S, Account
from coresteer_agent.transport.gate_server import Address, GateError, GateServer
from coresteer_core.node.service_classes import ClassFigures
from coresteer_core.policies.service_class.policy import ServiceClass, ServiceClasses
from coresteer_gate import Gate
from coresteer_gate.aio import AsyncGate

PROCESSES = multiprocessing.get_context("spawn")


def policy(*names: str, slots: int = 1) -> ServiceClasses:
    """Classes with falling targets and a window that outlasts the tests."""
    return ServiceClasses([ServiceClass(n, 90.0 - 10 * i) for i, n in enumerate(names)], window_s=600.0, slots=slots)


@pytest.fixture
def path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # a socket's path is at most 107 bytes long
        yield Path(folder) / "run/gate.sock"


@pytest.fixture
def server(path: Path) -> Iterator[GateServer]:
    served = GateServer(path)
    served.start()
    yield served
    served.stop()


@contextmanager
def connected(path: Path) -> Iterator[socket.socket]:
    """A worker that speaks the wire itself."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as worker:
        worker.settimeout(PATIENCE_S)
        worker.connect(str(path))
        yield worker


def ask(worker: socket.socket, message: str) -> str:
    worker.send(message.encode())
    return worker.recv(256).decode()


def figures_when(server: GateServer, settled: dict[str, tuple[int, int]]) -> dict[str, ClassFigures]:
    """Return the figures by class once these numbers wait and are admitted. A reply to a new client ends a round."""
    for _ in range(10_000):
        with connected(server.path) as after:
            assert ask(after, "enter nothing-of-the-kind").startswith("no ")
        figures = {its.name: its for its in server.figures()}
        if all((figures[name].waiting, figures[name].active) == counts for name, counts in settled.items()):
            return figures
    raise AssertionError(f"It never came to {settled}: {figures}")


def work(path: str, name: str, ours: Connection) -> None:
    """A process that enters, reports its class, and leaves on request."""
    gate = Gate(path)
    ours.send("asks")
    with gate.enter(name) as entered:
        ours.send(entered.name)
        ours.recv()
    ours.send("left")


class Process:
    """One such process. It has its own interpreter and shares no descriptor with the test."""

    def __init__(self, path: Path, name: str) -> None:
        self.pipe, theirs = PROCESSES.Pipe()
        self.process = PROCESSES.Process(target=work, args=(str(path), name, theirs))
        self.process.start()
        theirs.close()
        assert self.hears() == "asks"

    def hears(self) -> str:
        assert self.pipe.poll(PATIENCE_S), "The process says nothing."
        said = self.pipe.recv()
        assert isinstance(said, str)
        return said

    def leave(self) -> None:
        self.pipe.send(None)
        assert self.hears() == "left"

    def end(self) -> None:
        self.process.kill()
        self.process.join(PATIENCE_S)
        self.pipe.close()


@pytest.fixture
def start(path: Path) -> Iterator["list[Process]"]:
    started: list[Process] = []
    yield started
    for process in started:
        process.end()


def started(start: list[Process], path: Path, name: str) -> Process:
    start.append(Process(path, name))
    return start[-1]


def test_every_account_may_use_the_socket_but_not_list_its_folder(server: GateServer) -> None:
    assert stat.S_IMODE(server.path.stat().st_mode) == 0o666
    assert stat.S_IMODE(server.path.parent.stat().st_mode) == 0o755
    assert [entry.name for entry in server.path.parent.iterdir()] == ["gate.sock"]
    server.stop()
    assert list(server.path.parent.iterdir()) == []


def test_only_the_gate_of_an_ended_agent_is_replaced(server: GateServer) -> None:
    with pytest.raises(GateError, match="Another agent serves the gate"):
        GateServer(server.path).start()
    with connected(server.path) as worker:
        assert ask(worker, "enter gold") == "go"
    server.stop()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as dead:
        dead.bind(str(server.path))
    server.start()
    with connected(server.path) as worker:
        assert ask(worker, "enter gold") == "go"


def test_a_gate_that_cannot_be_opened_has_a_reason(path: Path) -> None:
    with pytest.raises(GateError, match=r"cannot be opened at .*: AF_UNIX path too long"):
        GateServer(path / ("x" * 120)).start()


def test_without_a_policy_every_request_is_admitted_without_a_class(server: GateServer) -> None:
    with Gate(str(server.path)).enter("gold") as first, Gate(str(server.path)).enter("gold") as second:
        assert (first.name, second.name) == ("", "")
    assert server.figures() == []


def test_requests_above_the_concurrency_limit_wait_and_the_lowest_f_is_first(
    server: GateServer, start: list[Process]
) -> None:
    server.set_policy(policy("gold", "tin"))
    first = started(start, server.path, "gold")
    assert first.hears() == "gold"
    tin = started(start, server.path, "tin")
    figures_when(server, {"tin": (1, 0)})
    gold = started(start, server.path, "gold")
    figures_when(server, {"tin": (1, 0), "gold": (1, 1)})
    first.leave()
    assert tin.hears() == "tin", "gold has S 1, tin 0"
    assert not gold.pipe.poll()
    tin.leave()
    assert gold.hears() == "gold"
    figures = figures_when(server, {"tin": (0, 0), "gold": (0, 1)})
    assert (figures["gold"].requests, figures["gold"].satisfied) == (2, 1)
    assert (figures["tin"].requests, figures["tin"].satisfied) == (1, 1)


def test_a_worker_killed_while_active_releases_its_slot_and_counts_as_failed(
    server: GateServer, start: list[Process]
) -> None:
    server.set_policy(policy("gold"))
    inside = started(start, server.path, "gold")
    assert inside.hears() == "gold"
    waiting = started(start, server.path, "gold")
    figures_when(server, {"gold": (1, 1)})
    inside.process.kill()
    assert waiting.hears() == "gold"
    figures = figures_when(server, {"gold": (0, 1)})
    assert (figures["gold"].requests, figures["gold"].satisfied) == (2, 0)


def test_a_worker_killed_while_waiting_is_skipped(server: GateServer, start: list[Process]) -> None:
    server.set_policy(policy("gold"))
    inside = started(start, server.path, "gold")
    assert inside.hears() == "gold"
    dying = started(start, server.path, "gold")
    figures_when(server, {"gold": (1, 1)})
    last = started(start, server.path, "gold")
    figures_when(server, {"gold": (2, 1)})
    dying.process.kill()
    figures_when(server, {"gold": (1, 1)})
    inside.leave()
    assert last.hears() == "gold"


def test_when_the_agent_stops_waiting_requests_go_on(server: GateServer, start: list[Process]) -> None:
    server.set_policy(policy("gold"))
    inside, waiting = started(start, server.path, "gold"), started(start, server.path, "gold")
    assert inside.hears() == "gold"
    figures_when(server, {"gold": (1, 1)})
    server.stop()
    assert waiting.hears() == ""
    waiting.leave()
    inside.leave()


def serve(path: str, ours: Connection) -> None:
    """An agent's gate in a process of its own."""
    server = GateServer(Path(path))
    server.start()
    server.set_policy(policy("gold"))
    ours.send("serves")
    ours.recv()


@contextmanager
def agent(path: Path) -> Iterator[int]:
    """Such a process; gives its pid."""
    pipe, theirs = PROCESSES.Pipe()
    process = PROCESSES.Process(target=serve, args=(str(path), theirs))
    process.start()
    theirs.close()
    try:
        assert pipe.poll(PATIENCE_S) and pipe.recv() == "serves"
        assert process.pid is not None
        yield process.pid
    finally:
        process.kill()
        process.join(PATIENCE_S)
        pipe.close()


def test_when_the_agent_is_killed_workers_go_on_and_reconnect(path: Path, start: list[Process]) -> None:
    mine = Gate(str(path))
    with agent(path) as pid:
        with mine.enter("gold") as entered:
            assert entered.name == "gold"
            waiting = started(start, path, "gold")
            os.kill(pid, signal.SIGKILL)
            assert waiting.hears() == ""
        with mine.enter("gold") as entered:
            assert entered.name == ""
    with agent(path):
        mine._away.answered()  # as if the pause had passed
        with mine.enter("gold") as entered:
            assert entered.name == "gold"


def test_a_restarted_agent_is_used_at_once(server: GateServer) -> None:
    mine = Gate(str(server.path))
    with mine.enter("gold"):
        pass
    server.stop()
    server.start()
    server.set_policy(policy("gold"))
    with mine.enter("gold") as entered:
        assert entered.name == "gold"


def test_without_an_agent_connections_are_tried_only_after_the_back_off(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = []
    monkeypatch.setattr(Gate, "_send", lambda _self, message: looked.append(message))
    now = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    mine = Gate(str(path))
    for now[0] in (1000.0, 1000.05, 1000.1, 1000.15, 1000.29, 1000.31):
        with mine.enter("gold") as entered:
            assert entered.name == ""
    assert len(looked) == 3, "at once, after 0.1 s and 0.2 s after that"


def test_an_agent_that_hangs_delays_one_request_at_a_time(path: Path) -> None:
    mine = Gate(str(path))
    asked = threading.Barrier(2)

    def look() -> None:
        with mine.enter("gold") as entered:
            said.append(entered.name)
            asked.wait(PATIENCE_S)

    said: list[str] = []
    with mine.enter("gold") as entered:
        assert entered.name == "", "nobody is there yet"
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as hanging:
        hanging.bind(str(path))
        hanging.listen()
        mine._away._until_s = 0.0  # as if the pause had passed
        looking = threading.Thread(target=look)
        looking.start()
        connection, _ = hanging.accept()
        assert connection.recv(256) == b"enter gold"
        for _ in range(9):
            with mine.enter("gold") as entered:
                assert entered.name == ""
        assert said == [], "the one that looks still waits"
        connection.send(b"go gold 6")
        asked.wait(PATIENCE_S)
        looking.join(PATIENCE_S)
        connection.close()
    assert said == ["gold"]


def test_an_interrupted_attempt_lets_the_next_request_try(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = Gate(str(path))
    with mine.enter("gold"):
        pass
    mine._away._until_s = 0.0  # as if the pause had passed
    reached = []

    def interrupted(_gate: Gate, _message: bytes) -> None:
        reached.append(1)
        raise KeyboardInterrupt

    monkeypatch.setattr(Gate, "_send", interrupted)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt), mine.enter("gold"):
            pass
    assert len(reached) == 2


def test_patience_ends_the_wait_and_leaves_the_queue(server: GateServer) -> None:
    server.set_policy(policy("gold"))
    with Gate(str(server.path)).enter("gold"), Gate(str(server.path), patience_s=0.01).enter("gold") as hasty:
        assert hasty.name == ""
        figures = figures_when(server, {"gold": (0, 1)})
        assert figures["gold"].requests == 2


@pytest.mark.parametrize(
    "message", ["", "hello", "enter", "ENTER gold", "leave", "leave ok ", "leave\0ok", "enter gold\n" * 100]
)
def test_an_invalid_message_closes_the_connection_and_releases_the_slot(server: GateServer, message: str) -> None:
    server.set_policy(policy("gold"))
    with connected(server.path) as nonsense, connected(server.path) as next_one:
        assert ask(nonsense, "enter gold") == "go gold 6"
        nonsense.send(message.encode())
        if message.startswith("enter "):
            assert nonsense.recv(256).startswith(b"no ")
            nonsense.close()
        elif message:
            assert nonsense.recv(256) == b"no such message"
            assert nonsense.recv(256) == b""
        assert ask(next_one, "enter gold") == "go gold 6"


@pytest.mark.parametrize(
    "asked", ["lead", "Gold", "", "@", "@127.0.0.1", "@127.0.0.1 ", "@127.0.0.1 -1", "@here 80", "@::1 80 80", "\udcff"]
)
def test_an_unknown_class_or_invalid_address_goes_on_without_a_slot(server: GateServer, asked: str) -> None:
    server.set_policy(policy("gold"), lambda _client, _port, _pid: "gold")
    with connected(server.path) as worker:
        worker.send(b"enter " + asked.encode("utf-8", "surrogateescape"))
        assert worker.recv(256) == b"no such class"
        assert ask(worker, "enter gold") == "go gold 6"


def test_a_second_request_on_one_connection_closes_it(server: GateServer) -> None:
    server.set_policy(policy("gold"))
    with connected(server.path) as worker:
        assert ask(worker, "enter gold") == "go gold 6"
        assert ask(worker, "enter gold") == "no second request per connection"
        assert worker.recv(256) == b""
    figures_when(server, {"gold": (0, 0)})


def test_a_request_is_classified_by_client_port_and_process(server: GateServer) -> None:
    asked: list[tuple[Address, int, int]] = []

    def classify(client: Address, local_port: int, pid: int) -> str | None:
        asked.append((client, local_port, pid))
        return {80: "gold", 81: "gone"}.get(local_port)

    server.set_policy(policy("gold", slots=9), classify)
    with connected(server.path) as worker:
        assert ask(worker, "enter @10.0.0.7 80") == "go gold 6"
        worker.send(b"leave ok")
        assert ask(worker, "enter @::ffff:10.0.0.8 81") == ask(worker, "enter @fe80::1%2 82") == "no such class"
    assert asked == [
        (ip_address("10.0.0.7"), 80, os.getpid()),
        (ip_address("10.0.0.8"), 81, os.getpid()),
        (ip_address("fe80::1%2"), 82, os.getpid()),
    ]


def test_a_failed_classification_goes_on_without_a_class(server: GateServer, caplog: pytest.LogCaptureFixture) -> None:
    def classify(_client: Address, _port: int, _pid: int) -> str:
        raise RuntimeError("a table is broken")

    server.set_policy(policy("gold"), classify)
    with connected(server.path) as worker:
        for _ in range(3):
            assert ask(worker, "enter @10.0.0.7 80") == "no such class"
    assert [record.getMessage() for record in caplog.records] == [
        "A request could not be classified: a table is broken (logged once)"
    ]


def test_a_tcp_connection_gets_the_priority_of_its_class(server: GateServer) -> None:
    server.set_policy(policy("gold", "tin", slots=9), lambda client, _port, _pid: "tin" if client.is_loopback else None)
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.create_connection(listening.getsockname()):
        connection, _ = listening.accept()
        with connection, Gate(str(server.path)).enter_for(connection) as entered:
            entered.mark(connection)
            assert (entered.name, connection.getsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY)) == ("tin", 0)
            with Gate(str(server.path)).enter("gold") as first:
                first.mark(connection)
            assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY) == 6


def test_a_request_that_raises_or_is_not_ok_counts_as_failed(server: GateServer) -> None:
    server.set_policy(policy("gold"))
    mine = Gate(str(server.path))
    with pytest.raises(ZeroDivisionError), mine.enter("gold"):
        raise ZeroDivisionError
    with mine.enter("gold") as entered:
        entered.ok = False
    with mine.enter("gold"):
        pass
    figures = figures_when(server, {"gold": (0, 0)})["gold"]
    assert (figures.requests, figures.satisfied) == (3, 1)


def test_removing_the_policy_admits_all_and_a_new_one_starts_empty(server: GateServer) -> None:
    server.set_policy(policy("gold"))
    with connected(server.path) as inside, connected(server.path) as waiting, connected(server.path) as third:
        assert ask(inside, "enter gold") == "go gold 6"
        waiting.send(b"enter gold")
        figures_when(server, {"gold": (1, 1)})
        server.set_policy(None)
        assert waiting.recv(256) == b"go"
        server.set_policy(policy("gold"))
        inside.send(b"leave ok")
        assert ask(third, "enter gold") == "go gold 6"
        assert figures_when(server, {"gold": (0, 1)})["gold"].requests == 1


def test_another_policy_reclassifies_waiting_requests(server: GateServer) -> None:
    server.set_policy(policy("gold", "tin"), lambda _client, _port, _pid: "gold")
    with connected(server.path) as inside, connected(server.path) as a, connected(server.path) as b:
        assert ask(inside, "enter gold") == "go gold 6"
        a.send(b"enter @10.0.0.7 80")
        b.send(b"enter tin")
        figures_when(server, {"gold": (1, 1), "tin": (1, 0)})
        server.set_policy(policy("gold", "iron"), lambda _client, _port, _pid: "iron")
        assert b.recv(256) == b"no such class any longer"
        figures_when(server, {"gold": (0, 1), "iron": (1, 0)})
        server.set_policy(policy("gold", "iron", slots=2), lambda _client, _port, _pid: "iron")
        assert a.recv(256) == b"go iron 0"


def test_the_default_concurrency_limit_is_the_cpus_of_the_first_worker(
    server: GateServer, start: list[Process]
) -> None:
    cpus = os.sched_getaffinity(0)
    server.set_policy(policy("gold", slots=0))
    try:
        os.sched_setaffinity(0, {min(cpus)})
        with connected(server.path) as first, connected(server.path) as second:
            assert ask(first, "enter gold") == "go gold 6"
            second.send(b"enter gold")
            figures_when(server, {"gold": (1, 1)})
    finally:
        os.sched_setaffinity(0, cpus)


def test_when_the_first_worker_ends_the_limit_is_the_cpus_of_the_next(server: GateServer, start: list[Process]) -> None:
    cpus = os.sched_getaffinity(0)
    server.set_policy(policy("gold", slots=0))
    try:
        os.sched_setaffinity(0, {min(cpus)})
        with connected(server.path) as first:
            assert ask(first, "enter gold") == "go gold 6"
            os.sched_setaffinity(0, cpus)
            others = [started(start, server.path, "gold") for _ in cpus]
            figures_when(server, {"gold": (len(cpus), 1)})
        assert [other.hears() for other in others] == ["gold"] * len(cpus)
    finally:
        os.sched_setaffinity(0, cpus)


def test_connections_above_the_maximum_are_refused(
    server: GateServer, monkeypatch: pytest.MonkeyPatch, path: Path
) -> None:
    monkeypatch.setattr(gate_module, "MAX_WORKERS", 3)
    server.stop()
    server.start()
    server.set_policy(policy("gold", slots=9))
    mine = [Gate(str(path)) for _ in range(5)]
    names = []
    for each in mine:
        with each.enter("gold") as entered:
            names.append(entered.name)
    assert names == ["gold"] * 3 + [""] * 2
    mine[0].close()
    with connected(path):  # in order: the server has heard of the end by now, or turns this one away
        pass
    with mine[1].enter("gold") as entered:
        assert entered.name == "gold"


def test_without_free_descriptors_a_worker_goes_on_and_the_next_uses_the_gate(server: GateServer) -> None:
    server.set_policy(policy("gold", slots=9))
    mine = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    mine.settimeout(PATIENCE_S)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (mine.fileno(), hard))
        mine.connect(str(server.path))
        assert mine.recv(256) == b""
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        mine.close()
    with connected(server.path) as worker:
        assert ask(worker, "enter gold") == "go gold 6"


def test_a_forked_child_has_its_own_connection(server: GateServer) -> None:
    server.set_policy(policy("gold", slots=2))
    mine = Gate(str(server.path))
    with mine.enter("gold"):
        if (child := os.fork()) == 0:
            with mine.enter("gold") as entered:
                os._exit(0 if entered.name == "gold" and not mine._idle else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        figures = figures_when(server, {"gold": (0, 1)})["gold"]
        assert (figures.requests, figures.satisfied) == (2, 0), "the child died inside"


def test_threads_of_one_gate_stay_within_the_concurrency_limit(server: GateServer) -> None:
    server.set_policy(policy("gold", "tin", slots=2))
    mine = Gate(str(server.path))
    lock, inside, most, entered_as = threading.Lock(), 0, 0, []

    def requests(name: str) -> None:
        nonlocal inside, most
        for _ in range(100):
            with mine.enter(name) as entered:
                with lock:
                    inside += 1
                    most = max(most, inside)
                    entered_as.append(entered.name)
                with lock:
                    inside -= 1

    threads = [threading.Thread(target=requests, args=(name,)) for name in ("gold", "tin") for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert most <= 2
    assert sorted(entered_as) == ["gold"] * 400 + ["tin"] * 400
    figures = figures_when(server, {"gold": (0, 0), "tin": (0, 0)})
    assert [(its.requests, its.satisfied) for its in figures.values()] == [(400, 400)] * 2


async def test_tasks_wait_their_turn_and_a_cancelled_one_gives_its_place_back(server: GateServer) -> None:
    server.set_policy(policy("gold", "tin"))
    mine = AsyncGate(str(server.path))
    order: list[str] = []

    async def request(name: str) -> None:
        async with mine.enter(name) as entered:
            order.append(entered.name)

    async with mine.enter("gold") as entered:
        assert entered.name == "gold"
        gold, tin, cancelled = (asyncio.create_task(request(name)) for name in ("gold", "tin", "tin"))
        await asyncio.to_thread(figures_when, server, {"gold": (1, 1), "tin": (2, 0)})
        cancelled.cancel()
        await asyncio.gather(cancelled, return_exceptions=True)
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(gold, tin)
    assert order == ["tin", "gold"]
    mine.close()


async def test_tasks_that_wait_go_straight_on_when_the_agent_stops_and_find_it_again(server: GateServer) -> None:
    server.set_policy(policy("gold"))
    mine = AsyncGate(str(server.path))

    async def request() -> str:
        async with mine.enter("gold") as entered:
            return entered.name

    async with mine.enter("gold"):
        waiting = asyncio.create_task(request())
        await asyncio.to_thread(figures_when, server, {"gold": (1, 1)})
        await asyncio.to_thread(server.stop)
        async with asyncio.timeout(PATIENCE_S):
            assert await waiting == ""
    assert await request() == ""
    server.start()
    server.set_policy(policy("gold"))
    mine._away.answered()  # as if the pause had passed
    assert await request() == "gold"
    assert await request() == "gold"
    mine.close()


async def test_a_task_without_patience_goes_straight_on(server: GateServer) -> None:
    server.set_policy(policy("gold"))
    with Gate(str(server.path)).enter("gold"):
        async with AsyncGate(str(server.path), patience_s=0.01).enter("gold") as entered:
            assert entered.name == ""


@pytest.fixture
def uids(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The accounts of the next connections, in their order; afterwards those of account 1000."""
    uids: list[int] = []
    monkeypatch.setattr(gate_module, "peer_credentials", lambda _: (os.getpid(), uids.pop(0) if uids else 1000))
    return uids


def as_account(uids: list[int], server: GateServer, uid: int) -> socket.socket:
    """A worker of an account, which the server knows on return."""
    uids.append(uid)
    worker = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    worker.settimeout(PATIENCE_S)
    worker.connect(str(server.path))
    worker.send(b"leave ok")
    poll(lambda: not uids)
    return worker


ATTACKER, HONEST = 2000, 3000


def test_slots_that_an_account_holds_are_released_when_others_wait_and_it_goes_on_without_the_gate(
    server: GateServer, uids: list[int], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(gate_accounts, "HOLD_LIMIT_S", 0.0)
    monkeypatch.setattr(gate_module, "CHECK_S", 0.01)
    server.set_policy(policy("gold", "tin", slots=2))
    holding = [as_account(uids, server, ATTACKER) for _ in range(4)]
    honest = as_account(uids, server, HONEST)
    assert [ask(worker, "enter gold") for worker in holding[:2]] == ["go gold 6"] * 2
    for worker in holding[2:]:
        worker.send(b"enter gold")
    assert ask(honest, "enter tin") == "go tin 0"
    assert [worker.recv(256) for worker in holding[2:]] == [b"go", b"go"]
    holding[0].send(b"leave ok")
    assert [ask(worker, "enter gold") for worker in holding] == ["go"] * 4
    assert ask(as_account(uids, server, HONEST), "enter gold") == "go gold 6"
    assert f"uid {ATTACKER}" in caplog.text


def test_one_slow_request_loses_its_slot_and_its_account_stays_at_the_gate(
    server: GateServer, uids: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate_module, "CHECK_S", 0.01)
    server.set_policy(policy("gold", slots=3))
    slow, *others = [as_account(uids, server, 2000) for _ in range(4)]
    honest = as_account(uids, server, HONEST)
    assert ask(slow, "enter gold") == "go gold 6"
    (account,) = [account for account in server._accounts if account.active]
    account.active = {worker: since_s - 1000 for worker, since_s in account.active.items()}
    assert [ask(worker, "enter gold") for worker in others[:2]] == ["go gold 6"] * 2
    assert ask(honest, "enter gold") == "go gold 6", "in the slot of the slow one"
    slow.send(b"leave ok")
    others[2].send(b"enter gold")
    others[0].send(b"leave ok")
    assert others[2].recv(256) == b"go gold 6"


def test_a_request_may_take_any_time_while_no_other_account_waits(
    server: GateServer, uids: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate_accounts, "HOLD_LIMIT_S", 0.0)
    monkeypatch.setattr(gate_module, "CHECK_S", 0.001)
    server.set_policy(policy("gold"))
    with connected(server.path) as inside, connected(server.path) as waiting:
        assert ask(inside, "enter gold") == "go gold 6"
        waiting.send(b"enter gold")
        for _ in range(20):
            figures_when(server, {"gold": (1, 1)})


def test_exclusions_double_and_are_forgotten() -> None:
    account = Account(1000, 1)
    pauses, now_s = [], 1000.0
    for _ in range(7):
        pauses.append(account.exclude(now_s))
        assert not account.may_enter(now_s + pauses[-1] - 1)
        now_s += pauses[-1]
        assert account.may_enter(now_s)
    assert pauses == [10, 20, 40, 80, 160, 320, 600]
    assert account.exclude(now_s + LONGEST_EXCLUSION_S + 1) == 10


def test_idle_connections_of_one_account_are_bounded_and_the_gate_goes_on_for_all(
    server: GateServer, uids: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate_accounts, "MAX_IDLE", 5)
    server.set_policy(policy("gold", slots=9))
    idle = [as_account(uids, server, ATTACKER) for _ in range(40)]
    assert [worker.recv(256) for worker in idle[:35]] == [b""] * 35
    assert ask(idle[-1], "enter gold") == "go gold 6"
    assert ask(as_account(uids, server, HONEST), "enter gold") == "go gold 6"


def test_a_new_account_finds_room_beside_one_with_all_connections(
    path: Path, uids: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate_module, "MAX_WORKERS", 6)
    server = GateServer(path)
    server.start()
    server.set_policy(policy("gold", slots=2))
    many = [as_account(uids, server, ATTACKER) for _ in range(6)]
    for worker in many:
        worker.send(b"enter gold")
    assert [worker.recv(256) for worker in many[:2]] == [b"go gold 6"] * 2
    honest = as_account(uids, server, HONEST)
    assert many[2].recv(256) == b"", "the one that waits longest goes on without a slot"
    uids.append(ATTACKER)
    with connected(path) as another:
        assert another.recv(256) == b"", "an account with the most connections makes room for others only"
    honest.close()
    server.stop()


def test_waiting_requests_of_one_account_are_bounded(
    server: GateServer, uids: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate_accounts, "MAX_WAITING", 2)
    server.set_policy(policy("gold"))
    many = [as_account(uids, server, ATTACKER) for _ in range(4)]
    assert ask(many[0], "enter gold") == "go gold 6"
    for worker in many[1:3]:
        worker.send(b"enter gold")
    figures_when(server, {"gold": (2, 1)})
    assert ask(many[3], "enter gold") == "go"
    honest = as_account(uids, server, HONEST)
    honest.send(b"enter gold")
    figures_when(server, {"gold": (3, 1)})


def test_an_account_whose_processes_may_use_few_cpus_does_not_lower_the_limit_of_others(
    server: GateServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    peers = [(1, ATTACKER), (2, HONEST)]
    monkeypatch.setattr(gate_module, "peer_credentials", lambda _: peers.pop(0) if peers else (2, HONEST))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(1 if pid == 1 else 4)))
    server.set_policy(policy("gold", slots=0))
    with connected(server.path) as pinned, ExitStack() as opened:
        assert ask(pinned, "enter gold") == "go gold 6"
        others = [opened.enter_context(connected(server.path)) for _ in range(3)]
        assert [ask(worker, "enter gold") for worker in others] == ["go gold 6"] * 3


def test_an_account_without_a_request_does_not_raise_the_limit_of_others(
    server: GateServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    peers = [(1, ATTACKER), (2, HONEST)]
    monkeypatch.setattr(gate_module, "peer_credentials", lambda _: peers.pop(0) if peers else (2, HONEST))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(4 if pid == 1 else 1)))
    server.set_policy(policy("gold", slots=0))
    with connected(server.path) as idle, connected(server.path) as working, connected(server.path) as waiting:
        assert ask(working, "enter gold") == "go gold 6"
        waiting.send(b"enter gold")
        figures_when(server, {"gold": (1, 1)})
        assert ask(idle, "enter gold") == "go gold 6"
        assert waiting.recv(256) == b"go gold 6"


def test_mutated_messages_of_several_accounts_harm_nobody() -> None:
    assert fuzz_gate(4000, seed=8).wrong == []
