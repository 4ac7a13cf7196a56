"""Memory by NUMA node: numa_maps, meminfo and numastat of nodes, and moves of pages of a process of the test's own."""

import contextlib
import mmap
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.polling import poll

from coresteer_agent.apply import page_moves
from coresteer_agent.apply.page_moves import own_pages
from coresteer_agent.apply.registry import Tunable
from coresteer_agent.collect.errors import ParseError
from coresteer_agent.collect.numa import Allocations, parse_meminfo, parse_numastat
from coresteer_agent.collect.numa_maps import NumaMaps, parse_numa_maps
from coresteer_agent.collect.topology import read_topology
from coresteer_agent.linux.move_pages import move_pages
from coresteer_agent.observe import numa_tasks
from coresteer_agent.observe.numa_tasks import NumaReader
from coresteer_core.settings import parse_setting
from coresteer_core.settings.memory_nodes import split_counts

MIB = 1 << 20
MAPS = b"""\
5581a8a1a000 default file=/usr/bin/postgres mapped=100 mapmax=9 N0=60 N1=40 kernelpagesize_kB=4
5581a8c2b000 default heap anon=300 dirty=300 N0=200 N1=100 kernelpagesize_kB=4
7f1c00000000 default anon=2 dirty=2 N1=2 kernelpagesize_kB=2048
7f1d00000000 bind:1 file=/a\\040file\\012name anon=5 dirty=5 swapcache=1 active=3 N1=5 kernelpagesize_kB=4
7f1e00000000 default
7ffd3b5e6000 default stack anon=3 dirty=3 N0=3 kernelpagesize_kB=4
ffffffffff600000 default file=[vsyscall]
"""


def test_own_memory_is_counted_by_node_in_bytes_and_shared_memory_apart() -> None:
    found = parse_numa_maps(MAPS, "numa_maps")
    assert found.bytes_by_node == {0: 203 * 4096, 1: 100 * 4096 + 4 * MIB + 5 * 4096}
    assert found.shared_bytes == 100 * 4096
    assert found.mempolicy is None
    assert found.starts == [0x5581A8C2B000, 0x7F1C00000000, 0x7F1D00000000, 0x7FFD3B5E6000]
    assert found.large_pages == {0x7F1C00000000: 2 * MIB}


def test_the_memory_policy_is_that_of_most_of_the_memory() -> None:
    text = MAPS.replace(b"7f1c00000000 default", b"7f1c00000000 interleave:0-1")
    assert parse_numa_maps(text, "numa_maps").mempolicy == "interleave:0-1"


@given(st.integers(0, len(MAPS)))
def test_a_text_cut_at_any_byte_is_parsed_or_refused(cut: int) -> None:
    try:
        found = parse_numa_maps(MAPS[:cut], "numa_maps")
    except ParseError:
        return
    assert sum(found.bytes_by_node.values()) <= sum(parse_numa_maps(MAPS, "numa_maps").bytes_by_node.values())


@given(st.binary(max_size=200))
def test_any_bytes_are_parsed_or_refused(text: bytes) -> None:
    with contextlib.suppress(ParseError):
        assert isinstance(parse_numa_maps(text, "numa_maps"), NumaMaps)


def test_meminfo_of_a_node_is_parsed_into_bytes() -> None:
    text = b"Node 1 MemTotal:  1024 kB\nNode 1 MemFree:  10 kB\nNode 1 FilePages: 3 kB\nNode 1 HugePages_Total:  0\n"
    assert parse_meminfo(text, "meminfo") == {"total_bytes": MIB, "free_bytes": 10_240, "file_bytes": 3072}
    with pytest.raises(ParseError, match="line 1"):
        parse_meminfo(b"MemTotal: 1024 kB\n", "meminfo")


def test_numastat_has_local_and_remote_allocations() -> None:
    text = b"numa_hit 9\nnuma_miss 0\nlocal_node 7\nother_node 2\n"
    assert parse_numastat(text, "numastat") == Allocations(7, 2)
    with pytest.raises(ParseError, match="local_node"):
        parse_numastat(b"numa_hit 9\n", "numastat")


@pytest.fixture
def large() -> Iterator[int]:
    """A process with 32 MiB of its own."""
    program = "import sys; data = bytearray(32 << 20); print('ready', flush=True); sys.stdin.read()"
    child = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    yield child.pid
    child.communicate()


def pages_of(pid: int) -> list[int]:
    maps = parse_numa_maps(Path(f"/proc/{pid}/numa_maps").read_bytes(), "numa_maps")
    return [address for _, call in own_pages(Path("/"), pid, maps) for address in call]


def test_the_memory_of_a_process_is_read_within_a_round(large: int) -> None:
    reader, topology = NumaReader(Path("/")), read_topology(Path("/"))
    reader.read([large], topology)
    reader.tick()
    [task] = reader.read([large], topology).tasks
    assert sum((task.bytes_by_node or {}).values()) >= 32 * MIB
    assert task.mems_allowed
    assert task.unknown is None


@pytest.mark.parametrize("counted", [{0: 30 * MIB, 1: 2 * MIB}, None])
def test_a_process_that_is_too_large_to_read_is_counted_by_its_cgroup(
    large: int, monkeypatch: pytest.MonkeyPatch, counted: dict[int, int] | None
) -> None:
    monkeypatch.setattr(numa_tasks, "MAX_READ_S", 0.0)
    monkeypatch.setattr(numa_tasks, "read_only_process_memory", lambda *_: counted)
    reader, topology = NumaReader(Path("/")), read_topology(Path("/"))
    reader.read([large], topology)
    reader.tick()
    [task] = reader.read([large], topology).tasks
    assert task.bytes_by_node == counted
    assert task.from_cgroup is (counted is not None)
    assert (task.unknown or "").startswith("A read of its numa_maps would take") is (counted is None)


@pytest.mark.parametrize("moved", [True, False])
def test_memory_is_unknown_after_its_pages_were_moved_until_it_is_read_again(large: int, moved: bool) -> None:
    """A policy that is disabled meanwhile would take its own value for another program's."""
    reader, topology = NumaReader(Path("/")), read_topology(Path("/"))

    def unknown() -> str | None:
        [task] = reader.read([large], topology).tasks
        assert (task.bytes_by_node is None) is (task.unknown is not None)
        return task.unknown

    unknown()
    reader.tick()
    reader.forget_memory(large, moved=moved)
    assert unknown() == ("Its memory has not been read since its pages were moved." if moved else None)
    reader.tick()
    assert unknown() is None


class Clock:
    """Times that a test sets, in place of the module time."""

    def __init__(self) -> None:
        self.now_s = self.cpu_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def thread_time(self) -> float:
        return self.cpu_s


def test_the_memory_of_a_process_is_unknown_after_two_slow_reads_and_read_again_after_ten_minutes(
    large: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, costs_s = Clock(), iter([0.3, 0.001, 0.3, 0.3, 0.001])

    def read(root: Path, path: str) -> bytes:
        clock.cpu_s += next(costs_s)
        return (root / path).read_bytes()

    monkeypatch.setattr(numa_tasks, "time", clock)
    monkeypatch.setattr(numa_tasks, "read_file", read)
    reader, topology = NumaReader(Path("/")), read_topology(Path("/"))
    reader.read([large], topology)

    def is_known_after(seconds: float) -> bool:
        clock.now_s += seconds
        reader.tick()
        [task] = reader.read([large], topology).tasks
        return task.bytes_by_node is not None

    assert [is_known_after(20.0) for _ in range(5)] == [True] * 4 + [False]
    assert not is_known_after(590.0)
    assert is_known_after(10.0)


def test_the_value_of_memory_nodes_has_counts_and_a_write_of_the_present_node_changes_nothing(large: int) -> None:
    tunable = Tunable(Path("/"), parse_setting(f"task/{large}/memory-nodes"))
    before = split_counts(tunable.read())
    assert sum(before.values()) >= 32 * MIB // 4096
    node = max(before, key=lambda each: before[each])
    tunable.write(str(node))
    assert split_counts(tunable.read()).keys() == {node}


def test_present_pages_of_a_process_are_found_with_their_nodes(large: int) -> None:
    pages = pages_of(large)
    assert len(pages) >= 32 * MIB // os.sysconf("SC_PAGE_SIZE")
    nodes = {node.id for node in read_topology(Path("/")).numa_nodes}
    assert {node for node in move_pages(large, pages[:100], None) if node >= 0} <= nodes


def test_a_mapping_whose_name_has_a_carriage_return_is_one_mapping() -> None:
    fd = os.memfd_create("a\rb")
    os.ftruncate(fd, mmap.PAGESIZE)
    with mmap.mmap(fd, mmap.PAGESIZE):
        assert list(own_pages(Path("/"), os.getpid(), NumaMaps({}, 0, None))) == []
    os.close(fd)


def test_a_node_that_does_not_exist_is_refused_by_the_kernel(large: int) -> None:
    with pytest.raises(OSError, match="No such device"):
        move_pages(large, pages_of(large)[:1], [999])


def test_a_process_that_has_ended_is_unsupported() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert poll(lambda: not Tunable(Path("/"), parse_setting(f"task/{child.pid}/memory-nodes")).exists())


def test_pages_move_in_steps_until_each_node_has_its_share(large: int, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes: dict[int, int] = {}
    moved: list[int] = []

    def move(pid: int, addresses: list[int], targets: list[int] | None) -> list[int]:
        """As if the machine had two NUMA nodes."""
        if targets is not None:
            nodes.update(zip(addresses, targets, strict=True))
            moved.append(len(addresses))
        return [nodes.get(address, 0) for address in addresses]

    monkeypatch.setattr(page_moves, "move_pages", move)
    monkeypatch.setattr(page_moves, "STEP_CALLS", 1)
    pages = len(pages_of(large))
    steps = list(page_moves.move_to_shares(Path("/"), large, {1: 1.0}))
    assert len(steps) > 2
    assert max(moved) <= 4096
    assert sum(moved) == pytest.approx(pages, rel=0.01)
    assert sum(nodes.values()) == sum(moved)
    moved.clear()
    nodes.clear()
    assert len(list(page_moves.move_to_shares(Path("/"), large, {0: 0.9, 1: 0.1}))) < len(steps), "no more than needed"
    assert sum(moved) == pytest.approx(pages * 0.1, rel=0.05)
