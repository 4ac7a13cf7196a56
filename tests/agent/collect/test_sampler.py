"""Whole samples of a tree, tasks, sockets and what the commands print."""

import errno
import json
import os
import re
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fixtures.large_tree import LargeTree

from coresteer_agent.collect import sock_diag, tasks
from coresteer_agent.collect.errors import ParseError
from coresteer_agent.collect.files import MAX_CAPTURED_BYTES, HotFile, names, read_bytes, real_path
from coresteer_agent.collect.interrupts import read_descriptions
from coresteer_agent.collect.sock_diag import (
    TCPDIAG_GETSOCK,
    TcpLatencyReader,
    parse_message,
    parse_opens,
    socket_request,
    summarize,
    tcp_request,
)
from coresteer_agent.collect.tasks import TaskScanner
from coresteer_agent.collect.topology import read_topology
from coresteer_agent.linux.hotplug import SUBSYSTEMS, HotplugMonitor
from coresteer_agent.linux.netlink import NETLINK_SOCK_DIAG, Netlink, parse_attributes, raise_for_error
from coresteer_agent.observe.inventory import InventoryReader
from coresteer_agent.observe.sampler import Sampler
from coresteer_agent.print_json import sample_json, topology_json
from coresteer_core.node.derive import Sample, derive_rates
from coresteer_core.node.rates import TcpLatency
from coresteer_core.protocol import (
    MAX_FRAME_BYTES,
    InventoryMessage,
    RatesMessage,
    TasksMessage,
    ToBackend,
    TopologyMessage,
    encode,
)


@pytest.fixture
def tree(tmp_path: Path) -> LargeTree:
    return LargeTree(tmp_path / "machine", cpus=8, irqs=24, processes=5)


def test_a_tick_of_the_machine_is_in_the_rates(tree: LargeTree) -> None:
    sampler = Sampler(tree.root)
    before = sampler.sample()
    text_before = (tree.root / "proc/interrupts").read_text()
    tree.tick()
    after = sampler.sample()
    rates = derive_rates(before, after, 1)
    sampler.close()
    assert rates.irq_counts is not None
    moved = sum(memoryview(rates.irq_counts).cast("I"))
    assert moved == total(tree) - total_of(text_before) > 0
    assert rates.cpus == 8
    assert all(share is not None and len(share) == 8 and 255 not in share for share in rates.shares.values())
    assert all(count is not None and len(count) == 32 for count in rates.counts.values())
    assert [netdev.name for netdev in rates.netdevs or []] == ["eth0", "eth1", "eth2", "eth3"]
    assert rates.tcp is None
    assert rates.counters["tcp_out_segments"] == 10**5


def total(tree: LargeTree) -> int:
    return total_of((tree.root / "proc/interrupts").read_text())


def total_of(text: str) -> int:
    return sum(sum(map(int, line.split()[1:9])) for line in text.splitlines()[1:] if "ERR" not in line)


def test_a_tree_without_files_gives_a_sample_of_nothing(tmp_path: Path) -> None:
    sampler = Sampler(tmp_path)
    sample = sampler.sample()
    assert sample.cpus == 0
    for name in ("times", "interrupts", "softirqs", "softnet", "netdevs", "tcp"):
        assert getattr(sample, name) is None
    assert sample.counters == {}
    assert derive_rates(sample, sampler.sample(), 1).irq_ids is None


SOURCES: list[tuple[str, Callable[[Sample], object]]] = [
    ("stat", lambda sample: sample.times),
    ("interrupts", lambda sample: sample.interrupts),
    ("softirqs", lambda sample: sample.softirqs),
    ("net/softnet_stat", lambda sample: sample.softnet),
    ("net/dev", lambda sample: sample.netdevs),
    ("net/snmp", lambda sample: sample.counters.get("tcp_retransmits")),
    ("net/netstat", lambda sample: sample.counters.get("tcp_listen_overflows")),
]
FILES = [file for file, _ in SOURCES]


@pytest.mark.parametrize("text", ["", "garbage\n", "cut"])
@pytest.mark.parametrize(("file", "read"), SOURCES)
def test_a_source_that_fails_is_none_until_it_is_whole_again(
    file: str, read: Callable[[Sample], object], text: str, tree: LargeTree, caplog: pytest.LogCaptureFixture
) -> None:
    sampler = Sampler(tree.root)
    whole = (tree.root / "proc" / file).read_text()
    assert read(sampler.sample()) is not None
    (tree.root / "proc" / file).write_text(text)
    assert read(sampler.sample()) is None
    assert read(sampler.sample()) is None
    assert len([m for m in caplog.messages if m.startswith((f"proc/{file} ", f"proc/{file}:"))]) == 1
    (tree.root / "proc" / file).write_text(whole)
    assert read(sampler.sample()) is not None
    sampler.close()


ALL_FILES = [f"proc/{file}" for file in (*FILES, "irq/41/smp_affinity_list", "1001/stat")] + [
    "sys/devices/system/cpu/present",
    "sys/devices/system/cpu/online",
    "sys/devices/system/node/node0/distance",
    "sys/class/net/eth0/speed",
]
NUMBERS = ["", "-1", "70000", "999999999", "18446744073709551616", "9" * 60, "9" * 5000]
LINES = ["cpu", "cpu ", ":", "\0", f"{'9' * 5000}: 1", "(null)"]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> LargeTree:
    return LargeTree(tmp_path_factory.mktemp("mutated") / "machine", cpus=4, irqs=48, processes=2)


@settings(max_examples=40)
@pytest.mark.parametrize("file", ALL_FILES)
@given(mutation=st.sampled_from([(r"\d+", NUMBERS), (r"[^\n]+", LINES)]), data=st.data())
def test_whatever_stands_in_a_file_the_agent_has_something_to_send(
    machine: LargeTree, file: str, mutation: tuple[str, list[str]], data: st.DataObject
) -> None:
    path = machine.root / file
    before = path.read_text() if path.exists() else "0\n"
    pattern, texts = mutation
    last = data.draw(st.sampled_from([7, 400]))  # the first ones of a counter file are its header and where rows begin
    wrong = data.draw(st.dictionaries(st.integers(0, last), st.sampled_from(texts), min_size=1, max_size=3))

    def mutate(text: str) -> str:
        numbers = count()
        return re.sub(pattern, lambda found: wrong.get(next(numbers), found[0]), text)

    scanner = TaskScanner(machine.root)
    scanner.scan()
    whole, mutated = Sampler(machine.root), Sampler(machine.root)
    first = whole.sample()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(mutate(before))
    try:
        second = mutated.sample()
        path.write_text(before)
        machine.tick()
        before = path.read_text()
        path.write_text(mutate(before))
        third = mutated.sample()
        inventory = InventoryReader(machine.root)
        messages: list[ToBackend] = [TasksMessage(0, scanner.scan())]
        messages += [
            RatesMessage(derive_rates(*pair, 1)) for pair in ((first, second), (second, third), (first, third))
        ]
        messages.append(InventoryMessage(inventory.read(derive_rates(first, third, 1))))
        assert all(len(encode(message)) < MAX_FRAME_BYTES for message in messages)
        with suppress(ParseError):
            assert encode(TopologyMessage(read_topology(machine.root)))
    finally:
        path.write_text(before)
        for opened in (whole, mutated, scanner):
            opened.close()


@pytest.mark.parametrize(("code", "found"), [(0, None), (5, None), (-1, errno.EPERM), (-(1 << 31), 4095)])
def test_an_error_of_netlink_has_the_kernels_number_whatever_stands_in_it(code: int, found: int | None) -> None:
    raised = None
    try:
        raise_for_error(memoryview(struct.pack("=i", code)))
    except OSError as error:
        raised = error.errno
    assert raised == found


def test_this_machine_can_be_sampled() -> None:
    sampler = Sampler(Path("/"))
    before, after = sampler.sample(), sampler.sample()
    sampler.close()
    assert before.times and before.interrupts and before.softirqs and before.softnet and before.netdevs
    assert "lo" in before.netdevs
    assert derive_rates(before, after, 1).duration_s > 0


# Tasks


def test_the_busiest_processes_come_first(tree: LargeTree, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([100.0, 105.0])
    monkeypatch.setattr(tasks, "monotonic", lambda: next(clock))
    scanner = TaskScanner(tree.root)
    assert scanner.scan() == []
    write_task(tree.root, 1001, used=250)
    write_task(tree.root, 1002, used=500)
    write_task(tree.root, 5000, used=25)
    found = scanner.scan()
    assert [(task.pid, task.name, task.cpu_share) for task in found] == [
        (1002, "worker-1002", 1.0),
        (1001, "worker-1001", 0.5),
        (5000, "new (one)", 0.05),
    ]


def write_task(root: Path, pid: int, *, used: int) -> None:
    path = root / f"proc/{pid}/stat"
    if path.exists():
        head, _, rest = path.read_text().rpartition(") ")
        fields = rest.split()
        fields[11] = str(int(fields[11]) + used)
    else:
        path.parent.mkdir()
        head, fields = f"{pid} (new (one)", ["0"] * 50
        fields[11] = str(used)
    fields[21] = "1"  # resident pages: a kernel thread has none
    path.write_text(f"{head}) {' '.join(fields)}\n")


def test_a_process_that_reuses_a_number_counts_from_zero(tree: LargeTree, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([100.0, 105.0])
    monkeypatch.setattr(tasks, "monotonic", lambda: next(clock))
    scanner = TaskScanner(tree.root)
    scanner.scan()
    (tree.root / "proc/1001/stat").unlink()
    fields = ["0"] * 50
    fields[11], fields[19] = "10", "99999"
    (tree.root / "proc/1001/stat").write_text(f"1001 (young) {' '.join(fields)}\n")
    assert [(task.name, task.cpu_share) for task in scanner.scan()] == [("young", 0.02)]


def test_a_process_is_placed_on_numa_nodes_until_it_was_not_busy_for_30_s(
    tree: LargeTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = [(100.0, 0, []), (105.0, 100, [1001, 1002]), (110.0, 99, [1002, 1001]), (134.9, 0, [1002, 1001])]
    clock = iter([*(time_s for time_s, _, _ in rounds), 135.0])
    monkeypatch.setattr(tasks, "monotonic", lambda: next(clock))
    scanner = TaskScanner(tree.root)
    for time_s, used, listed in rounds:
        write_task(tree.root, 1001, used=used)
        write_task(tree.root, 1002, used=1000 if listed else 0)
        scanner.scan()
        assert scanner.numa_pids == listed, time_s
    scanner.scan()
    assert scanner.numa_pids == [1002]


@pytest.mark.parametrize(("field", "value"), [(21, "0"), (19, "99999")], ids=["it has ended", "another has its PID"])
def test_a_process_that_was_busy_is_not_placed_on_numa_nodes_once_it_has_ended(
    tree: LargeTree, monkeypatch: pytest.MonkeyPatch, field: int, value: str
) -> None:
    clock = iter([100.0, 105.0, 110.0])
    monkeypatch.setattr(tasks, "monotonic", lambda: next(clock))
    scanner = TaskScanner(tree.root)
    scanner.scan()
    write_task(tree.root, 1001, used=250)
    scanner.scan()
    assert scanner.numa_pids == [1001]
    path = tree.root / "proc/1001/stat"
    head, _, rest = path.read_text().rpartition(") ")
    fields = rest.split()
    fields[field], fields[11], fields[12] = value, "0", "0"
    path.write_text(f"{head}) {' '.join(fields)}\n")
    scanner.scan()
    assert scanner.numa_pids == []


# Sockets


def inet_diag(
    peer: str, *, rtt_us: int = 500, sent_ms: int = 5, received_ms: int = 5, info_bytes: int = 104, state: int = 1
) -> bytes:
    family = socket.AF_INET6 if ":" in peer else socket.AF_INET
    address = socket.inet_pton(family, peer).ljust(16, b"\0")
    own = socket.inet_pton(family, "fe80::1" if ":" in peer else "10.0.0.1").ljust(16, b"\0")
    message = struct.pack("=BBBB4s16s16s12s20s", family, state, 0, 0, b"", own, address, b"", b"")
    info = bytearray(104)
    struct.pack_into("=I", info, 44, sent_ms)
    struct.pack_into("=I", info, 52, received_ms)
    struct.pack_into("=I", info, 68, rtt_us)
    shutdown = struct.pack("=HHB3x", 5, 8, 0)
    return message + shutdown + struct.pack("=HH", 4 + info_bytes, 2) + bytes(info[:info_bytes])


@pytest.mark.parametrize(
    ("message", "rtt"),
    [
        (inet_diag("10.0.0.2"), 500),
        (inet_diag("2001:db8::2", rtt_us=70), 70),
        (inet_diag("10.0.0.2", sent_ms=60_000), 500),
        (inet_diag("10.0.0.2", sent_ms=60_000, received_ms=10_000), None),
        (inet_diag("127.0.0.53"), None),
        (inet_diag("::1"), None),
        (inet_diag("::ffff:127.0.0.1"), None),
        (inet_diag("10.0.0.1"), None),
        (inet_diag("10.0.0.2", info_bytes=60), None),
        (inet_diag("10.0.0.2")[:72], None),
        (b"", None),
    ],
)
def test_only_active_sockets_to_other_hosts_count(message: bytes, rtt: int | None) -> None:
    assert parse_message(message) == rtt


@given(st.integers(0, 188))
def test_a_message_cut_anywhere_gives_a_time_or_none(length: int) -> None:
    assert parse_message(inet_diag("10.0.0.2")[:length]) in (None, 500)


@pytest.mark.parametrize(
    ("rtts", "latency"),
    [
        ([], None),
        ([0, 0], None),
        ([7], TcpLatency(1, 7, 7, 7)),
        (range(1, 101), TcpLatency(100, 50, 95, 99)),
        ([3, 1, 2], TcpLatency(3, 2, 3, 3)),
    ],
)
def test_percentiles_are_times_that_were_measured(rtts: list[int], latency: TcpLatency | None) -> None:
    assert summarize(rtts) == latency


def test_the_kernel_lists_a_socket_of_ours() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        ports = struct.pack("!HH", client.getsockname()[1], server.getsockname()[1])
        netlink = Netlink(NETLINK_SOCK_DIAG)
        request = struct.pack("=BBBxI48x", socket.AF_INET, socket.IPPROTO_TCP, 2, 2)
        messages = [bytes(m) for m in netlink.dump(20, request)]
        netlink.close()
    (ours,) = [m for m in messages if m[4:8] == ports]
    tcp_info = dict(parse_attributes(memoryview(ours), 72))[2]
    assert struct.unpack_from("=I", tcp_info, 68)[0] > 0


def test_a_kernel_that_refuses_is_asked_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    asked = []

    def refuse(self: Netlink, kind: int, payload: bytes) -> list[memoryview]:
        asked.append(kind)
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Netlink, "dump", refuse)
    reader = TcpLatencyReader()
    assert [reader.read(), reader.read(), reader.read()] == [None] * 3
    assert len(asked) == 1
    assert "Operation not permitted" in caplog.text


def test_a_large_dump_is_not_repeated_each_second(monkeypatch: pytest.MonkeyPatch) -> None:
    dumps = []

    def many(self: Netlink, kind: int, payload: bytes) -> list[memoryview]:
        dumps.append(payload)
        return [memoryview(inet_diag("10.0.0.2"))] * 3000

    monkeypatch.setattr(Netlink, "dump", many)
    reader = TcpLatencyReader()
    first = reader.read()
    assert first == TcpLatency(3000, 500, 500, 500)
    assert reader.read() is None
    assert len(dumps) == 1


REMOTE, LOCAL, SYN_SENT = inet_diag("10.0.0.2"), inet_diag("127.0.0.53"), inet_diag("10.0.0.3", state=2)


@pytest.mark.parametrize(
    ("sockets", "opened", "lists", "asked_for"),
    [
        ([REMOTE, LOCAL], 0, 1, 1),
        ([LOCAL], 0, 1, 0),
        ([REMOTE], 1, 2, 0),
        ([REMOTE, SYN_SENT], 0, 2, 0),
        ([REMOTE] * 32, 0, 1, 32),
        ([REMOTE] * 33, 0, 2, 0),
    ],
    ids=["remote and local", "only local", "opened since", "being opened", "few", "many"],
)
def test_sockets_are_listed_again_only_if_others_may_be_established(
    monkeypatch: pytest.MonkeyPatch, sockets: list[bytes], opened: int, lists: int, asked_for: int
) -> None:
    listed, requests = [], list[bytes]()
    opens = iter([[b"7", b"1"], [b"7", b"%d" % (1 + opened)]])

    def dump(self: Netlink, kind: int, payload: bytes) -> list[memoryview]:
        listed.append(payload)
        return [memoryview(each) for each in sockets]

    def query(self: Netlink, kind: int, payloads: list[bytes]) -> list[memoryview]:
        requests.extend(payloads)
        return [memoryview(inet_diag("10.0.0.2", rtt_us=9)) for _ in payloads]

    monkeypatch.setattr(Netlink, "dump", dump)
    monkeypatch.setattr(Netlink, "query", query)
    monkeypatch.setattr(sock_diag, "parse_opens", lambda _: next(opens))
    reader = TcpLatencyReader()
    remote = sockets.count(REMOTE)
    assert reader.read() == (TcpLatency(remote, 500, 500, 500) if remote else None)
    rtt_us = 500 if lists == 2 else 9
    assert reader.read() == (TcpLatency(remote, rtt_us, rtt_us, rtt_us) if remote else None)
    assert (len(listed), len(requests)) == (lists, asked_for)
    assert all(request[4:52] == REMOTE[4:52] for request in requests)


@pytest.mark.parametrize("closed", [False, True], ids=["open", "closed"])
def test_the_kernel_answers_for_one_socket_as_in_its_list(*, closed: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        ports = struct.pack("!HH", client.getsockname()[1], server.getsockname()[1])
        netlink = Netlink(NETLINK_SOCK_DIAG)
        (ours,) = [bytes(m) for m in netlink.dump(TCPDIAG_GETSOCK, tcp_request(1 << 1)) if bytes(m[4:8]) == ports]
        if closed:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # without TIME_WAIT
            client.close()
        replies = [bytes(m[:52]) for m in netlink.query(TCPDIAG_GETSOCK, [socket_request(memoryview(ours))])]
        netlink.close()
    assert replies == ([] if closed else [ours[:52]])


@pytest.mark.parametrize(
    ("text", "opens"),
    [
        (b"Ip: A\nIp: 1\nTcp: RtoAlgorithm RtoMin RtoMax MaxConn ActiveOpens PassiveOpens AttemptFails\n"
         b"Tcp: 1 200 120000 -1 12 34 5\nUdp: B\nUdp: 2\n", [b"12", b"34"]),
        (b"Tcp: RtoAlgorithm RtoMin\n", None),
        (b"Ip: A\nIp: 1\nTcp: RtoAlgorithm\nTcp: 1 200 120000 -1 12", None),
        (b"", None),
    ],
)  # fmt: skip
def test_opened_connections_are_parsed_from_the_counters_of_tcp(text: bytes, opens: list[bytes] | None) -> None:
    assert parse_opens(text) == opens


def test_after_a_passing_error_the_sockets_are_asked_for_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    answers = [OSError(errno.ENOBUFS, "No buffer space"), OSError(errno.EINTR, "Interrupted"), None]

    def dump(self: Netlink, kind: int, payload: bytes) -> list[memoryview]:
        if (error := answers.pop(0)) is not None:
            raise error
        return [memoryview(inet_diag("10.0.0.2"))]

    monkeypatch.setattr(Netlink, "dump", dump)
    reader = TcpLatencyReader()
    assert [reader.read(), reader.read(), reader.read()] == [None, None, TcpLatency(1, 500, 500, 500)]
    assert len(caplog.messages) == 1


# Hot-plug


def test_events_that_were_lost_mean_that_everything_may_have_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [None, OSError(105, "No buffer space available"), None]

    def poll(_: object, timeout: float) -> None:  # of no other program's devices
        if (error := answers.pop(0)) is not None:
            raise error

    monkeypatch.setattr("pyudev.Monitor.poll", poll)
    monitor = HotplugMonitor()
    assert monitor.changed() == set()
    assert monitor.changed() == SUBSYSTEMS
    assert monitor.changed() == set()


def test_without_libudev_the_monitor_cannot_be_had_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise ImportError("No library named udev")

    monkeypatch.setattr("pyudev.Context", missing)
    with pytest.raises(OSError, match="libudev is not installed"):
        HotplugMonitor()


# What the commands print


def test_topology_is_printed_with_the_names_of_the_contract(tree: LargeTree) -> None:
    printed = topology_json(tree.root)
    assert printed == topology_json(tree.root)
    found = json.loads(printed)
    assert found["cpus"][5] == {
        "cpu": 5,
        "core": 1,
        "package": 0,
        "numa_node": 1,
        "online": True,
        "siblings": "1,5",
        "capacity": None,
    }
    assert found["numa_nodes"][1] == {
        "id": 1,
        "cpus": "1,5",
        "memory_bytes": 131072000 * 1024,
        "distances": [12, 10, 32, 32],
    }
    assert {"level": 3, "type": "Unified", "size_bytes": 32768 * 1024, "cpus": "0-7"} in found["caches"]
    assert (found["isolated"], found["nohz_full"]) == ("", "")


def test_a_sample_is_printed_by_name_cpu_and_interrupt(tree: LargeTree) -> None:
    found = json.loads(sample_json(tree.root))
    assert set(found["interrupts"]["41"]) == {str(cpu) for cpu in range(8)}
    assert set(found["softirqs"]["NET_RX"]) == {str(cpu) for cpu in range(8)}
    assert set(found["times"]["3"]) >= {"user", "steal"}
    assert set(found["softnet"]["3"]) == {"processed", "dropped", "time_squeeze"}
    assert found["netdevs"]["eth1"]["tx_packets"] == 10**9
    assert found["tcp"] is None


def test_an_empty_tree_can_be_printed(tmp_path: Path) -> None:
    assert json.loads(topology_json(tmp_path))["cpus"] == []
    assert json.loads(sample_json(tmp_path))["interrupts"] is None


@given(texts=st.lists(st.integers(0, 10_000), min_size=1, max_size=8))
def test_a_kept_file_is_read_whole_at_any_size_and_what_was_read_before_still_holds(
    tmp_path_factory: pytest.TempPathFactory, texts: list[int]
) -> None:
    root = tmp_path_factory.mktemp("kept")
    file = HotFile(root, "file")
    held, held_text = None, b""
    for turn, size in enumerate(texts):
        text = bytes([65 + turn]) * size
        (root / "file").write_bytes(text)
        read = file.read()
        assert (read or b"") == text
        assert held is None or held == held_text
        if read is not None:
            held, held_text = read, text
    file.close()


def test_a_moment_without_text_does_not_make_old_counters_look_new(tree: LargeTree) -> None:
    sampler = Sampler(tree.root)
    before = sampler.sample()
    path = tree.root / "proc/interrupts"
    path.write_bytes(b"")
    assert sampler.sample().interrupts is None
    tree.tick()
    after = sampler.sample()
    sampler.close()
    assert before.interrupts is not None
    assert after.interrupts is not None
    assert after.interrupts.rows != before.interrupts.rows


# Captured trees are data of unknown origin


@pytest.mark.parametrize("kind", ["link out", "linked folder", "fifo", "device", "endless", "folder"])
def test_what_a_captured_tree_should_not_hold_is_as_if_absent(kind: str, tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "rootless"
    outside.mkdir()
    (outside / "interrupts").write_text("secret\n")
    (root / "proc").mkdir(parents=True)
    file = root / "proc/interrupts"
    match kind:
        case "link out":
            file.symlink_to("../../rootless/interrupts")
        case "linked folder":
            file.parent.rmdir()
            file.parent.symlink_to(outside)
        case "fifo":
            os.mkfifo(file)
        case "device":
            file.symlink_to("/dev/zero")
        case "endless":
            with file.open("wb") as large:
                large.truncate(MAX_CAPTURED_BYTES + 1)
        case "folder":
            file.mkdir()
    assert read_bytes(root, "proc/interrupts") is None
    assert HotFile(root, "proc/interrupts").read() is None
    assert read_descriptions(root) is None
    if kind == "linked folder":
        assert names(root, "proc") == []
        assert real_path(root, "proc") is None


def test_a_captured_file_that_grows_without_end_is_left(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    file = HotFile(tmp_path, "file")
    assert bytes(file.read() or b"") == b"x"
    with (tmp_path / "file").open("r+b") as large:
        large.truncate(MAX_CAPTURED_BYTES + 65536)
    assert file.read() is None


def test_links_inside_a_captured_tree_are_followed(tmp_path: Path) -> None:
    root = tmp_path / "linked"
    root.symlink_to("real")
    (tmp_path / "real/sub").mkdir(parents=True)
    (tmp_path / "real/sub/file").write_bytes(b"x")
    (root / "to").symlink_to("sub")
    assert read_bytes(root, "to/file") == b"x"
    assert bytes(HotFile(root, "to/file").read() or b"") == b"x"
    assert names(root, "to") == ["file"]
