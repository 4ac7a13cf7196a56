"""Processes that communicate over the network, their traffic, and their RX placement."""

import errno
import os
import shutil
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.support.polling import PATIENCE_S, poll
from tests.support.rates import make_rates, pack
from tests.support.views import make_netdev

from coresteer_agent.collect.cgroups import CgroupWeights, parse_weight
from coresteer_agent.collect.errors import ParseError
from coresteer_agent.collect.process_identity import CgroupPaths, ProcessIdentityReader, parse_cgroups, parse_command
from coresteer_agent.collect.sock_diag import TCPDIAG_GETSOCK
from coresteer_agent.collect.tasks import Scheduling, parse_scheduling
from coresteer_agent.collect.tcp_sockets import Flow, SocketDump, TcpSocket, TcpSockets, find_message_layout
from coresteer_agent.linux.addresses import Addresses, netdev_of_address, parse_address
from coresteer_agent.linux.ethtool import Rss
from coresteer_agent.linux.flow_steering import Steering
from coresteer_agent.observe.flows import FlowReader
from coresteer_agent.observe.heavy_flows import MAX_FLOWS_OF_TASK, HeavyFlows
from coresteer_agent.observe.net_tasks import TaskReader, read_cgroup_ids
from coresteer_agent.observe.rx_placement import RxPlacements, RxTarget, softirq_cpu
from coresteer_agent.observe.socket_owners import SocketOwners
from coresteer_core.node.inventory import FlowRule, FlowRuleTable, Inventory, Irq, Netdev, Queue
from coresteer_core.node.rates import Rates
from coresteer_core.node.rss import SYM_OR_XOR, SYM_XOR
from coresteer_core.node.tasks import MAX_HEAVY_FLOWS, HeavyFlow, NetTask

ROOT = Path("/")


KEY = bytes.fromhex("6d5a56da255b0ec24167253d43a38fb0d0ca2bcbae7b30b477cb2da38030f20c6a42b73bbeac01fa")


OWN_PID = os.getpid()


# Sockets listed by the kernel


def message(
    cookie: int,
    acked: int,
    received: int,
    *,
    inode: int = 7,
    extra: bytes = b"",
    info_bytes: int = 248,
    local: str = "10.0.0.1",
    peer: str = "10.0.0.2",
) -> bytes:
    """Return an inet_diag_msg in its netlink message, with the attributes extra before tcp_info."""
    family = socket.AF_INET6 if ":" in local else socket.AF_INET
    addresses = [socket.inet_pton(family, address).ljust(16, b"\0") for address in (local, peer)]
    body = struct.pack("=BBBB", family, 1, 0, 0) + struct.pack("!HH", 80, 5555) + addresses[0] + addresses[1]
    body += struct.pack("=IQIIIII", 0, cookie, 0, 0, 0, 0, inode)
    info = bytearray(info_bytes)
    values = struct.pack("=II", 30, 0) + struct.pack("=I", 10)
    info[44 : 44 + len(values)] = values[: max(info_bytes - 44, 0)]
    info[120:136] = struct.pack("=QQ", acked, received) if info_bytes >= 136 else info[120:136]
    body += extra + struct.pack("=HH", 4 + len(info), 2) + bytes(info)
    return struct.pack("=IHHII", 16 + len(body), TCPDIAG_GETSOCK, 2, 1, 0) + body


DONE = struct.pack("=IHHIIi", 20, 3, 2, 1, 0, 0)


CGROUP = struct.pack("=HHQ", 12, 21, 4711)


SHUTDOWN = struct.pack("=HHB3x", 5, 8, 0)


def take(before: dict[int, TcpSocket] | None, *messages: bytes) -> SocketDump:
    answer = SocketDump(before)
    assert answer.parse(memoryview(b"".join(messages) + DONE))
    return answer


@pytest.mark.parametrize(("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_one_request_lists_sockets_of_both_address_families(family: socket.AddressFamily, address: str) -> None:
    sockets = TcpSockets()
    try:
        with socket.create_server((address, 0), family=family) as server:
            assert server.getsockname()[1] in sockets.listening().values()
            with socket.create_connection(server.getsockname()[:2]) as client, server.accept()[0] as accepted:
                sockets.read()
                client.sendall(b"x" * 1234)
                assert len(accepted.recv(1234, socket.MSG_WAITALL)) == 1234
                local = socket.inet_pton(family, address)
                moved = [(flow.local, received) for _, flow, _, received, _ in sockets.read()[0]]
                assert (local, 1234) in moved
    except OSError as error:
        if error.errno != errno.EADDRNOTAVAIL:  # a machine without IPv6
            raise
    finally:
        sockets.close()


def test_traffic_of_a_socket_is_the_difference_of_its_counters() -> None:
    first = take(None, message(1, 100, 10), message(2, 5, 5, inode=8))
    assert first.moved == []
    second = take(first.sockets, message(1, 150, 10), message(2, 5, 5, inode=8), message(3, 7, 8, inode=9))
    assert [(tcp.inode, sent, received, idle) for tcp, _, sent, received, idle in second.moved] == [
        (7, 50, 0, 10),
        (9, 7, 8, 10),
    ]
    assert second.sockets[2] is first.sockets[2]
    assert take(second.sockets, message(1, 150, 10)).sockets.keys() == {1}


def test_messages_of_different_layouts_are_parsed() -> None:
    first = take(None)
    mixed = [
        message(1, 1, 2, extra=SHUTDOWN + CGROUP),
        message(2, 3, 4, extra=CGROUP + SHUTDOWN),
        message(3, 5, 6),
        message(4, 7, 8, info_bytes=100),
        message(5, 9, 10, inode=0),
        message(6, 11, 12, extra=CGROUP, local="2001:db8::1", peer="2001:db8::2"),
    ]
    moved = take(first.sockets, *mixed).moved
    assert [(sent, received) for _, _, sent, received, _ in moved] == [(1, 2), (3, 4), (5, 6), (11, 12)]
    assert [flow.cgroup_id for _, flow, *_ in moved] == [4711, 4711, None, 4711]
    assert moved[3][1].peer == socket.inet_pton(socket.AF_INET6, "2001:db8::2")


def test_a_mapped_address_is_parsed_as_its_ipv4_address() -> None:
    [(_, flow, *_)] = take({}, message(1, 1, 1, local="::ffff:10.0.0.1", peer="::ffff:10.0.0.2")).moved
    assert (flow.local, flow.peer) == (bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2]))
    assert flow.ports == struct.pack("!HH", 5555, 80)


def test_an_error_of_the_kernel_is_raised_with_its_number() -> None:
    with pytest.raises(OSError, match="not permitted") as caught:
        SocketDump({}).parse(memoryview(struct.pack("=IHHIIi", 20, 2, 0, 1, 0, -errno.EPERM)))
    assert caught.value.errno == errno.EPERM


@given(st.binary(max_size=600))
def test_a_broken_answer_gives_sockets_or_an_os_error(data: bytes) -> None:
    with suppress(OSError):
        SocketDump({}).parse(memoryview(data))


@given(st.integers(0, 400), st.binary(min_size=1, max_size=8))
def test_a_damaged_message_raises_nothing_but_os_error(at: int, damage: bytes) -> None:
    whole = bytearray(message(1, 1, 2, extra=CGROUP) + message(2, 3, 4, extra=CGROUP))
    whole[at : at + len(damage)] = damage
    with suppress(OSError):
        SocketDump({}).parse(memoryview(bytes(whole)))
    find_message_layout(memoryview(bytes(whole)))


# Addresses


def test_the_address_of_a_point_to_point_link_is_the_local_one() -> None:
    here, there = bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2])
    attributes = struct.pack("=HH", 8, 1) + there + struct.pack("=HH", 8, 2) + here
    assert parse_address(memoryview(struct.pack("=BBBBI", 2, 32, 0, 0, 5) + attributes)) == (here, 5)


def test_an_address_that_is_no_ip_address_is_left_out() -> None:
    mctp = struct.pack("=BBBBI", 45, 8, 0, 0, 5) + struct.pack("=HHB3x", 5, 2, 8)
    assert parse_address(memoryview(mctp)) is None


def test_an_address_of_several_netdevs_belongs_to_none() -> None:
    names = {1: "lo", 2: "eth0", 3: "eth1"}
    found = netdev_of_address([(b"a" * 4, 2), (b"b" * 4, 2), (b"b" * 4, 3)], names)
    assert found == {b"a" * 4: "eth0", b"b" * 4: None}


@given(st.binary(max_size=60))
def test_any_address_message_is_parsed_or_ignored(data: bytes) -> None:
    parse_address(memoryview(data))


# RxPlacements


def rates(net_rx: list[int]) -> Rates:
    return make_rates(counts={"net_rx": pack("I", net_rx)})


def netdev(name: str, queues: list[Queue], *, virtual: bool = False, driver: str = "igb") -> Netdev:
    return make_netdev(name, driver, numa_node=None, queues=queues, virtual=virtual)


class Here(Addresses):
    """One address, on eth0."""

    def read(self) -> None:
        self._netdevs = {bytes([161, 142, 100, 80]): "eth0", bytes([10, 0, 0, 1]): "veth0"}
        self._names = {}


FLOW = Flow(memoryview(message(1, 0, 0, local="161.142.100.80", peer="66.9.149.187"))[16:])


FLOW.ports = struct.pack("!HH", 2794, 1766)


PLAIN = Steering(tcp_4=True, tcp_6=True, ntuple=False, rules=0)


SPREAD = Rss(KEY, [3, 1, 2, 0] * 2, "toeplitz")


HASH = 0x51CCC178  # the published one of this flow: entry 0 of a table of eight


def target(
    root: Path,
    *,
    queues: int = 4,
    rps: str = "",
    driver: str = "ixgbe",
    steering: Steering = PLAIN,
    rss: Rss | None = SPREAD,
    virtual: bool = False,
    flow: Flow = FLOW,
    softirqs: list[int] | None = None,
    rules: FlowRuleTable | None = None,
) -> RxTarget:
    online = root / "sys/devices/system/cpu/online"
    online.parent.mkdir(parents=True, exist_ok=True)
    online.write_text("0-6\n")
    device = netdev(
        "eth0",
        [Queue(f"rx-{n}", None if virtual else 40 + n, rps=rps) for n in range(queues)],
        driver=driver,
        virtual=virtual,
    )
    device = replace(device, flow_rules=rules)
    irqs = [Irq(40 + n, f"eth0-{n}", "PCI", "0-7", str(n + 4), None, True, None, "eth0") for n in range(queues)]
    placements = RxPlacements(
        Inventory([device, netdev("veth0", [Queue("rx-0", rps="")], virtual=True)], irqs),
        Here(),
        [] if softirqs is None else [rates(softirqs)],
        rss_of=lambda _: rss,
        steering_of=lambda _: steering,
        root=root,
    )
    tcp = TcpSocket(1)
    found = placements.target(tcp, flow)
    entry = placements.rss_entry(tcp, flow)
    if found.how == "rss":
        assert rss is not None
        assert entry is not None
        assert found.queue == f"rx-{rss.table[entry]}"
    elif found.queue is None:
        assert entry is None
    return found


def test_the_hash_selects_the_queue_and_its_interrupt_the_cpu(tmp_path: Path) -> None:
    assert target(tmp_path) == RxTarget("eth0", "rx-3", 43, 7, "rss")


def test_a_nic_with_one_queue_needs_no_hash(tmp_path: Path) -> None:
    assert target(tmp_path, queues=1, rss=None) == RxTarget("eth0", "rx-0", 40, 4, "queue")


def test_rps_to_one_cpu_determines_the_cpu(tmp_path: Path) -> None:
    assert target(tmp_path, rps="2") == RxTarget("eth0", "rx-3", 43, 2, "rps")


def test_rps_selects_an_online_cpu_by_the_nics_hash_where_the_kernel_uses_it(tmp_path: Path) -> None:
    choices = [1, 2, 5]  # CPU 7 is offline
    assert target(tmp_path, rps="1-2,5,7") == RxTarget("eth0", "rx-3", 43, choices[HASH * 3 >> 32], "rps")
    assert target(tmp_path, rps="1-2,5,7", driver="igb") == RxTarget("eth0", "rx-3", 43)


@pytest.mark.parametrize(
    "steering",
    [
        Steering(None, None, False, 0),
        Steering(True, True, False, 1),
    ],
    ids=["unknown hash fields", "steering rules"],
)
def test_an_uncertain_queue_is_unknown(tmp_path: Path, steering: Steering) -> None:
    assert target(tmp_path, steering=steering) == RxTarget("eth0")


@pytest.mark.parametrize(
    "rss",
    [
        None,
        Rss(KEY, [0] * 8, "xor"),
        Rss(b"", [0] * 8, "toeplitz"),
        Rss(bytes(40), [0] * 8, ""),
        Rss(KEY, [9], "toeplitz"),
        Rss(KEY, [0] * 8, "toeplitz", 4),
        Rss(KEY, [0] * 8, "toeplitz", SYM_XOR | SYM_OR_XOR),
    ],
    ids=["no RSS", "another hash", "no key", "a key of zeros", "a missing queue", "an unknown transformation", "two"],
)
def test_with_incomplete_rss_the_queue_is_unknown(tmp_path: Path, rss: Rss | None) -> None:
    assert target(tmp_path, rss=rss) == RxTarget("eth0")


@pytest.mark.parametrize(
    ("input_xfrm", "ports", "queue"),
    [(SYM_XOR, True, 2), (SYM_XOR, False, 3), (SYM_OR_XOR, True, 2), (SYM_OR_XOR, False, 2)],
)
def test_a_symmetric_hash_selects_another_queue(tmp_path: Path, input_xfrm: int, queue: int, *, ports: bool) -> None:
    rss, steering = replace(SPREAD, input_xfrm=input_xfrm), replace(PLAIN, tcp_4=ports)
    found = RxTarget("eth0", f"rx-{queue}", 40 + queue, 4 + queue, "rss")
    assert target(tmp_path, rss=rss, steering=steering, driver="mlx5_core") == found


def test_a_driver_that_may_hash_symmetrically_without_reporting_it_leaves_the_queue_unknown(tmp_path: Path) -> None:
    assert target(tmp_path, driver="mlx5_core") == RxTarget("eth0")
    assert target(tmp_path, driver="mlx5_core", rps="2") == RxTarget("eth0")
    assert target(tmp_path, driver="mlx5_core", queues=1) == RxTarget("eth0", "rx-0", 40, 4, "queue")


def test_a_hash_that_becomes_symmetric_is_computed_again(tmp_path: Path) -> None:
    inventory = Inventory([netdev("eth0", [Queue(f"rx-{n}", 40 + n) for n in range(4)], driver="ice")], [])
    tcp, queues = TcpSocket(1), []
    for rss in (SPREAD, replace(SPREAD, input_xfrm=SYM_XOR)):
        known = {"eth0": rss}
        placements = RxPlacements(inventory, Here(), rss_of=known.get, steering_of=lambda _: PLAIN, root=tmp_path)
        queues.append(placements.target(tcp, FLOW).queue)
    assert queues == ["rx-3", "rx-2"]


def test_a_driver_that_does_not_report_its_key_uses_the_kernels(tmp_path: Path) -> None:
    file = tmp_path / "proc/sys/net/core/netdev_rss_key"
    file.parent.mkdir(parents=True)
    file.write_text(KEY.hex(":") + "\n")
    untold = Rss(b"", [3, 1, 2, 0] * 2, "toeplitz")
    assert target(tmp_path, rss=untold, driver="igb") == RxTarget("eth0", "rx-3", 43, 7, "rss")
    assert target(tmp_path, rss=untold, driver="ixgbe") == RxTarget("eth0")


def steer_flows(root: Path, *queues: str, netdev: str = "eth0") -> None:
    """Let the kernel apply RFS to queues."""
    entries = root / "proc/sys/net/core/rps_sock_flow_entries"
    entries.parent.mkdir(parents=True, exist_ok=True)
    entries.write_text("32768\n")
    for queue in queues:
        count = root / f"sys/class/net/{netdev}/queues/{queue}/rps_flow_cnt"
        count.parent.mkdir(parents=True)
        count.write_text("2048\n")


def test_with_rfs_the_cpu_of_the_interrupt_polls_and_rps_does_not_apply(tmp_path: Path) -> None:
    steer_flows(tmp_path, "rx-3")
    assert target(tmp_path) == RxTarget("eth0", "rx-3", 43, 7, "rss", rfs=True)
    assert target(tmp_path, rps="2") == RxTarget("eth0", "rx-3", 43, 7, "rss", rfs=True)
    assert target(tmp_path, rps="1-2") == RxTarget("eth0", "rx-3", 43, 7, "rss", rfs=True)


def test_accelerated_rfs_hides_the_queue(tmp_path: Path) -> None:
    steer_flows(tmp_path, "rx-3")
    accelerated = Steering(True, True, True, 0)
    assert target(tmp_path, steering=accelerated) == RxTarget("eth0")
    steer_flows(tmp_path, "rx-0", "rx-1", "rx-2")
    assert target(tmp_path, steering=accelerated) == RxTarget("eth0", rfs=True)


def test_rfs_applies_to_an_unknown_queue_where_it_applies_to_every_queue(tmp_path: Path) -> None:
    steer_flows(tmp_path, "rx-0", "rx-1", "rx-2", "rx-3")
    assert target(tmp_path, rss=None) == RxTarget("eth0", rfs=True)


def test_with_rfs_on_a_virtual_netdev_the_cpu_that_polls_is_unknown(tmp_path: Path) -> None:
    steer_flows(tmp_path, "rx-0")
    assert target(tmp_path, virtual=True, queues=1, softirqs=[0, 9]) == RxTarget("eth0", "rx-0", rfs=True)


def rule_table(*values: str, complete: bool = True) -> FlowRuleTable:
    return FlowRuleTable(1024, [FlowRule(place, value) for place, value in enumerate(values)], complete)


BY_HASH = RxTarget("eth0", "rx-3", 43, 7, "rss")
BY_RULE = RxTarget("eth0", "rx-1", 41, 5, "rule")


@pytest.mark.parametrize(
    ("table", "found"),
    [
        (rule_table("flow-type tcp4 dst-port 1766 action 1"), BY_RULE),
        (rule_table("flow-type tcp4 src-ip 66.9.149.187 dst-ip 161.142.100.80 src-port 2794 dst-port 1766 action 1"),
         BY_RULE),
        (rule_table("flow-type tcp4 dst-port 1766 action 1", "flow-type tcp4 src-ip 66.9.149.187 action 2"), BY_RULE),
        (rule_table("flow-type tcp4 dst-port 80 action 1"), BY_HASH),
        (rule_table("flow-type tcp4 src-ip 66.9.149.188 dst-port 1766 action 1"), BY_HASH),
        (rule_table("flow-type udp4 dst-port 1766 action 1"), BY_HASH),
        (rule_table("flow-type tcp6 dst-port 1766 action 1"), BY_HASH),
        (rule_table("flow-type tcp6 dst-ip ::1 dst-port 1766 action 1"), BY_HASH),
        (rule_table("flow-type tcp4 dst-port 80 action 1", ""), RxTarget("eth0")),
        (rule_table("flow-type tcp4 dst-port 80 action 9"), RxTarget("eth0")),
        (rule_table("flow-type tcp4 dst-port 80 action 1", complete=False), RxTarget("eth0")),
        (rule_table(), RxTarget("eth0")),
        (None, RxTarget("eth0")),
    ],
    ids=["a port", "the whole flow", "the lowest location", "another port", "another address", "UDP", "IPv6",
         "an IPv6 address", "an unknown rule", "a missing queue", "an incomplete table", "a new rule", "no table"],
)  # fmt: skip
def test_a_flow_rule_that_matches_selects_the_queue_and_the_hash_that_of_other_flows(
    tmp_path: Path, table: FlowRuleTable | None, found: RxTarget
) -> None:
    steering = Steering(True, True, False, len(table.rules) or 1 if table is not None else 1)
    assert target(tmp_path, steering=steering, rules=table) == found


def test_a_flow_rule_selects_the_queue_even_where_the_hash_is_unknown(tmp_path: Path) -> None:
    table = rule_table("flow-type tcp4 dst-port 1766 action 1")
    assert target(tmp_path, steering=Steering(None, None, False, 1), rss=None, rules=table) == BY_RULE


def test_a_threaded_napi_does_not_run_on_the_cpu_of_its_interrupt(tmp_path: Path) -> None:
    file = tmp_path / "sys/class/net/eth0/threaded"
    file.parent.mkdir(parents=True)
    file.write_text("1\n")
    assert target(tmp_path) == RxTarget("eth0", "rx-3", 43)


def test_flows_of_a_vlan_are_received_by_its_lower_nic_and_of_a_two_port_bridge_unknown(
    tmp_path: Path,
) -> None:
    flow = Flow(memoryview(message(1, 0, 0, local="10.0.0.1", peer="10.0.0.9"))[16:])
    assert Here().netdev(flow.local, flow.peer, 0) == "veth0"
    (tmp_path / "sys/class/net/veth0/lower_eth0").mkdir(parents=True)
    assert target(tmp_path, queues=1, flow=flow) == RxTarget("eth0", "rx-0", 40, 4, "queue")
    (tmp_path / "sys/class/net/veth0/lower_eth1").mkdir()
    assert target(tmp_path, queues=1, flow=flow) == RxTarget("veth0")


def test_packets_of_a_virtual_netdev_are_on_the_cpu_of_nearly_all_softirqs(tmp_path: Path) -> None:
    assert target(tmp_path, virtual=True, queues=1, softirqs=[2, 97, 0, 1]) == RxTarget(
        "eth0", None, None, 1, "softirq"
    )
    assert target(tmp_path, virtual=True, queues=1, softirqs=[50, 50]) == RxTarget("eth0")
    assert target(tmp_path, virtual=True, queues=1) == RxTarget("eth0")
    assert target(tmp_path, virtual=True, queues=1, rps="3", softirqs=[9]) == RxTarget("eth0", "rx-0", None, 3, "rps")
    assert target(tmp_path, virtual=True, queues=1, rps="3-4", softirqs=[9]) == RxTarget("eth0", "rx-0")


def test_absent_softirq_counts_are_ignored() -> None:
    assert softirq_cpu([rates([0xFFFF_FFFF, 3])]) == 1
    assert softirq_cpu([]) is None


# Owners of sockets


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        accepted, _ = server.accept()
    with client, accepted:
        yield client, accepted


def inode(one: socket.socket) -> int:
    return os.fstat(one.fileno()).st_ino


def search(owners: SocketOwners, *inodes: int) -> None:
    def all_found() -> bool:
        owners.find(inodes)
        return all(owners.pid(number) is not None for number in inodes)

    poll(all_found)


def test_the_process_of_a_socket_is_cached_until_the_socket_is_closed(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    owners = SocketOwners()
    ours = [inode(one) for one in pair]
    search(owners, *ours)
    assert [owners.pid(number) for number in ours] == [OWN_PID, OWN_PID]
    assert set(ours) <= set(owners._sockets[OWN_PID].values())
    owners.forget_sockets(ours[:1])
    assert owners.pid(ours[0]) is None
    assert owners.pid(ours[1]) == OWN_PID


def test_a_socket_on_a_reused_descriptor_is_found(pair: tuple[socket.socket, socket.socket]) -> None:
    owners = SocketOwners()
    search(owners, inode(pair[0]))
    before, number = inode(pair[0]), pair[0].fileno()
    pair[0].close()
    new = socket.socket()
    os.dup2(new.fileno(), number)
    new.close()
    with socket.socket(fileno=number) as reused:
        search(owners, inode(reused))  # the old one was not reported as closed
        assert owners.pid(inode(reused)) == OWN_PID
        assert owners.pid(before) is None


def test_the_child_is_the_owner_even_after_pids_wrapped_around(tmp_path: Path) -> None:
    for pid in (325, 400, 32657):
        (tmp_path / str(pid) / "fd").mkdir(parents=True)
        (tmp_path / str(pid) / "fd/3").symlink_to("socket:[77]" if pid != 400 else "pipe:[5]")
    (tmp_path / "loadavg").write_text("0.50 0.40 0.30 1/200 401\n")
    owners = SocketOwners(str(tmp_path))
    owners.find([77])
    assert owners.pid(77) == 325


def test_the_child_of_a_forking_server_owns_its_connection(pair: tuple[socket.socket, socket.socket]) -> None:
    number = pair[0].fileno()
    child = subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE, pass_fds=[number]
    )
    try:
        owners = SocketOwners()
        search(owners, inode(pair[0]))
        assert owners.pid(inode(pair[0])) == child.pid
    finally:
        child.communicate(b"")
    owners.find([])
    owners.find([])
    search(owners, inode(pair[0]))
    assert owners.pid(inode(pair[0])) == OWN_PID


def test_the_search_for_a_socket_without_owner_ends(tmp_path: Path) -> None:
    owners = SocketOwners(str(tmp_path))
    reads: list[int] = []
    for pid in range(1, 4):
        (tmp_path / f"{pid}/fd").mkdir(parents=True)
        (tmp_path / f"{pid}/fd/0").symlink_to("socket:[12]")
    for _ in range(3):
        owners.find([999])
        reads.append(owners._round)
    assert reads == [2, 2, 2]
    assert owners.pid(12) == 3  # the youngest of those that share it


def test_a_search_reads_a_bounded_number_of_links_at_a_time(tmp_path: Path) -> None:
    (tmp_path / "5/fd").mkdir(parents=True)
    for number in range(2_500):
        (tmp_path / f"5/fd/{number}").symlink_to(f"socket:[{10_000 + number}]")
    owners = SocketOwners(str(tmp_path))
    owners.find([12_499])
    assert 1_000 <= len(owners._sockets[5]) <= 1_500
    owners.find([12_499])
    owners.find([12_499])
    assert owners.pid(12_499) == 5


# Processes


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("0::/system.slice/nginx.service\n", CgroupPaths("/system.slice/nginx.service", None, None, "nginx.service")),
        ("3:cpuset,cpu:/a\n1:name=systemd:/x/y.scope/z\n0::/\n", CgroupPaths("/", "/a", "/a", "y.scope")),
        ("4:cpu,cpuacct:/docker/1\n2:cpuset:/\n", CgroupPaths(None, "/", "/docker/1", None)),
        ("0::/user.slice/user@1000.service/app.slice/a.service/b\n",
         CgroupPaths("/user.slice/user@1000.service/app.slice/a.service/b", None, None, "a.service")),
        ("0::/a\u2028\r0::/system.slice/x.service\n",
         CgroupPaths("/a??0::/system.slice/x.service", None, None, "x.service")),
        ("", CgroupPaths(None, None, None, None)),
    ],
)  # fmt: skip
def test_cgroups_of_both_versions_are_distinguished(text: str, groups: CgroupPaths) -> None:
    assert parse_cgroups(text) == groups


@pytest.mark.parametrize(
    ("cmdline", "command"),
    [
        (b"/usr/sbin/nginx\0-g\0daemon off;\0", "nginx"),
        (b"nginx: worker process", "nginx"),
        (b"postgres: walwriter \0\0", "postgres"),
        (b"-bash\0", "-bash"),
        (b"/\0", None),
        (b"", None),
        (b"a\x1bb\0", "a?b"),
    ],
)
def test_the_command_is_the_first_word_without_its_folder(cmdline: bytes, command: str | None) -> None:
    assert parse_command(cmdline) == command


def test_a_user_is_reported_by_name_or_else_by_number(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\n:::\nweb:x:33:33::/:/\nother:x:33:33::/:/\n")
    for pid, uid in ((5, 33), (6, 77)):
        (tmp_path / f"proc/{pid}").mkdir(parents=True)
        (tmp_path / f"proc/{pid}/status").write_text(f"Name:\ta\rUid:\t0\t0\nUid:\t0\t{uid}\t0\t0\n")
    reader = ProcessIdentityReader(tmp_path)
    assert [reader.read(pid).user for pid in (5, 6, 7)] == ["web", "77", None]


@pytest.mark.parametrize(
    ("text", "weight"),
    [("100\n", "100"), ("default 250\n8:16 50\n", "250"), ("8:16 50\n", None), ("", None), ("max", None)],
)
def test_a_weight_is_that_of_the_cgroup_and_not_of_a_device(text: str, weight: str | None) -> None:
    assert parse_weight(text) == weight


def test_weights_are_read_in_both_cgroup_versions_and_the_root_has_none(tmp_path: Path) -> None:
    files = {
        "cpu,cpuacct/web/cpu.shares": "1024\n",
        "cpu,cpuacct/cpu.shares": "1024\n",
        "web.slice/cpu.weight": "100\n",
        "web.slice/io.weight": "default 200\n",
        "unified/db.slice/cpu.weight": "50\n",
    }
    for name, text in files.items():
        file = tmp_path / "sys/fs/cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    reader = CgroupWeights(tmp_path)
    wanted = {
        "web": {"cpu.shares": "1024"},
        "web.slice": {"cpu.weight": "100", "io.weight": "200"},
        "db.slice": {"cpu.weight": "50"},
    }
    assert reader.read(["", "web", "web.slice", "db.slice", "web", "gone"]) == wanted
    (tmp_path / "sys/fs/cgroup/web.slice/io.weight").unlink()
    assert reader.read(["web.slice"]) == {"web.slice": {"cpu.weight": "100"}}


def test_the_weight_of_a_cgroup_that_gets_a_controller_later_is_found_within_a_minute(tmp_path: Path) -> None:
    folder = tmp_path / "sys/fs/cgroup/web.slice"
    folder.mkdir(parents=True)
    (folder / "cpu.weight").write_text("100\n")
    reader = CgroupWeights(tmp_path)
    assert reader.read(["web.slice"]) == {"web.slice": {"cpu.weight": "100"}}
    (folder / "io.weight").write_text("default 200\n")
    rounds = [reader.read(["web.slice"]) for _ in range(12)]
    assert rounds[-1] == {"web.slice": {"cpu.weight": "100", "io.weight": "200"}}


def test_scheduling_is_parsed_from_proc_stat() -> None:
    own = parse_scheduling(Path("/proc/self/stat").read_bytes(), "proc/self/stat")
    assert (own.nice, own.realtime, own.kernel) == (os.getpriority(os.PRIO_PROCESS, 0), False, False)
    fields = [b"0"] * 50
    fields[6], fields[16], fields[38] = str(0x0420_0000).encode(), b"-20", b"1"
    assert parse_scheduling(b"2 (a) b) " + b" ".join(fields), "") == Scheduling(-20, True, True, True)
    with pytest.raises(ParseError):
        parse_scheduling(b"2 (a) " + b" ".join(fields[:38]), "")


@given(st.text(max_size=80))
def test_any_cgroup_file_is_parsed(text: str) -> None:
    parse_cgroups(text)


def test_a_process_is_read_with_its_affinity() -> None:
    tasks = TaskReader(ROOT)
    tasks.begin_round()
    facts = tasks.read(OWN_PID)
    assert facts is not None
    assert facts.identity.command == parse_command(Path("/proc/self/cmdline").read_bytes())
    assert facts.identity.user in ("root", str(os.geteuid())) or os.geteuid()
    assert facts.threads >= 1
    assert facts.affinity == facts.allowed or set(os.sched_getaffinity(0))
    assert tasks.read(2**22 + 1) is None


def test_threads_that_may_run_on_different_cpus_are_told_from_others() -> None:
    tasks, first, *_ = TaskReader(ROOT), *sorted(os.sched_getaffinity(0))
    bind, bound, end = threading.Event(), threading.Event(), threading.Event()

    def wait() -> None:
        bind.wait()
        os.sched_setaffinity(threading.get_native_id(), {first})
        bound.set()
        end.wait()

    thread = threading.Thread(target=wait)
    thread.start()
    try:
        differ = []
        for before in (bind, end):
            tasks.begin_round()
            facts = tasks.read(OWN_PID)
            assert facts is not None
            differ.append(facts.threads_differ)
            before.set()
            bound.wait()
    finally:
        end.set()
        thread.join()
    assert differ == [False, len(os.sched_getaffinity(0)) > 1]


# End to end


def test_a_captured_tree_has_no_flows(tmp_path: Path) -> None:
    assert FlowReader(tmp_path).read(Inventory([], [])) == []


def test_bytes_over_loopback_are_attributed_to_their_process(pair: tuple[socket.socket, socket.socket]) -> None:
    reader = FlowReader(ROOT)
    assert reader.read(Inventory([netdev("lo", [Queue("rx-0", rps="")], virtual=True)], [])) == []

    def own_task() -> NetTask | None:
        pair[0].sendall(bytes(60_000))
        received = 0
        while received < 60_000:
            received += len(pair[1].recv(65536))
        own = [task for task in reader.read(Inventory([], [])) if task.pid == OWN_PID and task.flows]
        return own[0] if own else None

    task = poll(own_task)  # the search for the sockets' process is spread over some rounds
    assert task.name
    assert task.idle_s < 60
    assert [rx_placement.netdev for rx_placement in task.rx_placements] == ["lo"]
    assert task.rx_placements[0].sockets == 2
    assert task.rx_placements[0].cpu is None
    [flow] = task.flows
    assert (flow.protocol, flow.netdev, flow.rss_entry) == ("tcp", "lo", None)
    assert (flow.local_port, flow.peer_port) == (pair[1].getsockname()[1], pair[0].getsockname()[1])
    assert flow.rx_bytes_per_s > 1000
    reader.close()


class SomePlacements(RxPlacements):
    """Every flow has one target."""

    def __init__(self) -> None:
        pass

    def rss_entry(self, tcp: TcpSocket, flow: Flow) -> int | None:
        return tcp.inode


def test_the_heaviest_flows_of_a_process_are_reported_within_their_limits() -> None:
    heavy = HeavyFlows(SomePlacements(), 5.0)
    assert heavy.least == 5000
    for pid in range(MAX_HEAVY_FLOWS // MAX_FLOWS_OF_TASK + 1):
        for number in range(MAX_FLOWS_OF_TASK + 4):
            heavy.add(pid, 5000 * number, TcpSocket(number), FLOW, BY_HASH)
    first = heavy.take(0)
    assert [flow.rss_entry for flow in first] == list(range(MAX_FLOWS_OF_TASK + 3, 3, -1))
    assert first[0] == HeavyFlow("tcp", "161.142.100.80", 80, "66.9.149.187", 2794, "eth0", "rx-3", 7, 19, 19_000.0)
    rest = [len(heavy.take(pid)) for pid in range(1, MAX_HEAVY_FLOWS // MAX_FLOWS_OF_TASK + 1)]
    assert sum(rest) + len(first) == MAX_HEAVY_FLOWS
    assert rest[-1] == 0
    assert heavy.take(10_000) == []


def test_a_listening_process_is_reported_with_ports_and_clients_even_without_traffic() -> None:
    reader = FlowReader(ROOT)

    def own_task() -> NetTask | None:
        return next((task for task in reader.read(Inventory([], [])) if task.pid == OWN_PID), None)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        silent = poll(own_task)  # the search for the sockets' process is spread over some rounds
        assert port in silent.listens
        assert silent.rx_placements == []
        with socket.create_connection(("127.0.0.1", port)) as client, listener.accept()[0] as accepted:

            def own_task_after_traffic() -> NetTask | None:
                for sender, receiver in ((client, accepted), (accepted, client)):
                    sender.sendall(b"x" * 10)
                    receiver.recv(10)
                return own_task()

            # in each round: the search for the process of a socket may take longer than the first one
            own = poll(own_task_after_traffic, lambda task: task.clients)
            assert own.clients == ["127.0.0.1"]
            assert own.params["nice"] == str(os.getpriority(os.PRIO_PROCESS, 0))
            [one] = [found for found in reader.connections() if found.port == port]
            assert (one.pid, one.client) == (OWN_PID, socket.inet_aton("127.0.0.1"))
            assert one.rtt_us
    poll(lambda: (task := own_task()) is None or port not in task.listens)
    reader.close()


@pytest.mark.root
def test_a_flow_over_a_veth_has_its_placement_and_follows_its_rps() -> None:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("A network namespace needs root and ip (package iproute2).")
    done = subprocess.run(
        ["unshare", "--net", "--mount", sys.executable, "-m", "tests.agent.collect.veth_trial"],
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_S,
        check=False,
        cwd=Path(__file__).parents[3],
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["veth0 rx-0 0 rps", "veth0 rx-0 1 rps"]


def test_a_cgroup_removed_during_the_search_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mount = tmp_path / "sys/fs/cgroup"
    (mount / "web.slice").mkdir(parents=True)
    (mount / "cgroup.procs").touch()
    folders: list[tuple[str, list[str], list[str]]] = [
        (str(mount / name), [], []) for name in ("gone.scope", "web.slice")
    ]
    monkeypatch.setattr(os, "walk", lambda _: folders)
    assert read_cgroup_ids(tmp_path) == {(mount / "web.slice").stat().st_ino: "sys/fs/cgroup/web.slice"}
