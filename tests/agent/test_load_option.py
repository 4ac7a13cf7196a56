"""Loads on the messages themselves: between sockets of two cgroups with a program each, as if on two machines."""

import logging
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path

import pytest
from tests.support.load_hosts import CGROUPS, CLIENT, SERVER, V4, V6, VALID_S, Pair, free_port
from tests.support.polling import poll
from tests.support.views import make_view

from coresteer_agent.config import ConfigError, parse_ports
from coresteer_agent.linux.bpf import BpfObjects, BpfRefusedError, Command, Op, assemble, bpf, bpf_attribute
from coresteer_agent.linux.tcp_option import MAX_ADDRESSES, TcpOption
from coresteer_agent.runtime.coscheduling import CoschedulingRunner, open_tcp_option
from coresteer_agent.transport.load_carrier import Heard
from coresteer_core.changes.plan import Action
from coresteer_core.changes.report import Result
from coresteer_core.node.tasks import NetTask
from coresteer_core.policies.base import Mode
from coresteer_core.policies.coscheduling.load import PeerLoad
from coresteer_core.policies.coscheduling.spec import Coscheduling
from coresteer_core.policies.engine_state import PolicyInForce
from coresteer_core.policies.service_class.matching import Match

LOAD, OTHER_LOAD = PeerLoad(0.0078125, 2.5), PeerLoad(0.015625, 4.0)
CLIENT_4 = socket.inet_pton(V4, CLIENT[V4])
needs_cgroup = pytest.mark.skipif(
    os.geteuid() != 0 or CGROUPS is None, reason="Only root may load eBPF programs, for a cgroup of version 2."
)


class Query(IntEnum):
    PROG_QUERY = 16


def programs_of(folder: Path | None) -> int:
    """Number of sock_ops programs that are attached to a cgroup."""
    assert folder is not None
    fd = os.open(folder, os.O_RDONLY)
    attribute = bpf_attribute(struct.pack("=IIIIQI", fd, 3, 0, 0, 0, 0))
    bpf(Query.PROG_QUERY, attribute)
    os.close(fd)
    return int(struct.unpack_from("=I", attribute, 24)[0])


@pytest.fixture
def pair() -> Iterator[Pair]:
    try:
        pair = Pair()
    except BpfRefusedError as error:
        pytest.skip(f"The kernel refuses the program: {error}")
    yield pair
    pair.close()


def say(sender: socket.socket, receiver: socket.socket) -> None:
    sender.sendall(b"message")
    assert receiver.recv(100) == b"message"


@needs_cgroup
@pytest.mark.parametrize("family", [V4, V6])
def test_each_message_carries_the_load_of_its_sender_at_that_time(pair: Pair, family: socket.AddressFamily) -> None:
    client, server = pair.connect(family)
    address = socket.inet_pton(family, CLIENT[family])
    assert pair.there.carrier.exchange(None, {address}, time.monotonic()) == {}
    for load in (LOAD, OTHER_LOAD):
        pair.here.carrier.exchange(load, set(), time.monotonic())
        before_s = time.monotonic()
        say(client, server)
        [(sender, heard)] = pair.there.carrier.exchange(None, {address}, time.monotonic()).items()
        assert (sender, heard.load) == (address, load)
        assert before_s <= heard.heard_s <= time.monotonic()
    say(server, client)
    answered = pair.here.carrier.exchange(None, {socket.inet_pton(family, SERVER[family])}, time.monotonic())
    assert answered == {}, "the other host has no load"


@needs_cgroup
def test_a_peer_has_its_ipv4_address_at_a_socket_of_ipv6_too(pair: Pair) -> None:
    with pair.there.inside():
        server = socket.create_server(("::", pair.port), family=V6, dualstack_ipv6=True)
    with server, pair.here.inside(), socket.create_connection((SERVER[V4], pair.port)) as client:
        accepted, address = server.accept()
        assert address[0] == "::ffff:127.0.0.1"
        peer = socket.inet_pton(V4, SERVER[V4])
        pair.there.carrier.exchange(None, {peer}, time.monotonic())
        pair.here.carrier.exchange(LOAD, set(), time.monotonic())
        with accepted:
            say(client, accepted)
        assert pair.there.carrier.exchange(None, {peer}, time.monotonic())[peer].load == LOAD


@needs_cgroup
def test_a_load_is_kept_only_of_peers_and_forgotten_with_the_connection(pair: Pair) -> None:
    client, server = pair.connect()
    carrier = pair.there.carrier
    pair.here.carrier.exchange(LOAD, set(), time.monotonic())
    say(client, server)
    assert carrier.exchange(None, {CLIENT_4}, 0.0) == {}, "it was no peer when the message arrived"
    say(client, server)
    assert carrier.exchange(None, {CLIENT_4}, 0.0).keys() == {CLIENT_4}
    assert carrier.exchange(None, set(), 0.0) == {}
    assert carrier.exchange(None, {CLIENT_4}, 0.0) == {}
    many = {struct.pack("!I", number) for number in range(MAX_ADDRESSES + 10)}
    assert carrier.exchange(None, many, 0.0) == {}, "more peers than there is room for"


@needs_cgroup
def test_nothing_is_written_on_other_ports_after_the_agents_last_word_or_for_one_that_stopped(pair: Pair) -> None:
    client, server = pair.connect()
    others = pair.connect(port=0)

    def heard() -> dict[bytes, Heard]:
        return pair.there.carrier.exchange(None, {CLIENT_4}, 0.0)

    assert heard() == {}
    pair.here.carrier.exchange(LOAD, set(), time.monotonic())
    say(*others)
    assert heard() == {}
    pair.here.carrier.exchange(LOAD, set(), time.monotonic() - VALID_S)
    say(client, server)
    assert heard() == {}, "the agent has not measured for too long"
    pair.here.carrier.exchange(LOAD, set(), time.monotonic())
    pair.here.carrier.close()
    say(client, server)
    assert heard() == {}
    pair.here.carrier.exchange(LOAD, set(), time.monotonic())
    pair.here.option.close()
    say(client, server)
    assert heard() == {}, "the program is detached; the connection stays"
    assert programs_of(pair.here.folder) == 0


@needs_cgroup
def test_no_load_is_taken_from_impossible_figures_in_a_message(pair: Pair) -> None:
    client, server = pair.connect()
    pair.there.carrier.exchange(None, {CLIENT_4}, 0.0)
    pair.here.option.write(struct.pack("!ff", float("nan"), 1.0), time.monotonic() + 10)
    say(client, server)
    assert pair.there.option.read(CLIENT_4) is not None
    assert pair.there.carrier.exchange(None, {CLIENT_4}, 0.0) == {}


# Beside TCP's own options

TIMES, SACK, OURS = 8, 5, 253


@contextmanager
def losing(folder: Path) -> Iterator[None]:
    """Drop all packets to the sockets of a cgroup."""
    objects = BpfObjects()
    drop = assemble([(Op.MOVE_VALUE, 0, 0, 0, 0), (Op.EXIT, 0, 0, 0, 0)])
    program = objects.load(8, 0, drop)  # BPF_PROG_TYPE_CGROUP_SKB, BPF_CGROUP_INET_INGRESS
    fd = os.open(folder, os.O_RDONLY)
    objects.open(Command.LINK_CREATE, struct.pack("=IIII", program, fd, 0, 0))
    os.close(fd)
    yield
    objects.close()


@contextmanager
def capturing() -> Iterator[socket.socket]:
    """A socket that has the packets of loopback from the IP header on."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK, socket.htons(0x0800)) as capture:
        capture.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        capture.bind(("lo", 0x0800))
        yield capture


def captured_segments(capture: socket.socket, from_port: int) -> Iterator[tuple[set[int], bytes]]:
    """The kinds of TCP options, and the data, of the captured segments from a port."""
    while True:
        try:
            packet = capture.recv(4096)
        except BlockingIOError:
            return
        tcp = packet[(packet[0] & 15) * 4 :]
        if packet[9] == socket.IPPROTO_TCP and int.from_bytes(tcp[:2], "big") == from_port:
            end = (tcp[12] >> 4) * 4
            yield set(option_kinds(tcp[20:end])), tcp[end:]


def option_kinds(options: bytes) -> Iterator[int]:
    at = 0
    while at < len(options) and options[at]:
        if options[at] != 1:
            yield options[at]
        at += 1 if options[at] == 1 else options[at + 1]


@needs_cgroup
@pytest.mark.parametrize(("losses", "beside"), [(1, {OURS}), (2, set())])
def test_tcp_recovers_losses_with_time_stamps_and_sack_which_precede_the_option(
    pair: Pair, losses: int, beside: set[int]
) -> None:
    client, server = pair.connect()
    with capturing() as capture:
        pair.there.option.write(b"a load..", time.monotonic() + 60)
        for _ in range(losses):
            with losing(pair.there.folder):
                client.sendall(b"lost")
            with losing(pair.here.folder):  # and the acknowledgement, after which TCP would repeat what was lost
                client.sendall(b"seen")
        with losing(pair.there.folder):
            server.sendall(b"back")
        assert client.recv(100) == b"back"
        assert b"".join(server.recv(4) for _ in range(2 * losses)) == b"lostseen" * losses
        segments = list(captured_segments(capture, pair.port))
    first = next(kinds for kinds, data in segments if data)
    assert first == {TIMES, SACK} | beside, "two blocks of SACK leave no room"
    assert all(TIMES in kinds for kinds, _ in segments)
    assert not any(OURS in kinds for kinds, data in segments if not data), "acknowledgements alone are no messages"


# What is left, and what is refused


class NoSettings:
    """No process is enrolled, so none is boosted."""

    def steerable(self, policy_id: str) -> dict[str, str]:
        return {}

    def original(self, key: str) -> str:
        raise KeyError(key)

    def record_steering(self, key: str, value: str) -> None:
        raise KeyError(key)

    @staticmethod
    def write(action: Action) -> Result:
        raise AssertionError(action)


AGENT = """
import signal, sys, time
from pathlib import Path
from coresteer_agent.linux.tcp_option import TcpOption
port = int(sys.argv[2])
option = TcpOption([range(port, port + 1)], Path(sys.argv[1]))
option.write(b"a load..", time.monotonic() + 600)
print("ready", flush=True)
signal.pause()
"""


@needs_cgroup
def test_nothing_is_left_of_a_killed_agent_and_its_connections_go_on(pair: Pair) -> None:
    pair.here.option.close()
    run = [sys.executable, "-c", AGENT, str(pair.here.folder), str(pair.port)]
    with subprocess.Popen(run, stdout=subprocess.PIPE, text=True) as agent:
        assert agent.stdout is not None
        assert agent.stdout.readline() == "ready\n"
        assert programs_of(pair.here.folder) == 1
        client, server = pair.connect()
        pair.there.option.follow([CLIENT_4])
        say(client, server)
        heard = pair.there.option.read(CLIENT_4)
        assert heard is not None
        assert heard[0] == b"a load.."
        agent.send_signal(signal.SIGKILL)
    assert poll(lambda: programs_of(pair.here.folder) == 0)
    say(client, server)
    say(server, client)
    assert pair.there.option.read(CLIENT_4) == heard
    restarted = TcpOption([range(pair.port, pair.port + 1)], pair.here.folder)
    restarted.write(b"another.", time.monotonic() + 600)
    say(client, server)
    restarted.close()
    again = pair.there.option.read(CLIENT_4)
    assert again is not None
    assert again[0] == b"another.", "the next agent continues with connections of the last one"


@needs_cgroup
def test_an_agent_loads_the_program_for_all_processes_and_unloads_it(caplog: pytest.LogCaptureFixture) -> None:
    before = programs_of(CGROUPS)
    option = open_tcp_option(Path("/"), parse_ports(str(free_port())))
    assert option is not None, caplog.text
    assert programs_of(CGROUPS) == before + 1
    option.close()
    assert programs_of(CGROUPS) == before


@needs_cgroup
def test_the_order_of_boosts_uses_the_load_that_a_message_from_another_machine_carries() -> None:
    """The peer's messages carry this machine's own load, as its sockets are on the same machine."""
    port, before = free_port(), programs_of(CGROUPS)
    runner = CoschedulingRunner(Path("/"), NoSettings(), NoSettings.write, parse_ports(str(port)))
    runner.set_policies([PolicyInForce("3", 1, "job", 10, Mode.OBSERVE, Coscheduling(match=Match(commands=["bsp"])))])
    run = ["unshare", "--net", sys.executable, "-m", "tests.agent.remote_peer", str(port)]
    with subprocess.Popen(run, stdout=subprocess.PIPE, text=True) as member:
        assert member.stdout is not None
        assert member.stdout.readline() == "ready\n"
        task = NetTask(member.pid, 1, "bsp", None, 1, "0", "0", 0, 0.1, 0.0, [], command="bsp", params={"nice": "0"})
        runner.observe(make_view(2, tasks=[task]))

        def period() -> bool:
            runner.step()
            return any(each.messages[0].load is not None for each in runner.records)

        try:
            poll(period)
        finally:
            member.kill()
            runner.stop()
    [message] = runner.records[-1].messages
    assert (message.pid, message.peer) == (member.pid, "10.77.0.2")
    assert runner.records[-1].boosted == [member.pid]
    assert programs_of(CGROUPS) == before


@needs_cgroup
def test_an_unprivileged_agent_is_refused_with_the_call_that_failed() -> None:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setresuid(65534, 65534, 65534)
            TcpOption([range(7700, 7701)], CGROUPS or Path())
        except BpfRefusedError as error:
            os.write(writing, str(error).encode())
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(pid, 0)
    assert os.read(reading, 1000).decode() == "[Errno 1] Operation not permitted: 'BPF_MAP_CREATE'"
    os.close(reading)


@needs_cgroup
def test_a_folder_that_is_no_cgroup_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BpfRefusedError, match="'BPF_LINK_CREATE'"):
        TcpOption([range(7700, 7701)], tmp_path)


def test_where_messages_cannot_carry_loads_the_agent_says_why(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    assert open_tcp_option(tmp_path, ()) is None
    assert caplog.text == "", "by default nobody wants it"
    assert open_tcp_option(tmp_path, parse_ports("7700")) is None
    assert f"sent in datagrams. They cannot be written into messages by eBPF: {tmp_path} is not the" in caplog.text


@pytest.mark.parametrize(
    ("text", "ports"),
    [
        ("", ()),
        ("7700", (range(7700, 7701),)),
        (" 7700-7799, 8080 ", (range(7700, 7800), range(8080, 8081))),
        ("1-65535", (range(1, 65536),)),
    ],
)
def test_ports_are_a_list_of_numbers_and_ranges(text: str, ports: tuple[range, ...]) -> None:
    assert parse_ports(text) == ports


@pytest.mark.parametrize("text", ["0", "65536", "80-70", "http", "80,", ",".join(str(n) for n in range(1, 18))])
def test_a_list_of_ports_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_ports(text)
