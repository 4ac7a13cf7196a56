"""Boosts of real processes with real sockets: whose, for how long, and what is left after the agent's end."""

import errno
import math
import os
import re
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.core.test_coscheduling import recomputed
from tests.support.polling import PATIENCE_S, poll
from tests.support.views import make_view

from coresteer_agent.apply.restore import restore
from coresteer_agent.collect.irq import is_running_kernel
from coresteer_agent.collect.tasks import parse_task_stat
from coresteer_agent.observe.job_sockets import JobSockets
from coresteer_agent.runtime import changes, coscheduling, policies
from coresteer_agent.runtime.changes import NodeChanges
from coresteer_agent.runtime.coscheduling import CoschedulingRunner, explain
from coresteer_agent.runtime.policies import CONFIRM_AFTER_S, PolicyRunner
from coresteer_agent.runtime.policies_file import PoliciesFile
from coresteer_agent.transport.load_beacon import LoadBeacon, decode_beacon, encode_beacon
from coresteer_agent.transport.load_carrier import Heard
from coresteer_core.node.tasks import NetTask
from coresteer_core.node.view import View
from coresteer_core.policies.base import ROUND_PERIOD_S, Damping, Mode
from coresteer_core.policies.coscheduling.boost import BY_AGE, PendingMessage, Reordering, choose, order
from coresteer_core.policies.coscheduling.load import PeerLoad
from coresteer_core.policies.coscheduling.reorder import MINUS
from coresteer_core.policies.coscheduling.spec import Coscheduling
from coresteer_core.policies.engine_state import PolicyInForce
from coresteer_core.policies.service_class.matching import Match

ROOT = Path("/")
OWN = os.getpriority(os.PRIO_PROCESS, 0)
POLICY = PolicyInForce(
    "3", 1, "job", 10, Mode.ENFORCE, Coscheduling(match=Match(commands=["bsp"])), damping=Damping(moves_per_step=8)
)
live = pytest.mark.skipif(
    os.geteuid() != 0 or not is_running_kernel(ROOT), reason="Only root may lower nice values, of real processes."
)

# computes, so that it has time slices; reads its pending messages on command
MEMBER = """
import signal, socket, sys, time
if sys.argv[1:]:
    peer = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    peer.sendall(b"x" * 100)
else:
    server = socket.create_server(("127.0.0.1", 0))
    print(server.getsockname()[1], flush=True)
    peer = server.accept()[0]
signal.signal(signal.SIGUSR1, lambda *_: peer.recv(4096))
print("ready", flush=True)
while True:
    sum(range(20_000))
    time.sleep(0.002)
"""


@pytest.fixture
def job() -> Iterator[list[int]]:
    """PIDs of two connected processes; 100 bytes from the second wait for the first."""
    run = [sys.executable, "-c", MEMBER]
    with subprocess.Popen(run, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        port = first.stdout.readline().strip()
        with subprocess.Popen([*run, port], stdout=subprocess.PIPE, text=True) as second:
            assert second.stdout is not None
            assert first.stdout.readline() == second.stdout.readline() == "ready\n"
            yield [first.pid, second.pid]
            second.kill()
        first.kill()


@pytest.fixture
def in_namespace() -> Iterator[list[int]]:
    """PIDs of two such processes in a network namespace of their own."""
    first_run = f"ip link set lo up && exec {sys.executable} -c '{MEMBER}'"
    with subprocess.Popen(["unshare", "--net", "sh", "-c", first_run], stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        port = first.stdout.readline().strip()
        second_run = ["nsenter", "--net", "--target", str(first.pid), sys.executable, "-c", MEMBER, port]
        with subprocess.Popen(second_run, stdout=subprocess.PIPE, text=True) as second:
            assert second.stdout is not None
            assert first.stdout.readline() == second.stdout.readline() == "ready\n"
            yield [first.pid, second.pid]
            second.kill()
        first.kill()


class Node:
    """An agent's part that decides and boosts, with a clock of the test's own."""

    def __init__(self, state_dir: Path, pids: list[int]) -> None:
        self.now = 1000.0
        self.pids = pids
        self.path = state_dir / "journal.jsonl"
        self.changes = NodeChanges(ROOT, self.path, None, self.view, lambda _: None)
        saved = PoliciesFile(state_dir / "policies.json", ROOT)
        self.policies = PolicyRunner(self.changes, lambda _: None, state=saved.read(), save=saved.write)
        self.runner = CoschedulingRunner(ROOT, self.policies, self.changes.steer)
        self.runner.set_policies(self.policies.in_force)

    def view(self) -> View:
        tasks = []
        for cpu, pid in enumerate(self.pids):
            stat = parse_task_stat(Path(f"/proc/{pid}/stat").read_bytes(), "stat")
            nice = {"nice": str(os.getpriority(os.PRIO_PROCESS, pid))}
            cpus = str(cpu)
            tasks.append(
                NetTask(
                    pid, stat.started_ticks, "bsp", None, 1, cpus, cpus, cpu, 0.1, 0.0, [], command="bsp", params=nice
                )
            )
        return make_view(2, tasks=tasks, time_s=self.now)

    def put_in_force(self, *wanted: PolicyInForce) -> None:
        self.policies.set_policies(list(wanted))
        self.runner.set_policies(wanted)

    def round(self) -> None:
        """As the loop does it every five seconds, with what it does every second."""
        for _ in range(round(ROUND_PERIOD_S)):
            self.now += 1
            self.changes.tick()
        self.runner.observe(self.view())
        self.policies.step(self.view())

    def enrol(self, policy: PolicyInForce = POLICY) -> None:
        self.put_in_force(policy)
        for _ in range(2 + round(CONFIRM_AFTER_S / ROUND_PERIOD_S)):
            self.round()

    def period(self) -> list[int]:
        self.now += 0.05
        self.runner.step()
        return self.nices()

    def nices(self) -> list[int]:
        return [os.getpriority(os.PRIO_PROCESS, pid) for pid in self.pids]


Start = Callable[[], Node]


@pytest.fixture
def start(job: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    nodes: list[Node] = []
    clock = SimpleNamespace(
        monotonic=lambda: nodes[-1].now if nodes else 1000.0, time_ns=lambda: 10**18, thread_time=lambda: 0.0
    )
    for module in (changes, policies, coscheduling):
        monkeypatch.setattr(module, "time", clock)

    def start() -> Node:
        nodes.append(Node(tmp_path, job))
        return nodes[-1]

    yield start
    for node in nodes:
        node.runner.close()
        node.changes.close()


@live
def test_the_process_with_pending_messages_is_boosted_until_it_has_read_them(start: Start, job: list[int]) -> None:
    node = start()
    node.enrol()
    assert node.nices() == [OWN - 1, OWN - 1], "one step, which journals their own values"
    assert poll(node.period, lambda nices: nices == [-10, OWN]) == [-10, OWN]
    os.kill(job[0], signal.SIGUSR1)
    assert poll(node.period, lambda nices: nices == [OWN, OWN]) == [OWN, OWN], "the boost ends with its period"
    receiver, sender = node.runner.annotate(node.view().tasks)
    assert receiver.coscheduled is not None
    assert sender.coscheduled is not None
    assert receiver.coscheduled.periods >= receiver.coscheduled.boosts > 0 == sender.coscheduled.boosts
    assert re.search("CPUs 1 (was|is) expected to run", receiver.coscheduled.why)
    assert "number 1 of 1 process with pending messages on CPUs 0." in receiver.coscheduled.why


@live
def test_the_order_of_boosts_follows_from_the_recorded_inputs(start: Start, job: list[int]) -> None:
    node = start()
    node.enrol()
    poll(node.period, lambda nices: nices == [-10, OWN])
    assert all(recomputed(record) == record.boosted for record in node.runner.records if record.peers)
    [message] = node.runner.records[-1].messages
    assert (message.pid, message.peer, message.pending_bytes) == (job[0], "CPUs 1", 100)
    assert message.load is not None
    assert 0 < message.load.ts_s < 1


@live
@pytest.mark.parametrize("policies_after", [[], [replace(POLICY, mode=Mode.OBSERVE)]])
def test_a_boost_ends_with_its_policy_and_all_is_restored(start: Start, policies_after: list[PolicyInForce]) -> None:
    node = start()
    node.enrol()
    poll(node.period, lambda nices: nices == [-10, OWN])
    node.put_in_force(*policies_after)
    assert node.nices() == [OWN, OWN]
    node.round()
    assert restore(node.path, ROOT) == []
    assert node.nices() == [OWN, OWN]


@live
def test_a_boost_ends_with_the_agent(start: Start) -> None:
    node = start()
    node.enrol()
    poll(node.period, lambda nices: nices == [-10, OWN])
    node.runner.close()
    assert node.nices() == [OWN, OWN]


@live
def test_a_boost_ends_with_its_period_if_its_process_is_not_observed_any_more(
    start: Start, job: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    node = start()
    node.enrol()
    poll(node.period, lambda nices: nices == [-10, OWN])
    monkeypatch.setattr(coscheduling, "MAX_MEMBERS", 1)
    node.pids = job[::-1]
    node.runner.observe(node.view())
    assert node.period() == [OWN, OWN]


@live
def test_a_boost_ends_with_the_last_process_that_is_observed(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    node = start()
    node.enrol()
    poll(node.period, lambda nices: nices == [-10, OWN])
    monkeypatch.setattr(coscheduling, "MAX_MEMBERS", 0)
    node.runner.observe(node.view())
    assert node.runner.due == math.inf, "no further period begins"
    assert node.nices() == [OWN, OWN]


@live
def test_a_boost_ends_with_its_period_even_if_the_sockets_cannot_be_read(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOBUFS, os.strerror(errno.ENOBUFS))

    node = start()
    node.enrol()
    poll(node.period, lambda nices: nices == [-10, OWN])
    with monkeypatch.context() as failing:
        failing.setattr(JobSockets, "read", fail)
        with pytest.raises(OSError, match="No buffer space"):
            node.period()
    assert node.nices() == [OWN, OWN]
    assert poll(node.period, lambda nices: nices == [-10, OWN]) == [-10, OWN], "the next period boosts again"


@live
@pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.RECOMMEND])
def test_a_policy_that_is_not_enforced_writes_nothing_and_shows_the_order(start: Start, mode: Mode) -> None:
    node = start()
    node.enrol(replace(POLICY, mode=mode))
    poll(lambda: node.period() and any(record.boosted for record in node.runner.records))
    assert node.nices() == [OWN, OWN]
    assert restore(node.path, ROOT) in ([], None)


@live
def test_a_boost_that_a_killed_agent_left_is_restored_or_ends_with_the_next_agent(start: Start, job: list[int]) -> None:
    node = start()
    pid = os.fork()
    if pid == 0:  # the agent: killed in the middle of a boost
        try:
            node.enrol()
            poll(node.period, lambda nices: nices == [-10, OWN])
            os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    assert node.nices() == [-10, OWN]
    os.kill(job[0], signal.SIGUSR1)
    again = start()
    again.round()
    assert poll(again.period, lambda nices: nices == [OWN, OWN]) == [OWN, OWN]
    os.setpriority(os.PRIO_PROCESS, job[0], -10)
    assert [result.done for result in restore(node.path, ROOT) or []] == [True, True]
    assert node.nices() == [OWN, OWN]


# Sockets of the job


@live
@pytest.mark.parametrize("where", ["job", "in_namespace"])
def test_the_peer_of_a_process_of_the_same_machine_is_the_cpus_of_the_other_one(
    where: str, request: pytest.FixtureRequest
) -> None:
    pids: list[int] = request.getfixturevalue(where)
    sockets = JobSockets()
    sockets.follow(pids)
    received = sockets.read({pids[0]: "0", pids[1]: "1"}, 100.0)
    assert sorted((each.pid, each.peer, each.pending_bytes) for each in received) == sorted(
        [(pids[0], "CPUs 1", 100), (pids[1], "CPUs 0", 0)]
    )
    assert all(100 - PATIENCE_S < each.heard_s <= 100 for each in received)
    sockets.follow(pids[:1])
    assert sockets.read({pids[0]: "0"}, 100.0) == [], "the other end is a process of no job"
    assert sockets.remote == set()
    os.kill(pids[1], signal.SIGKILL)
    poll(lambda: ") Z " in Path(f"/proc/{pids[1]}/stat").read_text())
    assert sockets.read({pids[0]: "0"}, 100.0) == []
    assert sockets.remote == set(), "a closed connection on loopback leads to no other machine"
    sockets.close()


# The beacon

LOAD = PeerLoad(0.0078125, 2.5)


@given(st.binary(max_size=40) | st.binary(min_size=8, max_size=8).map(lambda rest: encode_beacon(LOAD)[:8] + rest))
def test_whatever_arrives_is_a_load_within_bounds_or_nothing(datagram: bytes) -> None:
    load = decode_beacon(datagram)
    if load is not None:
        assert len(datagram) == 16
        assert 0 < load.ts_s <= 100
        assert 0 <= load.enp <= 65_536


@pytest.mark.parametrize("figures", [(float("nan"), 1.0), (1.0, float("inf")), (0.0, 1.0), (1.0, -1.0)])
def test_no_load_is_taken_from_impossible_figures(figures: tuple[float, float]) -> None:
    assert decode_beacon(encode_beacon(LOAD)[:8] + struct.pack("!ff", *figures)) is None


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


HERE, THERE, HOSTILE = (socket.inet_aton(f"127.0.0.{n}") for n in (1, 2, 3))


def test_two_agents_exchange_their_loads_and_strangers_are_ignored() -> None:
    port = free_port()
    here, there, hostile = (LoadBeacon(port, socket.inet_ntoa(address)) for address in (HERE, THERE, HOSTILE))
    try:
        hostile.exchange(PeerLoad(1.0, 9.0), {HERE}, 0.0)
        there.exchange(LOAD, {HERE}, 0.0)
        heard = poll(lambda: here.exchange(None, {THERE}, 5.0))
        assert {address: (each.load, each.heard_s) for address, each in heard.items()} == {THERE: (LOAD, 5.0)}
        assert here.exchange(None, set(), 6.0) == {}, "without a connection its load is forgotten"
    finally:
        for each in (here, there, hostile):
            each.close()


def test_after_a_strangers_flood_the_load_of_a_peer_is_known_again() -> None:
    port = free_port()
    here, there, hostile = (LoadBeacon(port, socket.inet_ntoa(address)) for address in (HERE, THERE, HOSTILE))

    def heard() -> dict[bytes, Heard]:
        there.exchange(LOAD, {HERE}, 0.0)
        return here.exchange(None, {THERE}, 5.0)

    try:
        for _ in range(1000):  # more than fit into the buffer
            hostile.exchange(PeerLoad(1.0, 9.0), {HERE}, 0.0)
        assert {address: each.load for address, each in poll(heard).items()} == {THERE: LOAD}
    finally:
        for each in (here, there, hostile):
            each.close()


def test_by_age_the_reason_names_no_expected_run_time() -> None:
    message = PendingMessage(7, "CPUs 1", 100, 5.0, 5.0, PeerLoad(0.01, 2.0))
    chosen = choose(Reordering(5.02, "0", BY_AGE, 1, 0, 1, [message]))
    [urgency] = order(chosen)
    assert explain(urgency, chosen, 1) == (
        "First: the message of CPUs 1 is 20.0 ms old; number 1 of 1 process with pending messages on CPUs 0."
    )
    unknown = replace(chosen, sign=MINUS, boosted=[])
    assert explain(urgency, unknown, 1) == "Not boosted: known loads of peers: 0, required: 1."


@pytest.mark.parametrize(
    ("now_s", "when"), [(5.005, "is expected to run in 15.0 ms"), (5.035, "was expected to run 15.0 ms ago")]
)
def test_the_reason_of_a_boost_says_when_the_peer_runs(now_s: float, when: str) -> None:
    message = PendingMessage(7, "CPUs 1", 100, 5.0, 5.0, PeerLoad(0.01, 2.0))
    chosen = choose(Reordering(now_s, "0", MINUS, 1, 1, 1, [message]))
    assert explain(order(chosen)[0], chosen, 1).startswith(f"First: CPUs 1 {when} (TS 10.0 ms, ENP 2.0, message ")
