"""Memory traffic: resctrl on a tree of files, performance counters with a fake and with the real system call."""

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.views import make_topology

from coresteer_agent.collect.numa import read_performance
from coresteer_agent.collect.resctrl import FOLDER, Traffic, parse_counter, parse_tasks, read_l3_nodes
from coresteer_agent.linux.perf_event import SOFTWARE, Count, Event, open_counter, read_counter
from coresteer_agent.observe.bandwidth import BandwidthReader, TrafficRate, traffic_by_cache, traffic_by_node
from coresteer_agent.observe.process_counters import Figures, ProcessCounters, increment
from coresteer_core.node.numa import NodeMemory, NumaTask
from coresteer_core.node.topology import Cache, Topology

MIB = 1 << 20
TASK_CLOCK, CONTEXT_SWITCHES = Event(SOFTWARE, 1), Event(SOFTWARE, 3)
# NUMA nodes 0: CPUs 0-3, 1: CPUs 4-7, each with an L3 cache
BARE = make_topology(packages=2, nodes_per_package=1, cores_per_node=4, threads=1)
TOPOLOGY = Topology(BARE.cpus, BARE.numa_nodes, [Cache(3, "Unified", None, "0-3"), Cache(3, "Unified", None, "4-7")])


def task(pid: int, *, threads: int = 1, cpu_share: float = 1.0, started_ticks: int = 5) -> NumaTask:
    return NumaTask(pid, started_ticks, "stream", None, threads, "0-7", "0-7", 0, cpu_share, MIB, 9.0)


# HMAT


def test_bandwidth_is_in_mib_per_second_and_latency_in_nanoseconds(tmp_path: Path) -> None:
    folder = tmp_path / "sys/devices/system/node/node1/access0/initiators"
    folder.mkdir(parents=True)
    for name, text in {"read_bandwidth": "131072", "read_latency": "76", "write_latency": "0"}.items():
        (folder / name).write_text(f"{text}\n")
    expected = NodeMemory(1, bandwidth_bytes_per_s=131072.0 * MIB, latency_ns=76.0)
    assert read_performance(tmp_path, 1) == expected
    assert read_performance(tmp_path, 0) == NodeMemory(0)


# resctrl


class Resctrl:
    """A tree with resctrl on two L3 caches."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._write("info/L3_MON/mon_features", "llc_occupancy\nmbm_total_bytes\nmbm_local_bytes\n")
        for cpu, cache in ((0, 0), (4, 1)):
            folder = root / f"sys/devices/system/cpu/cpu{cpu}/cache/index3"
            folder.mkdir(parents=True)
            (folder / "level").write_text("3\n")
            (folder / "id").write_text(f"{cache}\n")
        self.count("")

    def count(self, group: str, *counters: tuple[int | str, int | str], tasks: tuple[int, ...] = ()) -> None:
        """Set a group's (local, total) of each cache in MiB, and its threads."""
        for cache, pair in enumerate(counters or ((0, 0), (0, 0))):
            for name, value in zip(("local", "total"), pair, strict=True):
                text = str(value * MIB) if isinstance(value, int) else value
                self._write(f"{group}/mon_data/mon_L3_{cache:02d}/mbm_{name}_bytes", f"{text}\n")
        self._write(f"{group}/tasks", "".join(f"{tid}\n" for tid in tasks))

    def run(self, pid: int, *threads: int) -> None:
        """Let a process have these threads."""
        for tid in (pid, *threads):
            (self.root / f"proc/{pid}/task/{tid}").mkdir(parents=True, exist_ok=True)

    def _write(self, name: str, text: str) -> None:
        path = self.root / FOLDER / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def resctrl(tmp_path: Path) -> Resctrl:
    return Resctrl(tmp_path)


@pytest.fixture
def each_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a second pass between two reads of the clock."""
    seconds = iter(range(1000))
    monkeypatch.setattr("coresteer_agent.observe.bandwidth.time.monotonic", lambda: float(next(seconds)))


@pytest.mark.parametrize(
    ("text", "value"),
    [(b"4096\n", 4096), (b"Unavailable\n", None), (b"Unassigned\n", None), (b"Error\n", None), (None, None)],
)
def test_a_counter_that_is_not_a_number_is_unknown(text: bytes | None, value: int | None) -> None:
    assert parse_counter(text) == value


@given(st.binary(max_size=100))
def test_any_bytes_are_parsed(text: bytes) -> None:
    assert (parse_counter(text) or 0) >= 0
    assert all(tid >= 0 for tid in parse_tasks(text))


@pytest.mark.usefixtures("each_second")
def test_traffic_of_all_control_groups_is_summed_by_numa_node(resctrl: Resctrl) -> None:
    reader = BandwidthReader(resctrl.root)
    resctrl.count("", (100, 150), (10, 10))
    resctrl.count("batch", (5, 5), (0, 7))
    assert reader.read([], TOPOLOGY).traffic_unknown == "Memory traffic has been read only once yet."
    resctrl.count("", (300, 450), (10, 30))
    resctrl.count("batch", (6, 6), (0, 8))
    resctrl.count("mon_groups/of-default", (90, 90), (90, 90))  # the default group's figures include it
    found = reader.read([], TOPOLOGY)
    assert found.traffic_unknown is None
    assert found.nodes == {0: TrafficRate(201.0 * MIB, 100.0 * MIB), 1: TrafficRate(0.0, 21.0 * MIB)}


@pytest.mark.usefixtures("each_second")
def test_a_process_is_measured_where_a_group_has_all_of_its_threads_and_no_other(resctrl: Resctrl) -> None:
    reader = BandwidthReader(resctrl.root)
    resctrl.run(10, 11)
    resctrl.run(20, 21)
    resctrl.run(30)
    groups = {"mon_groups/own": (10, 11), "part": (20,), "part/mon_groups/two": (30, 11)}
    tasks = [task(10), task(20), task(30)]
    for mib in (100, 400):
        for group, threads in groups.items():
            resctrl.count(group, (mib, mib), (0, 2 * mib), tasks=threads)
        found = reader.read(tasks, TOPOLOGY)
    assert found.bytes_per_s == {10: 900.0 * MIB}
    reused = reader.read([task(10, started_ticks=6)], TOPOLOGY)
    assert reused.bytes_per_s == {}


def set_features(resctrl: Resctrl, text: str) -> None:
    (resctrl.root / FOLDER / "info/L3_MON/mon_features").write_text(text)


def share_a_cache(resctrl: Resctrl) -> None:
    (resctrl.root / "sys/devices/system/cpu/cpu4/cache/index3/id").write_text("9\n")


def add_groups(resctrl: Resctrl) -> None:
    for number in range(16):
        resctrl.count(f"group{number}")


UNKNOWN: dict[str, tuple[Callable[[Resctrl], None], str]] = {
    "without monitoring": (lambda r: set_features(r, "llc_occupancy\n"), "does not monitor memory bandwidth"),
    "no file": (lambda r: (r.root / FOLDER / "info/L3_MON/mon_features").unlink(), "does not monitor"),
    "a cache of unknown place": (share_a_cache, "An L3 cache serves several NUMA nodes"),
    "no counter": (lambda r: r.count("", ("Unavailable", 1), (1, "Unavailable")), "unavailable at the moment"),
    "many groups": (add_groups, "has 17 control groups"),
}


@pytest.mark.usefixtures("each_second")
@pytest.mark.parametrize("name", UNKNOWN)
def test_unknown_traffic_of_nodes_has_a_reason(resctrl: Resctrl, name: str) -> None:
    change, why = UNKNOWN[name]
    change(resctrl)
    reader = BandwidthReader(resctrl.root)
    reader.read([], TOPOLOGY)
    found = reader.read([], TOPOLOGY)
    assert found.nodes == {}
    assert why in (found.traffic_unknown or "")


def test_without_resctrl_and_counters_both_reasons_are_given(tmp_path: Path) -> None:
    found = BandwidthReader(tmp_path).read([task(10)], TOPOLOGY)
    assert found.traffic_unknown == "resctrl is not mounted, or this machine does not have it."
    assert found.unknown == f"{found.traffic_unknown} A captured tree has no performance counters."


def test_a_cache_of_two_numa_nodes_has_none(resctrl: Resctrl) -> None:
    whole = Topology(BARE.cpus, BARE.numa_nodes, [Cache(3, "Unified", None, "0-7")])
    assert read_l3_nodes(resctrl.root, whole) == {0: None}
    assert read_l3_nodes(resctrl.root, TOPOLOGY) == {0: 0, 1: 1}


def test_a_new_group_and_one_created_again_count_from_zero_and_an_unavailable_cache_is_unknown() -> None:
    before: dict[str, dict[int, Traffic | None]] = {"a": {0: Traffic(90, 100), 1: None}, "b": {0: Traffic(5, 9)}}
    now: dict[str, dict[int, Traffic | None]] = {
        "a": {0: Traffic(91, 102), 1: Traffic(1, 1)}, "b": {0: Traffic(3, 4)}, "new": {0: Traffic(10, 20)},
    }  # fmt: skip
    by_cache = traffic_by_cache(before, now)
    assert by_cache == {0: Traffic(14, 26), 1: None}
    assert traffic_by_node(by_cache, {0: 0, 1: 1}, 2.0) == {0: TrafficRate(7.0, 6.0)}
    assert traffic_by_node(by_cache, {0: 0, 1: 0}, 2.0) == {}


# Performance counters


class FakeCounters:
    """perf_event_open on a machine that counts some events. rates: events in a read, by (type, config)."""

    def __init__(self, rates: dict[tuple[int, int], int], refuse: int = errno.ENOENT) -> None:
        self.rates, self.refuse = rates, refuse
        self.opened: dict[int, tuple[Event, int]] = {}
        self.reads: dict[int, int] = {}
        self.calls = 0

    def open(self, event: Event, tid: int) -> int:
        self.calls += 1
        if (event.type, event.config) not in self.rates:
            raise OSError(self.refuse, os.strerror(self.refuse))
        if tid == 13:
            raise OSError(errno.EACCES, "Permission denied")
        fd = os.open("/dev/null", os.O_RDONLY)
        self.opened[fd] = (event, tid)
        return fd

    def read(self, fd: int) -> Count:
        self.reads[fd] = times = self.reads.get(fd, 0) + 1
        event, _ = self.opened[fd]
        return Count(self.rates[event.type, event.config] * times, 1000 * times, 1000 * times)

    def still_open(self) -> list[int]:
        return [fd for fd in self.opened if os.path.exists(f"/proc/self/fd/{fd}")]  # noqa: PTH110 - a link to /dev/null


CLOCK = (TASK_CLOCK.type, TASK_CLOCK.config)
ALL = {CLOCK: 1, (3, 0x10002): 1_000_000, (0, 0): 4000, (0, 8): 1000}


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Path]:
    """A tree with processes 10 (two threads), 13 and 20; its counters are the machine's own, not a captured tree's."""
    for pid, tids in ((10, (10, 11)), (13, (13,)), (20, (20,))):
        for tid in tids:
            (tmp_path / f"proc/{pid}/task/{tid}").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/perf_event_paranoid").write_text("3\n")
    yield tmp_path


def counters(root: Path, fake: FakeCounters) -> ProcessCounters:
    made = ProcessCounters(root, fake.open, fake.read)
    made.refused, made._probed = None, False
    return made


def test_traffic_is_a_line_per_miss_and_the_memory_bound_share_is_stalls_of_cycles(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = iter(range(1000))
    monkeypatch.setattr("coresteer_agent.observe.process_counters.time.monotonic", lambda: float(next(seconds)))
    fake = FakeCounters(ALL)
    made = counters(machine, fake)
    assert made.read([task(10, threads=2)]) == {}
    assert made.read([task(10, threads=2)]) == {10: Figures(2 * 64e6, 0.25)}
    made.close()
    assert fake.still_open() == []


def test_counters_are_closed_when_a_process_leaves_and_opened_again_for_another_with_its_pid(machine: Path) -> None:
    fake = FakeCounters(ALL)
    made = counters(machine, fake)
    made.read([task(10, threads=2), task(20)])
    assert len(fake.still_open()) == 9
    made.read([task(20, started_ticks=6)])
    assert {fake.opened[fd][1] for fd in fake.still_open()} == {20}
    made.read([])
    assert fake.still_open() == []


def test_a_process_that_may_not_be_counted_is_tried_once_and_leaves_nothing_open(machine: Path) -> None:
    fake = FakeCounters(ALL)
    made = counters(machine, fake)
    for _ in range(3):
        assert made.read([task(13)]) == {}
    assert (fake.calls, fake.still_open()) == (5, [])


def test_the_busiest_processes_are_counted_where_not_all_fit(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coresteer_agent.observe.process_counters.MAX_COUNTERS", 6)
    fake = FakeCounters(ALL)
    made = counters(machine, fake)
    tasks = [task(10, threads=2, cpu_share=0.5), task(20, cpu_share=1.5)]
    made.read(tasks)
    assert {fake.opened[fd][1] for fd in fake.still_open()} == {20}
    made.read([task(10, threads=2, cpu_share=2.0), task(20, cpu_share=1.5)])
    assert {fake.opened[fd][1] for fd in fake.still_open()} == {10, 11}
    made.close()


REASONS = {
    errno.ENOENT: "performance counters do not count misses of the last-level cache and cycles in which a process",
    errno.EACCES: "it needs CAP_PERFMON (kernel.perf_event_paranoid is 3)",
    errno.EINVAL: "need Linux 5.13",
    errno.ENOSYS: "has no performance counters",
    errno.EBUSY: "refuses performance counters: Device or resource busy.",
}


@pytest.mark.parametrize("refuse", REASONS, ids=errno.errorcode.get)
def test_what_the_machine_does_not_count_is_found_out_once_with_the_reason(machine: Path, refuse: int) -> None:
    fake = FakeCounters({CLOCK: 1} if refuse == errno.ENOENT else {}, refuse)
    reader = BandwidthReader(machine, counters(machine, fake))
    tried = {fake.calls for _ in range(3) if (found := reader.read([task(20)], TOPOLOGY))}
    assert (found.bytes_per_s, found.memory_bound) == ({}, {})
    assert REASONS[refuse] in (found.unknown or "")
    assert len(tried) == 1


@pytest.mark.parametrize(
    ("absent", "figures"), [((0, 8), (True, False)), ((3, 0x10002), (False, True)), ((0, 0), (True, False))]
)
def test_what_the_machine_counts_is_shown_without_the_rest(
    machine: Path, absent: tuple[int, int], figures: tuple[bool, bool]
) -> None:
    fake = FakeCounters({event: rate for event, rate in ALL.items() if event != absent})
    made = counters(machine, fake)
    made.read([task(20)])
    found = made.read([task(20)])[20]
    assert (found.bytes_per_s is not None, found.memory_bound is not None) == figures
    made.close()


@pytest.mark.parametrize(
    ("was", "now", "expected"),
    [
        (Count(100, 50, 50), Count(300, 90, 90), 200.0),
        (Count(100, 50, 50), Count(300, 130, 70), 800.0),  # counted a quarter of the time
        (Count(100, 50, 50), Count(100, 90, 50), None),  # ran, and was never counted
        (Count(100, 50, 50), Count(100, 50, 50), 0.0),  # did not run
    ],
)
def test_events_are_extrapolated_from_the_time_in_which_they_were_counted(
    was: Count, now: Count, expected: float | None
) -> None:
    assert increment(was, now) == expected


@pytest.fixture
def task_clock() -> Iterator[int]:
    """The CPU time of this thread and of those that it starts."""
    try:
        fd = open_counter(TASK_CLOCK, 0)
    except OSError as error:
        pytest.skip(f"perf_event_open is refused here: {error}")
    yield fd
    os.close(fd)


def spin(seconds: float) -> None:
    begin_s = time.thread_time()
    while time.thread_time() - begin_s < seconds:
        pass


def test_the_kernel_counts_a_thread_and_the_threads_that_it_starts(task_clock: int) -> None:
    before = read_counter(task_clock)
    spin(0.02)
    alone = read_counter(task_clock)
    assert alone.events - before.events >= 20_000_000
    assert alone.enabled_ns >= alone.running_ns > before.running_ns
    thread = threading.Thread(target=spin, args=(0.05,))
    thread.start()
    thread.join()
    assert read_counter(task_clock).events - alone.events >= 50_000_000


def test_the_kernel_refuses_a_thread_that_does_not_exist(task_clock: int) -> None:
    with pytest.raises(ProcessLookupError):
        open_counter(CONTEXT_SWITCHES, 4_194_303)
