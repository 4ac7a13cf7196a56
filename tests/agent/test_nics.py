"""What an agent learns of its NICs, kept over restarts and bounded."""

import os
import time
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.support.rates import make_rates
from tests.support.views import make_netdev

from coresteer_agent.runtime.nic_learning import REPORT_INTERVAL_S, NicLearner, NicLearningFile
from coresteer_core.node.inventory import Inventory, Queue
from coresteer_core.node.nic import (
    MAX_DRIVERS,
    MAX_MESSAGE,
    MAX_NETDEVS,
    MAX_POINTS,
    MAX_RESPONSES,
    RETRY_AFTER_S,
    CoalescingPoint,
    DriverRecord,
    DriverResponse,
    NicKnowledge,
    Verdict,
)
from coresteer_core.node.rates import NetdevCounts, Rates, TcpLatency
from coresteer_core.policies.coalescing.effective import WriteAttempt
from coresteer_core.settings import Channels, NetdevParam

TAKEN = DriverResponse("coalesce/rx-usecs", "54", Verdict.ACCEPTED, "54", "", 1)
STEP_S = 5.0
BEGIN_MS = time.time_ns() // 1_000_000


def machine(rx_usecs: int, *, name: str = "eth0", driver: str = "igb", **params: str) -> Inventory:
    queues = [Queue("rx-0", 40), Queue("tx-0", 40)]
    values = {"coalesce/rx-usecs": str(rx_usecs), **params}
    return Inventory([make_netdev(name, driver, queues=queues, params=values)], [])


class World:
    """A book, the machine that it watches and a clock. interrupts, packets: in each second."""

    def __init__(self, learned: NicKnowledge | None = None, *, kernel: str = "6.12") -> None:
        self.kept: list[NicKnowledge] = []
        self.book = NicLearner(kernel, self.kept.append, learned=learned)
        self.now_s = 0.0
        self.seq = 0

    def step(
        self, inventory: Inventory, *, interrupts: int = 1900, packets: int = 20_000, netdevs: bool = True
    ) -> None:
        rates = [self._rates(inventory.netdevs[0].name, interrupts, packets, netdevs=netdevs) for _ in range(5)]
        self.now_s += STEP_S
        self.book.step(rates, inventory, self.now_s)

    def _rates(self, name: str, interrupts: int, packets: int, *, netdevs: bool) -> Rates:
        self.seq += 1
        counts = [NetdevCounts(name, 100 * packets, packets, packets, packets // 2, 2, 0, 0, 0)] if netdevs else None
        return make_rates(
            seq=self.seq, time_ms=BEGIN_MS + 1000 * self.seq, cells=[(40, 0, interrupts)], netdevs=counts,
            tcp=TcpLatency(4, 200, 300, 400),
        )  # fmt: skip

    def responses(self) -> list[tuple[str, str, Verdict]]:
        return [(t.name, t.requested, t.verdict) for record in self.book.learned.drivers for t in record.responses]


def test_a_point_adds_up_what_was_counted_while_its_values_stood() -> None:
    world = World()
    for _ in range(3):  # the first only shows what stands
        world.step(machine(500))
    (point,) = world.book.learned.points
    assert point == CoalescingPoint(
        "eth0",
        500,
        None,
        False,
        10.0,
        200_000,
        20_000_000,
        19_000,
        20,
        2000.0,
        10.0,
        last_ms=BEGIN_MS + 1000 * world.seq,
    )


def test_a_value_that_no_longer_stands_adds_to_another_point_and_the_time_between_to_none() -> None:
    world = World()
    for inventory in [machine(500)] * 3 + [machine(54)] * 2:
        world.step(inventory)
    assert {point.rx_usecs: point.seconds for point in world.book.learned.points} == {500: 10.0, 54: 5.0}


def test_what_was_written_to_and_put_back_within_a_step_adds_to_no_point() -> None:
    world = World()
    for _ in range(2):
        world.step(machine(500))
    world.book.record_attempt(WriteAttempt(NetdevParam("eth0", "coalesce/rx-usecs"), "54", "500", "54"))
    world.step(machine(500))
    assert [point.seconds for point in world.book.learned.points] == [5.0]


@pytest.mark.parametrize(("packets", "netdevs"), [(90, True), (20_000, False)])
def test_a_netdev_that_has_no_work_or_is_not_counted_adds_to_no_point(packets: int, *, netdevs: bool) -> None:
    world = World()
    for _ in range(3):
        world.step(machine(500), packets=packets, netdevs=netdevs)
    assert world.book.learned.points == []


def test_intervals_that_were_counted_before_are_not_counted_again() -> None:
    world = World()
    inventory = machine(500)
    world.step(inventory)
    rates = [world._rates("eth0", 1900, 20_000, netdevs=True) for _ in range(5)]
    for _ in range(3):
        world.book.step(rates, inventory, world.now_s)
    assert [point.seconds for point in world.book.learned.points] == [5.0]


def test_a_long_lived_point_follows_the_traffic() -> None:
    old = CoalescingPoint("eth0", 500, None, False, 3599.0, 100, 100, 100, 0)
    world = World(NicKnowledge([], [old]))
    for _ in range(2):
        world.step(machine(500))
    (point,) = world.book.learned.points
    assert (point.seconds, point.rx_packets) == (3604 / 2, 100_100 // 2)


LIES: dict[str, tuple[Inventory, int, Inventory, int, list[tuple[str, str, Verdict]]]] = {
    "a longer wait that holds": (machine(20), 15_000, machine(500), 1990, []),
    "a longer wait that is not kept": (
        machine(20),
        15_000,
        machine(500),
        15_000,
        [("coalesce/rx-usecs", "500", Verdict.NO_EFFECT)],
    ),
    "a shorter wait that shows": (machine(500), 1990, machine(20), 12_000, []),
    "a shorter wait that changes nothing": (
        machine(500),
        1990,
        machine(20),
        1990,
        [("coalesce/rx-usecs", "20", Verdict.NO_EFFECT)],
    ),
    "adaptive off, and the wait is not kept": (
        machine(500, **{"coalesce/adaptive-rx": "on"}),
        15_000,
        machine(500, **{"coalesce/adaptive-rx": "off"}),
        15_000,
        [("coalesce/adaptive-rx", "off", Verdict.NO_EFFECT)],
    ),
    "no change": (machine(500), 15_000, machine(500), 15_000, []),
    "a change of something else": (machine(500), 15_000, machine(500, **{"ring/rx": "512"}), 15_000, []),
}


@pytest.mark.parametrize("case", LIES)
def test_a_value_that_reads_back_and_does_nothing_is_found_out(case: str) -> None:
    before, interrupts, after, interrupts_after, verdicts = LIES[case]
    world = World()
    for _ in range(3):
        world.step(before, interrupts=interrupts)
    for _ in range(2):
        world.step(after, interrupts=interrupts_after)
    assert world.responses() == [], "one window is not enough"
    world.step(after, interrupts=interrupts_after)
    assert world.responses() == verdicts


def test_a_change_is_judged_once_there_is_traffic() -> None:
    world = World()
    world.step(machine(20), interrupts=15_000)
    for _ in range(5):
        world.step(machine(500), interrupts=900, packets=900)
    assert world.responses() == []
    for _ in range(2):
        world.step(machine(500), interrupts=15_000)
    assert world.responses() == [("coalesce/rx-usecs", "500", Verdict.NO_EFFECT)]


def test_the_last_word_on_a_value_counts() -> None:
    world = World()
    world.step(machine(3))
    setting = NetdevParam("eth0", "coalesce/rx-usecs")
    for stood, words in (("504", ""), (None, "The kernel said: Invalid argument."), ("500", "")):
        world.book.record_attempt(WriteAttempt(setting, "500", "3", stood, words))
    world.book.record_attempt(WriteAttempt(setting, "9", "3", None, "x" * 2 * MAX_MESSAGE))
    assert world.responses() == [
        ("coalesce/rx-usecs", "500", Verdict.ACCEPTED),
        ("coalesce/rx-usecs", "9", Verdict.REFUSED),
    ]
    (record,) = world.book.learned.drivers
    assert (record.driver, record.kernel, len(record.responses[1].message)) == ("igb", "6.12", MAX_MESSAGE)


@pytest.mark.parametrize(
    ("verdict", "age_s", "stays"),
    [
        (Verdict.REFUSED, RETRY_AFTER_S - 60, True),
        (Verdict.REFUSED, RETRY_AFTER_S + 60, False),
        (Verdict.ROUNDED, RETRY_AFTER_S + 60, False),
        (Verdict.NO_EFFECT, RETRY_AFTER_S + 60, False),
        (Verdict.ACCEPTED, RETRY_AFTER_S + 60, True),
        (Verdict.REFUSED, -RETRY_AFTER_S - 60, False),
    ],
)
def test_a_driver_may_be_asked_again_after_a_day_for_what_it_did_not_take(
    verdict: Verdict, age_s: int, stays: bool
) -> None:
    tried = replace(TAKEN, verdict=verdict, time_ms=time.time_ns() // 1_000_000 - age_s * 1000)
    world = World(NicKnowledge([DriverRecord("igb", "6.12", [tried])]))
    world.step(machine(54))
    assert world.book.learned.responses("igb", tried.name) == ([tried] if stays else [])
    assert all(record.responses == ([tried] if stays else []) for kept in world.kept for record in kept.drivers)


def test_writes_that_are_not_of_a_nics_parameters_teach_nothing() -> None:
    world = World()
    world.step(machine(3))
    world.book.record_attempt(WriteAttempt(Channels("eth0"), "combined 4", "combined 2", None, "no"))
    world.book.record_attempt(WriteAttempt(NetdevParam("eth7", "coalesce/rx-usecs"), "5", "3", None, "no"))
    assert world.book.learned == NicKnowledge()


def test_all_that_is_learned_is_bounded() -> None:
    world = World()
    for driver in range(MAX_DRIVERS + 3):
        world.step(machine(3, driver=f"d{driver}"))
        for value in range(MAX_RESPONSES + 3):
            setting = NetdevParam("eth0", "coalesce/rx-usecs")
            world.book.record_attempt(WriteAttempt(setting, str(value), "3", str(value)))
    assert [record.driver for record in world.book.learned.drivers] == [f"d{n}" for n in range(3, MAX_DRIVERS + 3)]
    assert {len(record.responses) for record in world.book.learned.drivers} == {MAX_RESPONSES}
    for name in range(MAX_NETDEVS + 3):
        for rx_usecs in range(10, 13):
            for _ in range(2):
                world.step(machine(rx_usecs, name=f"eth{name}"))
    for rx_usecs in range(MAX_POINTS + 3):
        for _ in range(2):
            world.step(machine(100 + rx_usecs, name="last"))
    points = world.book.learned.points
    assert len({point.netdev for point in points}) == MAX_NETDEVS
    assert [p.rx_usecs for p in points if p.netdev == "last"] == list(range(103, 103 + MAX_POINTS))


def test_it_is_reported_at_most_every_ten_seconds_and_only_what_has_grown() -> None:
    world = World()
    reported: list[float] = []
    for _ in range(120):
        before = len(world.kept)
        world.step(machine(500))
        reported += [world.now_s] * (len(world.kept) - before)
    apart = [b - a for a, b in pairwise(reported)]
    assert min(apart) >= REPORT_INTERVAL_S
    assert apart[-1] > 30 and len(reported) < 30, "a steady state is reported ever less often"
    assert world.kept[-1].points[0].seconds > 0.8 * world.book.learned.points[0].seconds


def test_what_another_kernel_did_is_forgotten() -> None:
    learned = NicKnowledge([DriverRecord("igb", "6.1", [TAKEN]), DriverRecord("ena", "6.12", [TAKEN])], [])
    assert [record.driver for record in World(learned).book.learned.drivers] == ["ena"]


@pytest.fixture
def file(tmp_path: Path) -> NicLearningFile:
    return NicLearningFile(tmp_path / "agent/nics.json")


def test_what_was_learned_outlives_the_agent(file: NicLearningFile) -> None:
    assert file.read() == NicKnowledge()
    world = World()
    for _ in range(4):
        world.step(machine(500))
    world.book.record_attempt(WriteAttempt(NetdevParam("eth0", "coalesce/rx-usecs"), "500", "3", "504"))
    world.book.save()
    file.write(world.kept[-1])
    assert World(file.read()).book.learned == world.book.learned != NicKnowledge()


def test_a_file_that_makes_no_sense_is_done_without(
    file: NicLearningFile, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file.write(NicKnowledge())
    (tmp_path / "agent/nics.json").write_bytes(b'{"drivers": [{}')
    assert file.read() == NicKnowledge()
    assert "cannot be read" in caplog.text


def test_a_kill_at_any_moment_leaves_the_old_file_or_the_new_one(
    file: NicLearningFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = NicKnowledge([DriverRecord("igb", "6.1", [TAKEN])], [])
    file.write(old)
    new = NicKnowledge([replace(old.drivers[0], driver="ena")], [])

    class KilledError(BaseException):
        pass

    def killed(*_: object) -> None:
        raise KilledError

    for call in ("fsync", "replace"):
        with monkeypatch.context() as patched, pytest.raises(KilledError):
            patched.setattr(os, call, killed)
            file.write(new)
        assert file.read() == old
    file.write(new)
    assert file.read() == new
