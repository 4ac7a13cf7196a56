"""Who goes in next: cases, then properties over whole runs of a gate against a naive one."""

from collections.abc import Callable
from itertools import count
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct

from coresteer_core.policies.service_class.attainment import WINDOW_BUCKETS, ClassTarget
from coresteer_core.policies.service_class.gate import MAX_ADMISSIONS_OF_OTHERS, Gate

TARGETS = [ClassTarget("gold", 90.0), ClassTarget("silver", 80.0), ClassTarget("tin", 50.0)]


def gate(slots: int = 1, targets: list[ClassTarget] = TARGETS, window_s: float = 10.0) -> Gate:
    return Gate(targets, slots=slots, window_s=window_s)


def name_of(number: int) -> Callable[[int], str | None]:
    return lambda _worker: TARGETS[number].name


def test_a_request_is_admitted_at_once_while_a_slot_is_free() -> None:
    door = gate(slots=2)
    assert door.enter(1, "tin", 0.0) == [1]
    assert door.enter(2, "gold", 0.0) == [2]
    assert door.enter(3, "gold", 0.0) == []
    assert (door.class_of(1), door.class_of(3)) == ("tin", None)


def test_an_unknown_class_is_a_key_error_and_is_not_counted() -> None:
    door = gate()
    with pytest.raises(KeyError):
        door.enter(1, "lead", 0.0)
    assert door.enter(1, "gold", 0.0) == [1]


@pytest.mark.parametrize("slots", [1, 2])
def test_a_worker_that_enters_twice_is_refused_and_keeps_its_state(slots: int) -> None:
    door = gate(slots=1)
    door.enter(1, "gold", 0.0)
    door.enter(2, "gold", 0.0)
    with pytest.raises(ValueError, match=f"Worker {slots} already has a"):
        door.enter(slots, "tin", 0.0)
    assert door.leave(1, 1.0, ok=True) == [2]


def test_the_lowest_f_is_served_first() -> None:
    door = gate()
    door.enter(1, "gold", 0.0)
    door.leave(1, 0.1, ok=True)  # gold: S 1, N 1
    door.enter(9, "silver", 0.2)
    door.enter(2, "gold", 0.3)
    door.enter(3, "tin", 0.3)
    assert door.leave(9, 0.4, ok=True) == [3], "gold is at 1 / (2 × 0.9), tin at 0"
    assert door.leave(3, 0.5, ok=True) == [2]


def test_for_equal_f_the_higher_target_is_served_first() -> None:
    door = gate(targets=TARGETS[::-1])
    door.enter(9, "silver", 0.0)
    for worker, name in ((1, "tin"), (2, "silver"), (3, "gold")):
        door.enter(worker, name, 0.1)
    assert door.leave(9, 0.2, ok=False) == [3]


def test_for_equal_f_and_targets_the_order_of_the_classes_decides() -> None:
    door = gate(targets=[ClassTarget("b", 50.0), ClassTarget("a", 50.0), ClassTarget("c", 50.0)])
    door.enter(9, "c", 0.0)
    for worker, name in ((1, "a"), (2, "b")):
        door.enter(worker, name, 0.1)
    assert door.leave(9, 0.2, ok=False) == [2]


def test_accounts_take_turns_within_a_class() -> None:
    door = gate()
    door.enter(9, "gold", 0.0, account=1000)
    for worker, account in enumerate([2000, 2000, 2000, 3000, 3000, 4000]):
        door.enter(worker, "gold", 0.1, account)
    order, last = [], 9
    while admitted := door.leave(last, 0.2, ok=True):
        (last,) = admitted
        order.append(last)
    assert order == [0, 3, 5, 1, 4, 2]


def test_a_worker_that_dies_frees_its_slot_and_counts_as_failed() -> None:
    door = gate()
    door.enter(1, "gold", 0.0)
    door.enter(2, "gold", 0.0)
    door.enter(3, "tin", 0.0)
    assert door.leave(2, 0.1, ok=False) == []
    assert door.leave(1, 0.2, ok=False) == [3]
    assert door.leave(2, 0.3, ok=False) == door.leave(77, 0.3, ok=True) == []
    gold, _, tin = door.figures(0.4)
    assert (gold.requests, gold.satisfied, gold.p50_us, gold.waiting, gold.active) == (2, 0, None, 0, 0)
    assert (tin.requests, tin.active, tin.longest_wait_us) == (1, 1, 200_000)


def test_a_response_time_counts_from_the_arrival() -> None:
    door = gate(targets=[ClassTarget("gold", 90.0, deadline_us=500_000)])
    door.enter(1, "gold", 0.0)
    door.enter(2, "gold", 0.0)
    door.leave(1, 0.5, ok=True)
    door.leave(2, 0.75, ok=True)
    (gold,) = door.figures(1.0)
    assert (gold.requests, gold.satisfied) == (2, 1)
    assert gold.p99_us == pytest.approx(750_000, rel=0.032)


def test_a_class_without_a_request_has_no_source() -> None:
    door = gate()
    door.enter(1, "silver", 0.0)
    assert [figures.source for figures in door.figures(0.0)] == [None, "gate", None]


def test_a_lower_concurrency_limit_does_not_interrupt_active_requests() -> None:
    door = gate()
    for worker in range(5):
        door.enter(worker, "gold", 0.0)
    assert door.set_slots(3, 0.1) == [1, 2]
    assert door.set_slots(1, 0.2) == []
    assert door.leave(0, 0.3, ok=True) == door.leave(1, 0.3, ok=True) == []
    assert door.leave(2, 0.4, ok=True) == [3]


def test_new_classes_reclassify_waiting_requests_and_keep_their_arrival() -> None:
    door = gate()
    door.enter(1, "gold", 0.0)
    door.enter(2, "tin", 1.0)
    door.enter(3, "silver", 2.0)
    door.enter(4, "tin", 3.0)
    grades = {2: "gold", 3: None, 4: "gold"}
    targets = [ClassTarget("gold", 60.0), ClassTarget("iron", 50.0)]
    let_in, gone = door.replace_classes(targets, slots=1, window_s=10.0, time_s=5.0, classify=grades.get)
    assert (let_in, gone) == ([], [3])
    assert door.leave(1, 6.0, ok=True) == [2]
    gold, iron = door.figures(6.0)
    assert (gold.requests, gold.satisfied, gold.waiting, gold.longest_wait_us) == (3, 1, 1, 5_000_000)
    assert gold.f == pytest.approx(1 / (3 * 0.6))
    assert (iron.requests, iron.source) == (0, None)


def test_an_active_request_of_a_removed_class_keeps_its_slot() -> None:
    door = gate()
    door.enter(1, "tin", 0.0)
    assert door.replace_classes(TARGETS[:2], slots=1, window_s=10.0, time_s=1.0, classify=name_of(0)) == ([], [])
    assert door.enter(2, "gold", 2.0) == []
    assert door.leave(1, 3.0, ok=True) == [2]


@pytest.mark.parametrize(
    ("target", "window_s", "requests"),
    [
        (ClassTarget("gold", 10.0), 10.0, 1),
        (ClassTarget("gold", 90.0, 5), 10.0, 0),
        (ClassTarget("gold", 90.0), 9.0, 0),
    ],
)
def test_history_is_kept_while_deadline_and_window_stay(target: ClassTarget, window_s: float, requests: int) -> None:
    door = gate()
    door.enter(1, "gold", 0.0)
    door.leave(1, 0.1, ok=True)
    door.replace_classes([target], slots=1, window_s=window_s, time_s=0.2, classify=name_of(0))
    assert door.figures(0.2)[0].requests == requests


class Step(Struct, frozen=True):
    """What happens: after pauses a request of a class comes, or somebody (taken round) inside or waiting is done."""

    what: str
    which: int
    ok: bool
    pause: int


STEPS = st.lists(
    st.builds(
        Step,
        st.sampled_from(["enter", "enter", "leave", "leave", "die"]),
        st.integers(0, 7),
        st.booleans(),
        st.sampled_from([0, 0, 0, 1, 3, 17, 400]),
    ),
    max_size=120,
)
PERCENTAGES = st.lists(st.sampled_from([10.0, 50.0, 50.0, 75.0, 100.0]), min_size=1, max_size=5)


class Naive:
    """The gate by the book: all that ever happened is kept, and F counted anew each time."""

    def __init__(self, targets: list[float], slots: int) -> None:
        self.targets = targets
        self.slots = slots
        self.inside: dict[int, int] = {}
        self.queue: list[tuple[int, int]] = []
        self.ended: list[tuple[float, int, bool]] = []

    def f(self, which: int, now: float) -> float:
        fresh = [ok for at, of, ok in self.ended if of == which and int(at * 8) > int(now * 8) - WINDOW_BUCKETS]
        present = [of for of in self.inside.values() if of == which] + [of for _, of in self.queue if of == which]
        requests = len(fresh) + len(present)
        return sum(fresh) / (requests * (self.targets[which] / 100)) if requests else 0.0

    def fill(self, now: float) -> list[int]:
        let_in = []
        while self.queue and len(self.inside) < self.slots:
            which = min({of for _, of in self.queue}, key=lambda of: (self.f(of, now), -self.targets[of], of))
            worker = next(worker for worker, of in self.queue if of == which)
            self.queue.remove((worker, which))
            self.inside[worker] = which
            let_in.append(worker)
        return let_in

    def enter(self, worker: int, which: int, now: float) -> list[int]:
        self.queue.append((worker, which))
        return self.fill(now)

    def leave(self, worker: int, now: float, ok: bool) -> list[int]:
        if worker in self.inside:
            self.ended.append((now, self.inside.pop(worker), ok))
            return self.fill(now)
        place = next(place for place in self.queue if place[0] == worker)
        self.queue.remove(place)
        self.ended.append((now, place[1], False))
        return []


@settings(deadline=None)
@given(PERCENTAGES, st.integers(1, 4), STEPS)
def test_the_gate_equals_its_definition_request_by_request(targets: list[float], slots: int, steps: list[Step]) -> None:
    naive = Naive(targets, slots)
    door = gate(slots, [ClassTarget(str(n), target) for n, target in enumerate(targets)], window_s=WINDOW_BUCKETS / 8)
    again = gate(slots, [ClassTarget(str(n), target) for n, target in enumerate(targets)], window_s=WINDOW_BUCKETS / 8)
    numbers, now = count(1), 0.0
    for step in steps:
        now += step.pause / 64
        people = list(naive.inside) if step.what == "leave" else [worker for worker, _ in naive.queue]
        if step.what == "enter":
            worker, which = next(numbers), step.which % len(targets)
            expected = naive.enter(worker, which, now)
            assert door.enter(worker, str(which), now) == expected == again.enter(worker, str(which), now)
        elif people:
            worker = people[step.which % len(people)]
            expected = naive.leave(worker, now, step.ok)
            assert door.leave(worker, now, ok=step.ok) == expected == again.leave(worker, now, ok=step.ok)
        figures = door.figures(now)
        assert sum(its.active for its in figures) == len(naive.inside) <= slots
        assert sum(its.waiting for its in figures) == len(naive.queue)
        assert not naive.queue or len(naive.inside) == slots, "a request waits beside a free slot"
        assert [its.f for its in figures] == [naive.f(which, now) for which in range(len(targets))]
        assert all(its.satisfied <= its.requests for its in figures)
        assert [worker for worker, _ in door.waiting()] == [worker for worker, _ in naive.queue]
    assert door.figures(now) == again.figures(now)


@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.tuples(st.sampled_from([1.0, 50.0, 100.0]), st.integers(1, 6), st.booleans()), min_size=2, max_size=6),
    st.integers(1, 3),
    st.randoms(use_true_random=False),
)
def test_every_request_is_admitted_within_its_bound(
    classes: list[tuple[float, int, bool]], slots: int, chance: Random
) -> None:
    """Clients that ask again at once; a class whose requests all fail, so that F = 0 keeps it first, among them."""
    door = gate(slots, [ClassTarget(str(n), target) for n, (target, _, _) in enumerate(classes)], window_s=0.5)
    workers = [which for which, (_, clients, _) in enumerate(classes) for _ in range(clients)]
    bound: dict[int, int] = {}
    inside: list[int] = []
    admissions, now = 0, 0.0

    def note(let_in: list[int]) -> None:
        nonlocal admissions
        for worker in let_in:
            admissions += 1
            assert admissions <= bound.pop(worker), f"class {workers[worker]} waited longer than promised"
            inside.append(worker)

    def ask(worker: int) -> None:
        ahead = sum(workers[other] == workers[worker] for other in bound)
        bound[worker] = admissions + (ahead + 1) * (MAX_ADMISSIONS_OF_OTHERS + len(classes))
        note(door.enter(worker, str(workers[worker]), now))

    for worker in range(len(workers)):
        ask(worker)
    for _ in range(600):
        now += 0.001
        worker = inside.pop(chance.randrange(len(inside)))
        note(door.leave(worker, now, ok=classes[workers[worker]][2]))
        ask(worker)


def test_a_class_that_never_reaches_its_target_does_not_starve_others() -> None:
    door = gate(targets=[ClassTarget("hopeless", 99.0, deadline_us=1), ClassTarget("patient", 10.0)])
    door.enter(0, "hopeless", 0.0)
    door.enter(1, "hopeless", 0.0)
    door.enter(2, "patient", 0.0)
    now, inside, passed_over = 0.1, 0, 0
    while (let_in := door.leave(inside, now, ok=True)) != [2]:
        passed_over += 1
        door.enter(inside, "hopeless", now)
        (inside,) = let_in
        now += 0.1
    assert passed_over == MAX_ADMISSIONS_OF_OTHERS
