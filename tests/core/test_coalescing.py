from collections.abc import Callable
from itertools import pairwise
from math import pi, sin
from random import Random

import msgspec
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.core.nic_plant import (
    ADAPTIVE,
    DEFER,
    DRIVERS,
    FLUSH,
    FRAMES,
    USECS,
    Course,
    Plant,
    Traffic,
    run,
)

from coresteer_core.changes.plan import Action
from coresteer_core.node.inventory import Queue
from coresteer_core.node.load import Load
from coresteer_core.node.nic import (
    DriverRecord,
    DriverResponse,
    NicKnowledge,
    Timer,
    Verdict,
    max_added_wait_us,
    product_bound_us,
)
from coresteer_core.node.view import View
from coresteer_core.policies.base import Decision, Scope
from coresteer_core.policies.coalescing.candidates import Delay, find_mechanism, next_writes
from coresteer_core.policies.coalescing.policy import CoalescingMemory, decide
from coresteer_core.policies.coalescing.spec import Coalescing

BULK = Traffic(80_000.0)
ALONE = Traffic(0.0, frame_bytes=200.0, in_flight_rtt_us=60.0)
CQE = {"coalesce/cqe-mode-rx": "on"}
SPEC = Coalescing(max_added_us=250.0)
CALM = 30


def nic(timer: Timer = Timer.THROTTLE, traffic: Traffic = BULK, name: str | None = None, **params: str) -> Plant:
    """rx_usecs, rx_frames, adaptive: its values; igb's own where none are given."""
    keys = {"rx_usecs": USECS, "rx_frames": FRAMES, "adaptive": ADAPTIVE, "defer": DEFER, "flush": FLUSH}
    values = {keys[param]: value for param, value in params.items()} or {USECS: "3"}
    if timer is Timer.RESTARTING and name is None:
        values |= CQE
    return Plant(timer, name or DRIVERS[timer], values, traffic)


MLX5 = nic(Timer.RESTARTING, rx_usecs="8", rx_frames="16", adaptive="off")
VIRTIO = nic(Timer.ABSOLUTE, rx_usecs="0", rx_frames="1")


def first(view: View, spec: Coalescing = SPEC, scope: Scope | None = None) -> Decision:
    return decide(view, spec, scope or Scope(), CoalescingMemory())


def wanted(decision: Decision) -> dict[str, str]:
    return {proposal.key.removeprefix("netdev/eth0/"): proposal.value for proposal in decision.proposals}


def why(course: Course) -> str:
    """What was said of the netdev last."""
    (skipped,) = course.evaluations[-1].skipped
    return skipped.why


def calm(course: Course, rounds: int = CALM) -> bool:
    """Nothing was written in the last rounds."""
    return course.last_write() < len(course.evaluations) - rounds


def per_interrupt(plant: Plant) -> float:
    return plant.measured()[2].packets_per_interrupt


# Bulk load


@pytest.mark.parametrize(
    ("plant", "spec", "ends"),
    [
        (nic(), SPEC, {USECS: "200"}),
        (nic(), Coalescing(max_added_us=100.0), {USECS: "100"}),
        (nic(), Coalescing(max_added_us=117.5), {USECS: "117"}),
        (nic(), Coalescing(max_added_us=10_000.0, packets_per_interrupt=64.0), {USECS: "800"}),
        (nic(traffic=Traffic(80_000.0, queues=4)), Coalescing(max_added_us=1000.0), {USECS: "800"}),
        (VIRTIO, SPEC, {USECS: "200", FRAMES: "16"}),
        (nic(Timer.ABSOLUTE, rx_usecs="20"), SPEC, {USECS: "200"}),
        (MLX5, Coalescing(max_added_us=600.0), {USECS: "37", FRAMES: "16"}),
    ],
)
def test_bulk_load_gets_the_delay_that_the_target_needs(plant: Plant, spec: Coalescing, ends: dict[str, str]) -> None:
    course = run(plant, spec, 100)
    assert {param: course.end.params[param] for param in ends} == ends
    assert calm(course, 60)


@pytest.mark.parametrize("plant", [nic(), VIRTIO, nic(Timer.ABSOLUTE, rx_usecs="20")])
@pytest.mark.parametrize("packets_per_s", [20_000.0, 80_000.0, 400_000.0])
def test_bulk_load_halves_its_interrupts_where_the_bound_allows(plant: Plant, packets_per_s: float) -> None:
    plant = replace(plant, traffic=replace(BULK, packets_per_s=packets_per_s))
    aim = max(2.5 * per_interrupt(plant), 16.0)
    course = run(plant, Coalescing(max_added_us=2000.0, packets_per_interrupt=aim), 100)
    assert per_interrupt(course.end) >= 2 * per_interrupt(plant)
    assert calm(course)


def test_a_step_has_all_its_numbers() -> None:
    (proposal,) = first(nic().view()).proposals
    per_s = nic().view().load.irqs[0].per_s
    assert proposal.reason == (
        "It receives 80,000 packets/s of 1,500 bytes, 12.5 µs apart in its busiest queue (1.2 µs at line rate), "
        f"4.0 per interrupt ({per_s:,.0f} interrupts/s). rx-usecs 200 (a packet waits at most 200 µs; no packet count) "
        "is the shortest delay that should collect 16 per interrupt. igb writes rx-usecs into EITR, the least time "
        "between two interrupts of a vector."
    )
    assert proposal.subject == "eth0"
    (proposal,) = first(VIRTIO.view()).proposals
    assert "rx-usecs × rx-frames is 3,200 µs" in proposal.reason


def test_the_gap_at_line_rate_is_that_of_the_paper() -> None:
    jumbo = nic(traffic=Traffic(10_000.0, frame_bytes=9000.0, link_bits_per_s=10**9))
    assert (
        "9,000 bytes, 100 µs apart in its busiest queue (72 µs at line rate)" in first(jumbo.view()).proposals[0].reason
    )


def test_the_busiest_queue_decides() -> None:
    view = nic(traffic=Traffic(80_000.0, queues=2)).view()
    one, two = view.load.irqs
    uneven = replace(view, load=replace(view.load, irqs=[replace(one, per_s=30_000.0), replace(two, per_s=10_000.0)]))
    spec = Coalescing(max_added_us=1000.0)
    assert (wanted(first(view, spec)), wanted(first(uneven, spec))) == ({USECS: "400"}, {USECS: "300"})


def test_a_reached_target_is_not_changed() -> None:
    course = run(nic(rx_usecs="400"), Coalescing(max_added_us=500.0), 50)
    assert course.writes == []
    assert "The target of 16 is reached" in why(course)


def test_a_delay_over_the_bound_is_shortened() -> None:
    for plant in (nic(rx_usecs="400"), replace(MLX5, params={**MLX5.params, USECS: "64", FRAMES: "128"})):
        course = run(plant, Coalescing(max_added_us=120.0), 50)
        assert added_us(course.end) <= 120.0
        assert calm(course)


def test_much_more_traffic_shortens_the_delay_but_not_below_the_original() -> None:
    def rises(round_: int, plant: Plant) -> Plant:
        return replace(plant, traffic=replace(BULK, packets_per_s=400_000.0 if round_ >= 60 else 40_000.0))

    course = run(nic(rx_usecs="100"), Coalescing(max_added_us=1000.0), 200, change=rises)
    assert (course.values[:2], course.values[-1]) == (["100", "400"], "100")
    assert len(course.values) <= 4
    assert calm(course)


# Steps without gain or with harm


def test_request_response_traffic_gets_no_delay() -> None:
    course = run(nic(traffic=ALONE), SPEC, 50)
    assert course.writes == []
    assert why(course) == (
        "It receives 16,667 packets/s of 200 bytes, 60 µs apart in its busiest queue (0.16 µs at line rate), 1.0 per "
        "interrupt (16,667 interrupts/s). With a round-trip time of 60 µs, 1.0 packets are in flight and answered: "
        "waiting up to 250 µs would collect no more packets and only delay them: rx-usecs 3 (the driver igb chooses "
        "the delay) stays."
    )


def without_rtt(view: View) -> View:
    return replace(view, load=replace(view.load, rtt_p50_us=None))


@pytest.mark.parametrize("plant", [nic(traffic=ALONE), nic(rx_usecs="20", traffic=ALONE), replace(MLX5, traffic=ALONE)])
def test_without_a_round_trip_time_a_step_without_gain_is_tried_once(
    plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Plant.view
    monkeypatch.setattr(Plant, "view", lambda self, *noise: without_rtt(seen(self, *noise)))
    course = run(plant, SPEC, 300)
    assert course.end.params == plant.params
    assert len(course.values) <= 3
    assert calm(course, 200)
    if len(course.values) == 3:
        assert "a gain of less than 10 %" in why(course)


def test_a_step_that_slows_traffic_below_the_minimum_rate_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Plant.view
    monkeypatch.setattr(Plant, "view", lambda self, *noise: without_rtt(seen(self, *noise)))
    course = run(nic(traffic=ALONE), Coalescing(max_added_us=2000.0), 300)
    assert course.values == ["3", "1000", "3"]
    assert calm(course, 250)


def test_bulk_that_becomes_request_response_is_restored() -> None:
    def turns(round_: int, plant: Plant) -> Plant:
        return replace(plant, traffic=ALONE if round_ >= 40 else BULK)

    course = run(nic(), SPEC, 120, change=turns)
    assert course.values == ["3", "200", "3"]
    assert calm(course)


def test_original_values_over_the_bound_are_shortened_for_request_response_too() -> None:
    course = run(nic(rx_usecs="300", traffic=ALONE), Coalescing(max_added_us=50.0), 60)
    assert course.values == ["300", "50"]
    assert calm(course)


def test_a_step_that_drops_packets_is_reverted_and_a_shorter_one_is_tried() -> None:
    course = run(nic(traffic=replace(BULK, drops_from_us=150.0)), Coalescing(max_added_us=500.0), 200)
    assert course.values == ["3", "200", "3", "100"]
    assert course.writes[1][0] - course.writes[0][0] <= 3
    assert "10 % of the packets were dropped, over 0.1 %" in course.writes[1][1].reason
    assert calm(course, 150)


def test_drops_from_before_a_step_do_not_revert_it() -> None:
    course = run(nic(traffic=replace(BULK, drops_from_us=0.0)), SPEC, 100)
    assert course.values == ["3", "250"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda load: replace(load, rtt_p50_us=(load.rtt_p50_us or 0) + 300), "the round-trip time p50 rose from 1"),
        (
            lambda load: replace(
                load, netdevs=[replace(n, rx_bytes_per_s=n.rx_bytes_per_s * 0.7) for n in load.netdevs]
            ),
            "throughput fell from 120.0 to 84.0 MB/s",
        ),
    ],
)
def test_a_step_that_harms_latency_or_throughput_is_reverted(
    change: Callable[[Load], Load], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Plant.view

    def harmed(self: Plant, *noise: float) -> View:
        view = seen(self, *noise)
        return replace(view, load=change(view.load)) if self.usecs() > 60 else view

    monkeypatch.setattr(Plant, "view", harmed)
    course = run(nic(), SPEC, 200)
    assert course.usecs_over(60) <= 12
    assert words in course.writes[1][1].reason
    assert calm(course, 100)


def test_a_step_rolled_back_by_a_guardrail_is_not_repeated() -> None:
    def undone(round_: int, plant: Plant) -> Plant:
        return replace(plant, params={USECS: "3"}) if round_ == 4 else plant

    course = run(nic(), SPEC, 200, change=undone, min_revert_s=0.0, dwell_s=0.0)
    assert course.values == ["3", "200", "3"]
    assert "a guardrail or a person reverted the last step" in why(course)


def test_a_ceiling_is_forgotten_when_the_traffic_differs() -> None:
    def grows(round_: int, plant: Plant) -> Plant:
        return replace(plant, traffic=BULK if round_ >= 60 else replace(ALONE, in_flight_rtt_us=200.0))

    course = run(nic(), SPEC, 150, change=grows)
    assert course.values == ["3", "200"]


# Little traffic


def test_a_silent_netdev_is_restored() -> None:
    def falls(round_: int, plant: Plant) -> Plant:
        return replace(plant, traffic=replace(BULK, packets_per_s=900.0)) if round_ >= 40 else plant

    for plant in (nic(), MLX5, VIRTIO):
        course = run(plant, SPEC, 80, change=falls)
        assert course.end.params == plant.params
        assert len(course.writes) >= 2
        assert course.last_write() <= 45
        assert why(course) == "It receives 900 packets/s, under 1,000."


@pytest.mark.parametrize("plant", [nic(), nic(Timer.RESTARTING, name="bnx2", rx_usecs="18", rx_frames="6")])
def test_a_netdev_without_packets_is_silent_even_if_the_minimum_rate_is_0(plant: Plant) -> None:
    view = replace(plant, traffic=Traffic(0.0)).view()
    view = replace(view, load=replace(view.load, rtt_p50_us=None))
    (skipped,) = first(view, replace(SPEC, min_packets_per_s=0.0)).skipped
    assert skipped.why == "It receives 0 packets/s, under 1."


def test_a_short_silence_changes_nothing() -> None:
    def pauses(round_: int, plant: Plant) -> Plant:
        return replace(plant, traffic=replace(BULK, packets_per_s=10.0 if round_ % 10 < 2 and round_ else 80_000.0))

    assert run(nic(), SPEC, 100, change=pauses).values == ["3", "200"]


def test_a_netdev_that_leaves_the_scope_is_restored() -> None:
    plant = nic()
    memory = CoalescingMemory()
    for _ in range(3):
        decision = decide(plant.view(), SPEC, Scope(), memory)
        assert isinstance(decision.memory, CoalescingMemory)
        memory = decision.memory
        plant, _ = plant.after([Action(p.key, "", p.value, "") for p in decision.proposals])
    decision = decide(plant.view(), SPEC, Scope(netdevs=["eth9"]), memory)
    assert wanted(decision) == {USECS: "3"}
    assert decision.restores == frozenset({"netdev/eth0/coalesce/rx-usecs"})


# adaptive-rx

ADAPTIVE_ON = nic(name="ice", rx_usecs="50", adaptive="on")


@pytest.mark.parametrize(
    ("adaptive", "adaptive_us", "ends"),
    [
        ("leave", 20.0, {ADAPTIVE: "on", USECS: "50"}),
        ("compare", 20.0, {ADAPTIVE: "off", USECS: "150"}),
        ("compare", 145.0, {ADAPTIVE: "on", USECS: "50"}),
        ("compare", 400.0, {ADAPTIVE: "on", USECS: "50"}),
        ("disable", 20.0, {ADAPTIVE: "off", USECS: "150"}),
        ("disable", 400.0, {ADAPTIVE: "off", USECS: "150"}),
    ],
)
def test_adaptive_rx_is_skipped_compared_or_disabled(adaptive: str, adaptive_us: float, ends: dict[str, str]) -> None:
    spec = msgspec.convert({"type": "coalescing", "max_added_us": 150.0, "adaptive": adaptive}, Coalescing)
    course = run(replace(ADAPTIVE_ON, adaptive_us=adaptive_us), spec, 200)
    assert course.end.params == ends
    assert calm(course, 150)


def test_adaptive_rx_over_the_bound_stays_off() -> None:
    plant = replace(ADAPTIVE_ON, adaptive_us=150.0)
    course = run(plant, Coalescing(max_added_us=40.0, adaptive="compare"), 100)
    assert course.end.params[ADAPTIVE] == "off"


def test_adaptive_rx_goes_off_before_the_times_are_written_and_on_after_them() -> None:
    stands = {ADAPTIVE: "on", USECS: "8", FRAMES: "128"}
    off = next_writes(stands, {USECS: "30", FRAMES: "8", ADAPTIVE: "off"})
    assert off == [(ADAPTIVE, "off"), (FRAMES, "8")]
    assert next_writes({**stands, **dict(off)}, {USECS: "30", FRAMES: "8"}) == [(USECS, "30")]
    assert next_writes({ADAPTIVE: "off", USECS: "30", FRAMES: "8"}, stands) == [(USECS, "8")]
    assert next_writes({ADAPTIVE: "off", USECS: "8", FRAMES: "8"}, stands) == [(FRAMES, "128")]
    assert next_writes({**stands, ADAPTIVE: "off"}, stands) == [(ADAPTIVE, "on")]


def test_a_count_is_not_written_while_no_time_ends_the_delay() -> None:
    untimed, timed = {USECS: "0", FRAMES: "1"}, {USECS: "200", FRAMES: "16"}
    assert next_writes(untimed, timed) == [(USECS, "200")]
    assert next_writes(timed, untimed) == [(FRAMES, "1")]
    course = run(VIRTIO, SPEC, 60)
    assert [(action.key.rsplit("/", 1)[1], action.becomes) for _, action in course.writes] == [
        ("rx-usecs", "200"),
        ("rx-frames", "16"),
    ]


def test_a_step_of_three_settings_is_completed_over_rounds_and_evaluated_as_one() -> None:
    plant = nic(Timer.RESTARTING, rx_usecs="8", rx_frames="128", adaptive="on")
    course = run(plant, Coalescing(max_added_us=600.0, adaptive="disable"), 60, moves_per_step=1)
    assert [action.key.rsplit("/", 1)[1] for _, action in course.writes[:3]] == ["adaptive-rx", "rx-frames", "rx-usecs"]
    assert [round_ for round_, _ in course.writes[:3]] == [0, 0, 1]
    assert per_interrupt(course.end) > 2 * per_interrupt(plant)
    back = run(
        plant,
        Coalescing(max_added_us=600.0, adaptive="disable"),
        90,
        moves_per_step=1,
        change=lambda r, p: replace(p, traffic=Traffic(10.0)) if r >= 60 else p,
    )
    assert back.end.params == plant.params


def test_values_changed_by_adaptive_rx_are_no_external_change() -> None:
    def drives(round_: int, plant: Plant) -> Plant:
        if plant.params[ADAPTIVE] == "off":
            return plant
        return replace(plant, params={**plant.params, USECS: str(20 + round_ % 5)})

    course = run(ADAPTIVE_ON, Coalescing(max_added_us=150.0, adaptive="compare"), 100, change=drives)
    assert course.end.params == {ADAPTIVE: "off", USECS: "150"}


# Queues with values of their own


@pytest.mark.parametrize(
    ("plant", "own", "said"),
    [
        (nic(), {USECS: "8"}, "rx-usecs 8 instead of"),
        (VIRTIO, {FRAMES: "3"}, "rx-frames 3 instead of"),
        (nic(), {}, None),
        (nic(), {"coalesce/tx-usecs": "8"}, None),
        (replace(VIRTIO, params=VIRTIO.params | {ADAPTIVE: "on"}), {USECS: "8", ADAPTIVE: "on"}, None),
    ],
)
def test_a_device_with_a_queue_that_has_its_own_value_is_left_alone(
    plant: Plant, own: dict[str, str], said: str | None
) -> None:
    def with_own(view: View) -> View:
        (netdev,) = view.inventory.netdevs
        queues = [*netdev.queues, Queue("rx-3", params=own)]
        return replace(view, inventory=replace(view.inventory, netdevs=[replace(netdev, queues=queues)]))

    spec = Coalescing(adaptive="disable")
    found, plain = first(with_own(plant.view()), spec), first(plant.view(), spec)
    assert wanted(found) == ({} if said else wanted(plain))
    assert plain.proposals
    if said:
        (skipped,) = found.skipped
        assert skipped.why.startswith(f"Its queue rx-3 has {said}")
        written = replace(plant, params=plant.params | wanted(plain))
        assert isinstance(plain.memory, CoalescingMemory)
        held = decide(with_own(written.view()), spec, Scope(), plain.memory)
        assert "Its queue" not in str(held.skipped)


# Drivers that do not do as they are asked


def igb(name: str, value: str) -> str:
    """As the kernel's igb_set_coalesce()."""
    number = int(value)
    if number == 2 or 3 < number < 10 or number > 10_000:
        raise ValueError("Invalid argument")
    return value


def in_eights(name: str, value: str) -> str:
    return str(int(value) // 8 * 8) if value.isdecimal() else value


def refuses(name: str, value: str) -> str:
    raise ValueError("Operation not supported")


def test_a_refused_value_is_not_retried_and_a_rounded_one_is_used() -> None:
    course = run(nic(name="foo_throttle", rx_usecs="16"), SPEC, 10)
    assert course.writes == []
    course = run(replace(nic(), driver=in_eights), Coalescing(max_added_us=150.0), 60)
    assert course.values == ["3", "144"]
    (record,) = course.end.learned.drivers
    assert [(tried.requested, tried.verdict) for tried in record.responses] == [
        ("150", Verdict.ROUNDED),
        ("144", Verdict.ACCEPTED),
    ]


def test_the_smallest_accepted_value_of_a_driver_is_learned() -> None:
    course = run(replace(nic(traffic=Traffic(3_000_000.0)), driver=igb), SPEC, 60)
    assert course.values == ["3"] or int(course.values[-1]) >= 10
    short = Coalescing(max_added_us=8.0)
    course = run(replace(nic(rx_usecs="0"), driver=igb), short, 60)
    assert course.values == ["0"]
    assert why(course).endswith("igb accepts no rx-usecs from 1 to 8 µs.")
    longer = run(replace(course.end, traffic=Traffic(80_000.0)), Coalescing(max_added_us=40.0), 60)
    assert longer.values == ["0", "40"]


def test_a_driver_that_accepts_nothing_is_skipped_after_two_values() -> None:
    for driver, words in ((refuses, "refused (Operation not supported)."), (lambda n, v: VIRTIO.params[n], "ignored.")):
        course = run(replace(VIRTIO, driver=driver), SPEC, 60)
        assert course.writes == []
        (record,) = course.end.learned.drivers
        assert len([tried for tried in record.responses if tried.name == USECS]) == 2
        assert why(course).startswith("Its driver virtio_net does not support rx-usecs:")
        assert why(course).endswith(words)


def test_values_without_effect_are_given_up() -> None:
    def lies(tried: str) -> DriverResponse:
        return DriverResponse(USECS, tried, Verdict.NO_EFFECT, tried, "20,000 interrupts/s before, 20,000/s after", 0)

    plant = replace(nic(), learned=NicKnowledge([DriverRecord("igb", "6.12", [lies("200"), lies("250")])]))
    (skipped,) = first(plant.view()).skipped
    assert skipped.why == (
        "Its driver igb does not support rx-usecs: 250 was no effect (20,000 interrupts/s before, 20,000/s after)."
    )


def test_a_restarting_timer_without_a_count_has_no_bound() -> None:
    course = run(nic(name="foo", rx_usecs="10"), SPEC, 60)
    assert course.writes == []
    assert "nobody" in why(course) or "from which foo counts rx-usecs is unknown" in why(course)


@pytest.mark.parametrize(
    ("plant", "said"),
    [
        (replace(nic(), params={}), "Its driver igb has no rx-usecs."),
        (nic(traffic=Traffic(500.0)), "It receives 500 packets/s, under 1,000."),
        (ADAPTIVE_ON, "Its adaptive-rx is on: the driver chooses the delay, and this policy skips such devices."),
    ],
)
def test_a_skipped_netdev_has_its_reason(plant: Plant, said: str) -> None:
    decision = first(plant.view())
    assert decision.proposals == []
    assert [(skipped.subject, skipped.why) for skipped in decision.skipped] == [("eth0", said)]


def test_unknown_traffic_is_a_reason() -> None:
    view = nic().view()
    unknown = replace(view, load=replace(view.load, netdevs=[]))
    assert first(unknown).skipped[0].why == "Its traffic is not known."
    no_irqs = replace(view, inventory=replace(view.inventory, irqs=[]))
    assert first(no_irqs).skipped[0].why == "Its interrupt rate is not known."


@pytest.mark.parametrize(
    ("scope", "proposals"),
    [
        (Scope(netdevs=["eth*"]), 1),
        (Scope(netdevs=["ens*"]), 0),
        (Scope(drivers=["igb"]), 1),
        (Scope(drivers=["mlx*"]), 0),
    ],
)
def test_only_netdevs_in_scope_are_examined(scope: Scope, proposals: int) -> None:
    assert len(first(nic().view(), SPEC, scope).proposals) == proposals


# The kernel waits instead

SOFT = nic(name="vmxnet3", defer="0", flush="0")


def test_without_a_nic_timer_the_kernel_coalesces_if_enabled() -> None:
    assert run(SOFT, SPEC, 20).writes == []
    course = run(SOFT, Coalescing(max_added_us=250.0, software=True), 60)
    assert course.end.params == {DEFER: "2", FLUSH: "200000"}
    assert [action.key for _, action in course.writes] == [f"netdev/eth0/{DEFER}", f"netdev/eth0/{FLUSH}"]
    assert "counts gro_flush_timeout from its last poll" in course.writes[0][1].reason
    assert calm(course)


def test_the_kernel_coalesces_where_the_driver_does_not_support_rx_usecs() -> None:
    def lies(name: str, value: str) -> str:
        return "0" if name == USECS else VIRTIO.params.get(name, value)

    plant = replace(VIRTIO, params={**VIRTIO.params, DEFER: "0", FLUSH: "0"}, driver=lies)
    course = run(plant, Coalescing(max_added_us=250.0, software=True), 60)
    assert course.end.params == {**VIRTIO.params, DEFER: "2", FLUSH: "200000"}


def test_kernel_coalescing_is_restored_too() -> None:
    course = run(
        SOFT,
        Coalescing(max_added_us=250.0, software=True),
        90,
        change=lambda r, p: replace(p, traffic=Traffic(10.0)) if r >= 60 else p,
    )
    assert course.end.params == SOFT.params


# Properties


def added_us(plant: Plant) -> float:
    """How long a packet may wait where the timer is what it really is, and the authors' product where it restarts."""
    usecs = plant.usecs()
    frames = int(plant.params[FRAMES]) if FRAMES in plant.params else None
    bound = max_added_wait_us(plant.timer, usecs, frames)
    return max(bound, product_bound_us(usecs, frames) or 0.0) if plant.timer is Timer.RESTARTING and usecs else bound


DRIVEN: dict[str, Callable[[str, str], str]] = {
    "takes": lambda name, value: value,
    "igb": lambda name, value: igb(name, value) if name == USECS else value,
    "eights": in_eights,
    "refuses": refuses,
    "up": lambda name, value: str(-(-int(value) // 50) * 50) if name == USECS else value,
    "ignores": lambda name, value: "0" if name == USECS else value,
}


def stands(driver: Callable[[str, str], str], value: str) -> bool:
    """Whether a driver may have a value of its own: one that can be put back."""
    try:
        return driver(USECS, value) == value
    except ValueError:
        return driver is refuses


@st.composite
def plants(draw: st.DrawFn) -> Plant:
    """NICs of each timer, known or not, in every state, with drivers of each kind, under any traffic."""
    timer = draw(st.sampled_from(Timer))
    known = draw(st.booleans())
    driver = DRIVEN[draw(st.sampled_from(sorted(DRIVEN)))]
    own = [value for value in ("0", "1", "3", "8", "20", "50", "200", "1000") if stands(driver, value)]
    params = {USECS: draw(st.sampled_from(own))}
    if timer is Timer.RESTARTING or draw(st.booleans()):
        params[FRAMES] = str(draw(st.sampled_from([0, 16, 128] if driver is in_eights else [0, 1, 5, 16, 42, 128])))
    if draw(st.booleans()):
        params[ADAPTIVE] = draw(st.sampled_from(["on", "off"]))
    if draw(st.booleans()):
        params |= {DEFER: "0", FLUSH: "0"}
    name = DRIVERS[timer] if known else "foo"
    if known and timer is Timer.RESTARTING:
        params |= CQE
    traffic = Traffic(
        packets_per_s=draw(st.sampled_from([100.0, 2_000.0, 30_000.0, 200_000.0, 800_000.0])),
        frame_bytes=draw(st.sampled_from([64.0, 1500.0, 9000.0])),
        queues=draw(st.integers(1, 4)),
        in_flight_rtt_us=draw(st.sampled_from([None, None, 30.0, 200.0])),
        drops_from_us=draw(st.sampled_from([None, None, 40.0, 150.0])),
    )
    return Plant(timer, name, params, traffic, driver, adaptive_us=draw(st.sampled_from([10.0, 60.0, 300.0])))


SPECS = st.builds(
    Coalescing,
    max_added_us=st.sampled_from([1.0, 20.0, 100.0, 333.3, 2000.0, 10_000.0]),
    packets_per_interrupt=st.sampled_from([2.0, 6.5, 16.0, 256.0]),
    min_packets_per_s=st.sampled_from([0.0, 1000.0]),
    adaptive=st.sampled_from(["leave", "compare", "disable"]),
    software=st.booleans(),
)


@settings(max_examples=200, deadline=None)
@example(
    Plant(Timer.ABSOLUTE, "virtio_net", {USECS: "0"}, Traffic(2e5, 64.0, queues=2, drops_from_us=40.0), in_eights),
    Coalescing(max_added_us=100.0, packets_per_interrupt=16.0, min_packets_per_s=0.0),
    1,
)  # a shorter step that is kept must not make it try again the step that dropped packets
@given(plants(), SPECS, st.sampled_from([1, 2, 64]))
def test_the_bound_holds_and_a_steady_load_settles(plant: Plant, spec: Coalescing, moves: int) -> None:
    assume(moves > 1 or spec.adaptive != "disable" or plant.params.get(ADAPTIVE) != "on")  # see the next test
    course = run(plant, spec, 240, moves_per_step=moves)
    own = added_us(replace(plant, params={**plant.params, ADAPTIVE: "off"}))
    for before, after in pairwise(course.plants):
        if after.params != before.params and after.params.get(ADAPTIVE) != "on":
            assert added_us(after) <= max(spec.max_added_us, added_us(before), own) + 1e-9
    asked = [proposal for evaluation in course.evaluations for proposal in evaluation.actions]
    for action in asked:
        if action.key.endswith("rx-usecs"):
            assert int(action.becomes) <= max(spec.max_added_us, int(plant.params[USECS]))
        if action.key.endswith(FLUSH):
            assert int(action.becomes) <= 1000 * spec.max_added_us
    assert course.last_write() < 140
    assert asked == [] or max(n for n, c in enumerate(course.evaluations) if c.actions) < 200


def test_a_device_slowed_by_turning_adaptive_rx_off_alone_settles() -> None:
    params = {USECS: "1000", FRAMES: "0", ADAPTIVE: "on"}
    plant = Plant(Timer.RESTARTING, "foo", params, Traffic(100.0, 64.0, in_flight_rtt_us=30.0), adaptive_us=10.0)
    spec = Coalescing(max_added_us=20.0, packets_per_interrupt=2.0, min_packets_per_s=1000.0, adaptive="disable")
    assert run(plant, spec, 240, moves_per_step=1).last_write() < 140


@settings(max_examples=100, deadline=None)
@given(plants(), SPECS)
def test_decisions_are_deterministic_and_end_better_or_unchanged(plant: Plant, spec: Coalescing) -> None:
    assert first(plant.view(), spec) == first(plant.view(), spec)
    course = run(plant, spec, 150)
    if (
        plant.name != "foo"
        and calm(course)
        and added_us(plant) <= spec.max_added_us
        and plant.params.get(ADAPTIVE) != "on"
    ):
        assert per_interrupt(course.end) >= 0.99 * per_interrupt(plant)


@settings(max_examples=100, deadline=None)
@given(plants(), SPECS)
def test_when_the_traffic_ends_all_values_are_restored(plant: Plant, spec: Coalescing) -> None:
    silence = replace(plant.traffic, packets_per_s=0.0, in_flight_rtt_us=None)
    spec = replace(spec, min_packets_per_s=1000.0)
    course = run(plant, spec, 130, change=lambda r, p: replace(p, traffic=silence) if r >= 100 else p)
    assert course.end.params == plant.params or course.end.params.get(ADAPTIVE) == "on"
    assert course.evaluations[-1].actions == []


@settings(max_examples=15, deadline=None)
@given(plants(), SPECS, st.integers(0, 60))
def test_after_a_driver_reset_a_steady_load_settles_again(plant: Plant, spec: Coalescing, at: int) -> None:
    def reset(round_: int, now: Plant) -> Plant:
        return replace(now, params=plant.params) if round_ == at else now

    assert run(plant, spec, at + 240, change=reset).last_write() < at + 140


@settings(max_examples=200, deadline=None)
@given(plants(), SPECS, st.floats(1.0, 1e5), st.floats(0.1, 100.0))
def test_a_delay_is_within_the_bound_for_any_gap(plant: Plant, spec: Coalescing, gap_us: float, wire_us: float) -> None:
    mechanism = find_mechanism(plant.view().inventory.netdevs[0], plant.learned, software=True)
    if isinstance(mechanism, str):
        return
    for found in (
        mechanism.initial_delay(spec.packets_per_interrupt, gap_us, wire_us, spec.max_added_us),
        mechanism.shortened_to(mechanism.current_delay, spec.max_added_us),
    ):
        if isinstance(found, Delay):
            assert mechanism.max_wait_us(found) <= spec.max_added_us
            assert found.usecs >= 1


# A day

ROUNDS_A_DAY = 17_280


@pytest.mark.parametrize("plant", [nic(), MLX5], ids=["throttle", "restarting"])
def test_a_day_of_fluctuating_traffic_neither_oscillates_nor_grows(plant: Plant) -> None:
    random = Random(4)  # noqa: S311, a trace, not a secret

    def noise(round_: int) -> tuple[float, float]:
        level = 0.75 + 0.25 * sin(round_ / 720 * pi / 12)
        leap = 0.3 if random.random() < 0.005 else 1.0
        scale = level * random.choice([0.9, 0.95, 1.0, 1.05, 1.1]) * leap
        return round(scale, 2), random.uniform(0.95, 1.05)

    course = run(plant, SPEC, ROUNDS_A_DAY, scale=noise)
    rounds = [round_ for round_, _ in course.writes]
    assert rounds, "nothing was done at all"
    assert len([round_ for round_ in rounds if round_ >= 60]) <= 4
    assert [round_ for round_ in rounds if round_ >= ROUNDS_A_DAY // 2] == []
    assert len(msgspec.json.encode(course.memory)) < 4_000
