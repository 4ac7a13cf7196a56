"""Who is connected where, given rows of node_presence in any order."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from coresteer.presence.locations import Location, Locations

OWN = 1
ROWS = st.lists(
    st.builds(
        Location, node_id=st.integers(1, 3), epoch=st.integers(1, 9), replica_id=st.sampled_from([None, OWN, 2, 3])
    ),
    # a connection, which has one epoch, is to one replica, and may have ended
    unique_by=(lambda row: (row.epoch, row.replica_id is None),),
)


def _locations(alive: set[int]) -> Locations:
    return Locations(lambda: OWN, lambda replica_id: replica_id in alive)


@given(ROWS, st.randoms(), st.sets(st.sampled_from([2, 3])))
def test_the_order_of_rows_does_not_matter_and_the_highest_epoch_counts(
    rows: list[Location], random: Random, alive: set[int]
) -> None:
    in_order, shuffled = _locations(alive), _locations(alive)
    in_order.update(rows)
    mixed = list(rows)
    random.shuffle(mixed)
    for row in mixed:
        shuffled.update([row])
    for node_id in (1, 2, 3):
        of_node = [row for row in rows if row.node_id == node_id]
        epoch = max((row.epoch for row in of_node), default=0)
        latest = [row for row in of_node if row.epoch == epoch]
        ended = any(row.replica_id is None for row in latest)
        there = None if ended or not latest else latest[0].replica_id
        for locations in (in_order, shuffled):
            found = locations.elsewhere(node_id)
            assert locations.epoch(node_id) == epoch
            assert (found.replica_id if found else None) == (there if there in alive else None)


@given(st.integers(1, 9), st.integers(1, 9))
def test_the_late_end_of_an_old_connection_does_not_hide_a_new_one(one: int, other: int) -> None:
    locations = _locations({2, 3})
    locations.update([Location(1, one, 2), Location(1, other, 3)])
    locations.end(1, min(one, other) - 1)
    latest = locations.elsewhere(1)
    assert latest is not None and latest.epoch == max(one, other)
    locations.end(1, max(one, other))
    assert locations.elsewhere(1) is None
    assert locations.update([Location(1, max(one, other), 2)]) == [], "a row that was read before the end"


@given(st.sets(st.sampled_from([2, 3])))
def test_a_node_is_connected_while_its_replica_is_alive(alive: set[int]) -> None:
    locations = _locations(alive)
    locations.update([Location(1, 1, 2), Location(2, 2, 3), Location(3, 3, OWN)])
    assert [node_id for node_id in (1, 2, 3) if locations.elsewhere(node_id)] == [each - 1 for each in sorted(alive)]


@given(st.sets(st.sampled_from([2, 3])))
def test_a_node_is_lost_with_its_replica_if_that_vanishes_before_the_connection_has_ended(alive: set[int]) -> None:
    locations = _locations(alive)
    locations.update([Location(1, 1, 2), Location(2, 2, 3), Location(3, 3, OWN), Location(4, 4, None)])
    assert {node_id for node_id in range(1, 6) if locations.is_lost_with_replica(node_id)} == {1, 2} - {
        each - 1 for each in alive
    }
    locations.end(1, 1)
    assert not locations.is_lost_with_replica(1)
