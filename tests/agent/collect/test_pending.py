"""What the collectors of coscheduling read: receive queues of sockets, and how processes were scheduled."""

import os
import socket
import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.polling import PATIENCE_S, poll

from coresteer_agent.collect.errors import ParseError
from coresteer_agent.collect.pending import PendingSocket, parse_pending, read_pending
from coresteer_agent.collect.schedstat import (
    parse_schedstat,
    parse_sleeps,
    parse_state,
    read_activity,
)
from coresteer_agent.linux.netlink import NETLINK_SOCK_DIAG, Netlink
from coresteer_agent.linux.network_namespace import network_namespace, open_in_namespace
from coresteer_core.node.tasks import ThreadActivity


def inet_diag(local: str, peer: str, *, inode: int = 7, info_bytes: int = 104, tcp_info: int = 2) -> bytes:
    """Return an inet_diag_msg of a socket with 300 pending bytes, the last of them 40 ms old."""
    family = socket.AF_INET6 if ":" in local else socket.AF_INET
    addresses = [socket.inet_pton(family, address).ljust(16, b"\0") for address in (local, peer)]
    head = struct.pack("=BBBB", family, 1, 0, 0) + struct.pack("!HH", 80, 5555) + addresses[0] + addresses[1]
    head += struct.pack("=IQIIIII", 0, 9, 0, 300, 1, 1000, inode)
    info = bytearray(104)
    struct.pack_into("=I", info, 52, 40)
    shutdown = struct.pack("=HHB3x", 5, 8, 0)
    return head + shutdown + struct.pack("=HH", 4 + info_bytes, tcp_info) + bytes(info[:info_bytes])


V4 = PendingSocket(7, b"\x0a\0\0\x01\0\x50", b"\x0a\0\0\x02\x15\xb3", 300, 0.04)
LOCAL_6 = socket.inet_pton(socket.AF_INET6, "2001:db8::1") + b"\0\x50"
PEER_6 = socket.inet_pton(socket.AF_INET6, "2001:db8::2") + b"\x15\xb3"


@pytest.mark.parametrize(
    ("message", "found"),
    [
        (inet_diag("10.0.0.1", "10.0.0.2"), V4),
        (inet_diag("::ffff:10.0.0.1", "::ffff:10.0.0.2"), V4),
        (inet_diag("2001:db8::1", "2001:db8::2"), PendingSocket(7, LOCAL_6, PEER_6, 300, 0.04)),
        (inet_diag("10.0.0.1", "10.0.0.2", inode=0), None),
        (inet_diag("10.0.0.1", "10.0.0.2", info_bytes=52), None),
        (inet_diag("10.0.0.1", "10.0.0.2", tcp_info=3), None),
        (b"", None),
    ],
)
def test_a_receive_queue_is_parsed(message: bytes, found: PendingSocket | None) -> None:
    assert parse_pending(message) == found


@given(st.integers(0, 188))
def test_a_message_cut_anywhere_gives_the_socket_or_none(length: int) -> None:
    assert parse_pending(inet_diag("10.0.0.1", "10.0.0.2")[:length]) in (None, V4)


def test_the_kernel_counts_what_a_process_has_not_read_yet() -> None:
    netlink = Netlink(NETLINK_SOCK_DIAG)
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
        server.accept()[0] as served,
    ):
        inode = os.fstat(served.fileno()).st_ino
        client.sendall(b"x" * 123)
        [pending] = [each for each in read_pending(netlink) if each.inode == inode]
        served.recv(100)
        [rest] = [each for each in read_pending(netlink) if each.inode == inode]
    netlink.close()
    assert (pending.pending_bytes, rest.pending_bytes) == (123, 23)
    assert pending.address == socket.inet_aton("127.0.0.1")
    assert 0 <= pending.idle_s < PATIENCE_S


@pytest.mark.skipif(os.geteuid() != 0, reason="Only root may enter a network namespace.")
def test_sockets_of_another_network_namespace_are_read_from_a_thread_of_its_own() -> None:
    with subprocess.Popen(["unshare", "--net", "sleep", "60"]) as child:
        try:
            poll(lambda: network_namespace(child.pid) != network_namespace(os.getpid()))
            before = network_namespace(os.getpid())
            netlink = open_in_namespace(child.pid, lambda: Netlink(NETLINK_SOCK_DIAG))
            assert network_namespace(os.getpid()) == before
            with (
                socket.create_server(("127.0.0.1", 0)) as server,
                socket.create_connection(server.getsockname()),
            ):
                assert list(read_pending(netlink)) == []
            netlink.close()
        finally:
            child.kill()
    with pytest.raises(OSError, match="No such file"):
        open_in_namespace(2**22 + 1, lambda: None)


def test_an_ended_process_has_no_network_namespace() -> None:
    assert network_namespace(os.getpid()) == Path("/proc/self/ns/net").stat().st_ino
    assert network_namespace(2**22 + 1) is None


@pytest.mark.parametrize(
    ("text", "found"),
    [(b"4000000 900 80\n", (4_000_000, 80)), (b"0 0 0\n", (0, 0)), (b"4 9\n", None), (b"4 9 -1\n", None), (b"", None)],
)
def test_a_schedstat_file_has_run_time_and_slices(text: bytes, found: tuple[int, int] | None) -> None:
    if found is None:
        with pytest.raises(ParseError):
            parse_schedstat(text, "proc/1/schedstat")
    else:
        assert parse_schedstat(text, "proc/1/schedstat") == found


@pytest.mark.parametrize(
    ("text", "found"),
    [(b"1 (a) R) R 0 1", True), (b"1 (a) S 0 1", False), (b"1 (R ) D 0", False), (b"1 (a) ", None), (b"", None)],
)
def test_only_state_r_is_runnable(text: bytes, found: bool | None) -> None:
    if found is None:
        with pytest.raises(ParseError):
            parse_state(text, "proc/1/stat")
    else:
        assert parse_state(text, "proc/1/stat") is found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (b"Name:\ta\nvoluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t3\n", 12),
        (b"Name:\ta\nnonvoluntary_ctxt_switches:\t3\n", None),
        (b"Name:\ta\nvoluntary_ctxt_switches:\t\n", None),
    ],
)
def test_voluntary_context_switches_are_sleeps(text: bytes, found: int | None) -> None:
    if found is None:
        with pytest.raises(ParseError):
            parse_sleeps(text, "proc/1/status")
    else:
        assert parse_sleeps(text, "proc/1/status") == found


def test_the_activity_of_a_captured_process_is_read_and_absent_without_one_of_its_files(tmp_path: Path) -> None:
    folder = tmp_path / "proc/7"
    folder.mkdir(parents=True)
    (folder / "stat").write_bytes(b"7 (bsp) R 1 7 7 0")
    (folder / "schedstat").write_bytes(b"4000000 900 80\n")
    (folder / "status").write_bytes(b"Name:\tbsp\nvoluntary_ctxt_switches:\t12\n")
    assert read_activity(tmp_path, 7) == ThreadActivity(True, 4_000_000, 80, 12)
    assert read_activity(tmp_path, 8) is None
    (folder / "schedstat").unlink()
    assert read_activity(tmp_path, 7) is None


def test_this_process_runs_while_it_reads_itself() -> None:
    activity = read_activity(Path("/"), os.getpid())
    if activity is None:
        pytest.skip("This kernel has no schedstat.")
    assert activity.runnable
    assert activity.run_ns > 0
    assert activity.slices > 0
