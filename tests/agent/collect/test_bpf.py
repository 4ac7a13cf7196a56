"""The counters in the kernel: their programs, and the type information that they are made by."""

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coresteer_agent.linux import btf, byte_counters, tcp_option
from coresteer_agent.linux.bpf import BpfRefusedError
from coresteer_agent.linux.byte_counters import ByteCounters
from coresteer_agent.observe.flows import FlowReader
from coresteer_core.node.inventory import Inventory


@pytest.mark.parametrize(
    "program",
    [
        byte_counters.assemble_program(5, 0, 16, 532),
        byte_counters.assemble_program(5, 1, 16, 532),
        tcp_option.assemble_program(5, 6, [range(7700, 7800), range(8080, 8081)]),
    ],
    ids=["received bytes", "sent bytes", "TCP option"],
)
def test_every_jump_of_a_program_stays_inside_and_leads_on(program: bytes) -> None:
    code = list(struct.iter_unpack("=BBhi", program))
    assert code[-1][0] == 0x95
    for number, (opcode, _, offset, _) in enumerate(code):
        if opcode & 7 == 5 and opcode not in (0x85, 0x95):
            assert number < number + 1 + offset < len(code)


@pytest.fixture
def counters() -> Iterator[ByteCounters]:
    try:
        found = ByteCounters()
    except BpfRefusedError as error:
        pytest.skip(f"The kernel refuses eBPF: {error}")
    yield found
    found.close()


def test_the_kernel_counts_a_processs_udp_bytes_and_not_those_it_only_looked_at(
    counters: ByteCounters,
) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind(("127.0.0.1", 0))
        for size in (100, 200):
            one.sendto(bytes(size), one.getsockname())
            one.recv(1000, socket.MSG_PEEK)
            one.recv(1000)
    assert counters.read()[os.getpid(), byte_counters.UDP] == (300, 300)


def test_a_kernel_without_type_information_says_so(tmp_path: Path) -> None:
    namespace = tmp_path / "proc/self/ns/pid"
    namespace.parent.mkdir(parents=True)
    namespace.symlink_to("/proc/self/ns/pid")
    if namespace.stat().st_ino != byte_counters.INIT_PID_NAMESPACE:
        pytest.skip("These tests run in a PID namespace of their own.")
    with pytest.raises(BpfRefusedError, match="vmlinux"):
        ByteCounters(tmp_path)
    file = tmp_path / btf.PATH
    file.parent.mkdir(parents=True)
    file.write_bytes(b"not that")
    with pytest.raises(BpfRefusedError, match="does not start with a BTF header"):
        ByteCounters(tmp_path)


def types(*parts: bytes, strings: bytes) -> bytes:
    body = b"".join(parts)
    return struct.pack("=HBBIIIII", 0xEB9F, 1, 0, 24, 0, len(body), len(body), len(strings)) + body + strings


STRINGS = b"\0int\0sock\0protocol\0trace\0"


def name(text: bytes) -> int:
    return STRINGS.index(b"\0" + text + b"\0") + 1


def test_a_typedef_and_a_members_place_are_found_among_the_kernels_types(tmp_path: Path) -> None:
    parts = [
        struct.pack("=IIII", name(b"int"), 1 << 24, 4, 32),
        struct.pack("=III", name(b"sock"), 4 << 24 | 2, 16) + struct.pack("=IIIIII", 1, 1, 0, name(b"protocol"), 1, 64),
        struct.pack("=III", 0, 13 << 24 | 1, 0) + bytes(8),  # a function's arguments
        struct.pack("=III", name(b"trace"), 8 << 24, 3),
    ]
    file = tmp_path / "btf"
    file.write_bytes(types(*parts, strings=STRINGS))
    assert btf.find_types(file, ["trace"], ["sock.protocol"]) == btf.KernelTypes({"trace": 4}, {"sock.protocol": 8})
    with pytest.raises(btf.BtfError, match="does not know elsewhere"):
        btf.find_types(file, ["elsewhere"], ["sock.protocol"])


@given(st.binary(max_size=200))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_type_information_holds_it_is_found_or_refused(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "btf"
    file.write_bytes(types(data, strings=STRINGS))
    with suppress(btf.BtfError):
        btf.find_types(file, ["trace"], ["sock.protocol"])


def test_bytes_that_no_listed_socket_tells_of_are_told_without_a_netdev(counters: ByteCounters) -> None:
    reader = FlowReader(Path("/"))
    reader.read(Inventory([], []))
    assert reader.exact
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind(("127.0.0.1", 0))
        one.sendto(bytes(1000), one.getsockname())
        one.recv(1000)
    [task] = [task for task in reader.read(Inventory([], [])) if task.pid == os.getpid()]
    reader.close()
    [rx_placement] = [rx_placement for rx_placement in task.rx_placements if not rx_placement.netdev]
    assert rx_placement.rx_bytes_per_s == rx_placement.tx_bytes_per_s > 0
    assert (rx_placement.sockets, rx_placement.cpu) == (0, None)
