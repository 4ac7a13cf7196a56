"""Service classes on a small captured tree: what is measured, steered, left to others, and put back."""

import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from socket import inet_aton
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.support.polling import PATIENCE_S
from tests.support.views import make_view

from coresteer_agent.apply.restore import restore
from coresteer_agent.collect import histogram
from coresteer_agent.collect.histogram import HistogramError, bucket_increments, fetch_metrics_page, parse_histogram
from coresteer_agent.observe.flows import Connection
from coresteer_agent.runtime import changes, policies, service_classes
from coresteer_agent.runtime.changes import NodeChanges
from coresteer_agent.runtime.histograms import Histograms
from coresteer_agent.runtime.policies import CONFIRM_AFTER_S, PolicyRunner
from coresteer_agent.runtime.policies_file import PoliciesFile
from coresteer_agent.runtime.service_classes import STEER_S, ServiceClassRunner
from coresteer_agent.transport.gate_server import GateServer
from coresteer_core.changes.report import ChangeMessage
from coresteer_core.node.tasks import NetTask
from coresteer_core.node.view import View
from coresteer_core.policies.base import ROUND_PERIOD_S, Damping, Mode, Ownership
from coresteer_core.policies.engine_state import Holding, PolicyInForce
from coresteer_core.policies.service_class.matching import Match
from coresteer_core.policies.service_class.policy import ServiceClass, ServiceClasses
from coresteer_core.protocol import ClassesMessage, DecisionMessage
from coresteer_gate import Gate

GROUPS = ("gold", "silver")
SPEC = ServiceClasses(
    [
        ServiceClass("gold", 90, 1.0, Match(commands=["gold"])),
        ServiceClass("silver", 50, 1.0, Match(commands=["silver"])),
    ],
    weights=["cpu"],
)
POLICY = PolicyInForce("7", 1, "classes", 10, Mode.ENFORCE, SPEC, damping=Damping(moves_per_step=8))


def file(root: Path, group: str) -> Path:
    return root / f"sys/fs/cgroup/cpu/{group}/cpu.shares"


def key(group: str) -> str:
    return f"cgroup/{group}/cpu.shares"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    for group in GROUPS:
        file(root, group).parent.mkdir(parents=True)
        file(root, group).write_text("1024\n")
    (root / "proc/sys/kernel/random").mkdir(parents=True)
    (root / "proc/sys/kernel/random/boot_id").write_text("boot 1\n")
    return root


class Node:
    """An agent's part that decides and steers, with a clock of the test's own."""

    def __init__(self, root: Path, state_dir: Path, gate_path: Path, now: float) -> None:
        self.root = root
        self.now = now
        self.path = state_dir / "journal.jsonl"
        self.told: list[DecisionMessage | ChangeMessage | ClassesMessage] = []
        self.connections: list[Connection] = []
        self.changes = NodeChanges(root, self.path, None, self.view, self.told.append)
        saved = PoliciesFile(state_dir / "policies.json", root)
        self.policies = PolicyRunner(
            self.changes,
            self.told.append,
            state=saved.read(),
            save=saved.write,
            ended=lambda memory: self.changes.removed_settings(memory.holdings),
        )
        self.classes = ServiceClassRunner(root, gate_path, self.policies, self.changes.steer, self.told.append)
        self.classes.set_policies(self.policies.in_force)

    def view(self) -> View:
        tasks = [
            NetTask(pid, pid, name, "/", 1, "0", "0", 0, 0.1, 0.0, [], command=name, cpu_cgroup=f"/{name}")
            for pid, name in enumerate(GROUPS, 100)
        ]
        weights = {group: {"cpu.shares": text} for group in GROUPS if (text := self.shares(group)) is not None}
        return make_view(1, tasks=tasks, cgroups=weights, time_s=self.now)

    def shares(self, group: str) -> str | None:
        path = file(self.root, group)
        return path.read_text().strip() if path.exists() else None

    def enforce(self, policy: PolicyInForce | None = POLICY) -> None:
        wanted = [] if policy is None else [policy]
        self.policies.set_policies(wanted)
        self.classes.set_policies(wanted)

    def run(self, seconds: float) -> None:
        """As the loop does it."""
        for tick in range(1, round(seconds / STEER_S) + 1):
            self.now += STEER_S
            if self.classes.steers:
                self.classes.steer()
            if tick % 10 == 0:
                self.changes.tick()
                self.classes.step()
            if tick % round(ROUND_PERIOD_S / STEER_S) == 0:
                self.classes.observe(self.view(), self.connections)
                self.policies.step(self.view())

    def held(self) -> dict[str, Holding]:
        return self.policies._state.memory.holdings

    def decisions(self) -> list[DecisionMessage]:
        return [told for told in self.told if isinstance(told, DecisionMessage)]

    def figures(self) -> ClassesMessage:
        return [told for told in self.told if isinstance(told, ClassesMessage)][-1]


def served(pid: int, rtt_us: int) -> Connection:
    return Connection(pid, inet_aton("10.0.0.1"), 80, rtt_us)


@pytest.fixture
def gate_path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # a socket's path is at most 107 bytes long
        yield Path(folder) / "gate.sock"


Start = Callable[[], Node]


@pytest.fixture
def start(root: Path, tmp_path: Path, gate_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    nodes: list[Node] = []

    def now() -> float:
        return nodes[-1].now if nodes else 1000.0

    clock = SimpleNamespace(monotonic=now, time_ns=lambda: int(now() * 1e9))
    for module in (changes, policies, service_classes):
        monkeypatch.setattr(module, "time", clock)

    def start() -> Node:
        if nodes:
            nodes[-1].classes.close()
        nodes.append(Node(root, tmp_path / "state", gate_path, now()))
        return nodes[-1]

    yield start
    nodes[-1].classes.close()


@pytest.fixture
def node(start: Start) -> Node:
    """A node whose policy's first weights are kept."""
    node = start()
    node.enforce()
    node.run(ROUND_PERIOD_S + CONFIRM_AFTER_S + 1)
    assert {name: node.shares(name) for name in GROUPS} == {"gold": "1280", "silver": "819"}
    return node


UNEVEN = [*[served(100, 5_000)] * 9, served(100, 500), *[served(101, 500)] * 9, served(101, 5_000)]
"""Gold meets its deadline once in ten, silver nine times."""


def test_the_class_behind_its_target_gets_more_and_all_is_restored_with_the_policy(node: Node) -> None:
    node.connections = UNEVEN
    node.run(20)
    assert int(node.shares("gold") or 0) > 1400
    assert int(node.shares("silver") or 0) < 750
    assert {each: node.held()[key(each)].value for each in GROUPS} == {each: node.shares(each) for each in GROUPS}
    gold, silver = node.figures().classes
    assert (gold.source, gold.requests, gold.satisfied, gold.tasks) == ("tcp", 20, 2, 1)
    assert silver.f == pytest.approx(0.9 / 0.5)
    writes = [told for told in node.told if isinstance(told, ChangeMessage)]
    node.run(5)
    assert [told for told in node.told if isinstance(told, ChangeMessage)] == writes, "steering is no change"
    node.enforce(None)
    node.run(ROUND_PERIOD_S)
    assert {name: node.shares(name) for name in GROUPS} == {"gold": "1024", "silver": "1024"}
    assert node.held() == {}
    assert restore(node.path, node.root) == []


def test_nothing_is_steered_before_the_initial_weights_are_confirmed(start: Start) -> None:
    node = start()
    node.connections = UNEVEN
    node.enforce()
    node.run(ROUND_PERIOD_S + CONFIRM_AFTER_S - 1)
    assert {name: node.shares(name) for name in GROUPS} == {"gold": "1280", "silver": "819"}


def test_equal_classes_are_not_steered(node: Node) -> None:
    node.connections = [*[served(100, 500)] * 9, served(100, 5000), *[served(101, 500)] * 5, *[served(101, 5000)] * 5]
    node.run(20)
    assert node.figures().classes[0].f == pytest.approx(node.figures().classes[1].f)
    assert {name: node.shares(name) for name in GROUPS} == {"gold": "1280", "silver": "819"}


def test_values_steered_just_before_a_kill_are_adopted(node: Node, start: Start) -> None:
    node.connections = UNEVEN
    node.run(ROUND_PERIOD_S + 3)
    steered = {name: node.shares(name) for name in GROUPS}
    again = start()
    assert again.held()[key("gold")].value != steered["gold"], "the file has to be older than the last write"
    again.run(ROUND_PERIOD_S)
    assert {each: again.held()[key(each)].value for each in GROUPS} == steered
    again.connections = UNEVEN
    again.run(20)
    assert int(again.shares("gold") or 0) > int(steered["gold"] or 0)
    assert not any(told.evaluation.drifts for told in again.decisions())
    again.enforce(None)
    again.run(ROUND_PERIOD_S)
    assert {name: again.shares(name) for name in GROUPS} == {"gold": "1024", "silver": "1024"}


def test_an_externally_changed_weight_is_drift_and_not_steered(node: Node) -> None:
    node.connections = UNEVEN
    node.run(ROUND_PERIOD_S)
    file(node.root, "gold").write_text("77\n")
    node.run(3 * ROUND_PERIOD_S)
    assert node.shares("gold") == "77"
    assert [drift.found for drift in node.decisions()[-1].evaluation.drifts] == ["77"]
    assert int(node.shares("silver") or 0) < 819


def test_a_re_asserting_policy_steers_an_externally_changed_weight(start: Start) -> None:
    node = start()
    node.enforce(replace(POLICY, on_drift=Ownership.REASSERT))
    node.run(ROUND_PERIOD_S + CONFIRM_AFTER_S + 1)
    file(node.root, "gold").write_text("77\n")
    node.run(60)
    assert node.shares("gold") == "1280"
    node.connections = UNEVEN
    node.run(40)
    assert int(node.shares("gold") or 0) > 1280


def test_a_restore_beside_the_agent_ends_the_steering(node: Node) -> None:
    node.connections = UNEVEN
    node.run(ROUND_PERIOD_S)
    assert len(restore(node.path, node.root) or []) == 2
    node.run(2)
    assert {name: node.shares(name) for name in GROUPS} == {"gold": "1024", "silver": "1024"}
    node.run(ROUND_PERIOD_S)
    assert node.held() == {}


def test_a_recreated_cgroup_is_assigned_again(node: Node) -> None:
    folder = file(node.root, "gold").parent
    folder.rename(folder.with_name("old"))
    folder.mkdir()
    file(node.root, "gold").write_text("512\n")
    node.run(ROUND_PERIOD_S)
    assert node.shares("gold") == "1280"
    assert node.held()[key("gold")].original == "512"


# The gate


def test_the_gate_is_open_while_a_policy_is_in_force_and_is_the_first_source(start: Start, gate_path: Path) -> None:
    node = start()
    assert not gate_path.exists()
    node.enforce(replace(POLICY, spec=replace(SPEC, weights=[])))
    with Gate(str(gate_path)).enter("gold"):
        node.run(1)
        gold, silver = node.figures().classes
        assert (gold.source, gold.active, silver.source) == ("gate", 1, None)
    node.enforce(None)
    assert not gate_path.exists()
    assert not node.classes.active


def test_a_gate_closed_by_an_internal_error_is_opened_at_the_next_step(
    start: Start, gate_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = start()
    node.enforce(replace(POLICY, spec=replace(SPEC, weights=[])))
    [door] = [thread for thread in threading.enumerate() if thread.name == "gate"]
    with monkeypatch.context() as patch:
        patch.setattr(GateServer, "_accept", lambda _: 1 / 0)
        with Gate(str(gate_path)).enter("gold"):
            pass
        door.join()
    node.run(1)
    with Gate(str(gate_path)).enter("gold"):
        node.run(1)
        assert node.figures().classes[0].active == 1


def test_a_policy_that_is_not_enforced_admits_all_and_counts(start: Start, gate_path: Path) -> None:
    node = start()
    node.enforce(replace(POLICY, mode=Mode.OBSERVE, spec=replace(SPEC, slots=1)))
    gate = Gate(str(gate_path))
    with gate.enter("silver"), gate.enter("gold"):
        node.run(1)
        assert [each.active for each in node.figures().classes] == [1, 1]
        with gate.enter("gold") as entered:
            assert (entered.name, entered.priority) == ("gold", None), "the order of packets stays as it is, too"
    assert not node.classes.steers


def test_the_policy_with_the_stronger_mode_has_the_gate(start: Start) -> None:
    node = start()
    first = replace(POLICY, policy_id="1", rank=1, mode=Mode.RECOMMEND)
    node.classes.set_policies([first, POLICY])
    node.classes.step()
    assert node.figures().policy_id == "7"


def test_a_request_is_classified_by_its_client_and_server_process(gate_path: Path) -> None:
    spec = ServiceClasses(
        [
            ServiceClass("near", 90, match=Match(clients=["10.0.0.0/8"], listens=[80])),
            ServiceClass("mine", 50, match=Match(commands=["*python*"])),
        ]
    )
    node = SimpleNamespace(steerable=lambda _: {}, record_steering=lambda *_: None)
    runner = ServiceClassRunner(Path("/"), gate_path, node, lambda action: pytest.fail(action.key), lambda _: None)
    runner.set_policies([replace(POLICY, spec=spec)])
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as worker:
            worker.connect(str(gate_path))
            for asked, answered in ((b"@10.1.1.1 80", b"go near 6"), (b"@192.0.2.1 80", b"go mine 0")):
                worker.send(b"enter " + asked)
                assert worker.recv(100) == answered
                worker.send(b"leave ok")
    finally:
        runner.close()


# Histograms

PAGE = b"""# HELP http_seconds How long.
# TYPE http_seconds histogram
http_seconds_bucket{path="/a}\\"",le="0.01"} 5
http_seconds_bucket{le="0.1",path="/a"} 8
http_seconds_bucket{path="/a",le="+Inf"} 10 1700000000
http_seconds_bucket{path="/b",le="0.01"} 1e1
http_seconds_bucket{path="/b",le="0.1"} 10
http_seconds_bucket{path="/b",le="+Inf"} 10
http_seconds_count{path="/b"} 10
other_http_seconds_bucket{le="0.01"} 99
http_seconds_bucket{path="/c"} 1
http_seconds_bucket{le="x"} 1
http_seconds_bucket{le="0.1"} NaN
"""
INF = float("inf")


def test_a_histogram_is_the_sum_over_its_labels() -> None:
    assert parse_histogram(PAGE, "http_seconds") == {0.01: 15.0, 0.1: 18.0, INF: 20.0}
    assert parse_histogram(PAGE, "http") == {}


def test_unclosed_brackets_are_parsed_in_linear_time() -> None:
    assert parse_histogram(b"a_bucket{\n" * 400_000, "a") == {}, "hours, where each is searched to the end of the page"


@given(st.binary(max_size=200))
def test_any_page_is_parsed_without_a_crash(data: bytes) -> None:
    parse_histogram(b"a_bucket{" + data, "a")
    parse_histogram(b'a_bucket{le="1"} ' + data, "a")


@pytest.mark.parametrize(
    ("after", "came"),
    [
        ({0.1: 6.0, INF: 9.0}, [(0.1, 1), (INF, 3)]),
        ({0.1: 5.0, INF: 5.0}, [(0.1, 0), (INF, 0)]),
        ({0.1: 1.0, INF: 2.0}, None),
        ({0.1: 9.0, INF: 7.0}, None),
        ({0.2: 6.0, INF: 9.0}, None),
    ],
)
def test_new_requests_are_counted_by_bucket_unless_the_histogram_restarted(
    after: dict[float, float], came: list[tuple[float, int]] | None
) -> None:
    assert bucket_increments({0.1: 5.0, INF: 5.0}, after) == came


@pytest.fixture
def page() -> Iterator[tuple[str, dict[str, bytes]]]:
    """A server's address and its pages by path."""
    pages: dict[str, bytes] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path in pages else 302)
            self.send_header("Location", "http://192.0.2.1/")
            self.end_headers()
            self.wfile.write(pages.get(self.path, b""))

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", pages
    server.shutdown()
    server.server_close()


def test_a_page_is_read_within_bounds_and_no_redirect_is_followed(
    page: tuple[str, dict[str, bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, pages = page
    pages["/metrics?a=b"] = PAGE
    assert fetch_metrics_page(f"{address}/metrics?a=b") == PAGE
    with pytest.raises(HistogramError, match="HTTP status 302"):
        fetch_metrics_page(f"{address}/elsewhere")
    monkeypatch.setattr(histogram, "MAX_BYTES", 10)
    with pytest.raises(HistogramError, match="has more than"):
        fetch_metrics_page(f"{address}/metrics?a=b")
    with pytest.raises(HistogramError, match="cannot be read"):
        fetch_metrics_page("http://127.0.0.1:1/metrics")


@pytest.mark.parametrize("begin", [b"", b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n"])
def test_a_slow_page_is_given_up(begin: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(histogram, "TIMEOUT_S", 0.2)

    def trickle(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            connection.send(begin)
            while not given_up.wait(0.02):
                connection.send(b"x")

    given_up = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=trickle, args=(listener,))
        server.start()
        with pytest.raises(HistogramError, match=r"takes longer than 0\.2 s"):
            fetch_metrics_page(f"http://127.0.0.1:{listener.getsockname()[1]}/metrics")
        given_up.set()
        server.join()


def test_a_class_is_measured_by_its_servers_own_histogram(
    start: Start, page: tuple[str, dict[str, bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, pages = page
    monkeypatch.setattr("coresteer_agent.runtime.histograms.PERIOD_S", 0.01)
    wanted = f"{address}/metrics#a"
    pages["/metrics"] = b'a_bucket{le="0.001"} 5\na_bucket{le="0.1"} 5\na_bucket{le="+Inf"} 5\n'
    arrived = threading.Semaphore(0)
    update = Histograms._update

    def updated(self: Histograms, *arguments: object) -> None:
        update(self, *arguments)  # type: ignore[arg-type]  # handed on as it came
        arrived.release()

    monkeypatch.setattr(Histograms, "_update", updated)
    node = start()
    gold = replace(SPEC.classes[0], histogram=wanted)
    node.enforce(replace(POLICY, spec=replace(SPEC, classes=[gold, SPEC.classes[1]])))
    assert arrived.acquire(timeout=PATIENCE_S)
    pages["/metrics"] = b'a_bucket{le="0.001"} 8\na_bucket{le="0.1"} 9\na_bucket{le="+Inf"} 10\n'
    for _ in range(2):  # one read may have been in progress
        assert arrived.acquire(timeout=PATIENCE_S)
    node.run(1)
    told = node.figures().classes[0]
    assert (told.source, told.requests, told.satisfied) == ("histogram", 5, 3)
    assert told.p50_us == pytest.approx(1000, rel=0.03)
    assert told.p99_us == pytest.approx(100_000, rel=0.03)


def test_an_agent_that_only_observes_steers_nothing(root: Path, tmp_path: Path) -> None:
    runner = NodeChanges(root, tmp_path / "journal.jsonl", "Not root.", lambda: pytest.fail("no view"), lambda _: None)
    observing = PolicyRunner(runner, lambda _: None, observe_only=True)
    observing.set_policies([POLICY])
    assert observing.steerable("7") == {}
    assert [path.name for path in tmp_path.iterdir()] == ["root"]
