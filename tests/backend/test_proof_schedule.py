"""The schedule of episodes: bounded, balanced, and the same whenever it is derived."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coresteer.proof.schedule import BUCKETS, Candidate, Design, Episode, Subject, begin_now, in_holdout, planned
from coresteer.proof.washout import Switch, washout

DESIGN = Design(block_s=600, share=0.05, max_domain_share=0.2)
_seeds = st.integers(0, 2**62)
_nodes = st.integers(1, 2**31 - 1)


def own_nodes(candidates: list[Candidate]) -> dict[tuple[int, str], set[int]]:
    """The nodes of each policy in each failure domain."""
    found: dict[tuple[int, str], set[int]] = {}
    for candidate in candidates:
        found.setdefault((candidate.subject.policy_id, candidate.domain), set()).add(candidate.subject.node_id)
    return found


def simulated(candidates: list[Candidate], domains: dict[str, list[int]], seed: int, periods: int = 3) -> list[Episode]:
    """The episodes that begin when the schedule is asked once a minute."""
    running: list[Episode] = []
    found: list[Episode] = []
    for minute in range(int(periods * DESIGN.period_s / 60)):
        now_s = minute * 60.0 + 30
        running = [one for one in running if one.end_s > now_s]
        begun = frozenset((one.subject, one.period) for one in found)
        new = begin_now(
            seed,
            candidates,
            running=[one.subject.node_id for one in running],
            nodes_by_domain=domains,
            own_nodes=own_nodes(candidates),
            begun=begun,
            now_s=now_s,
        )
        running += new
        found += new
    return found


@given(_seeds, _nodes, st.floats(0.001, 0.2), st.sampled_from((10.0, 60.0, 600.0, 3600.0)), st.floats(0, 2e9))
def test_each_period_has_one_episode_that_lies_within_it(
    seed: int, node_id: int, share: float, block_s: float, now_s: float
) -> None:
    design = Design(block_s, share, 0.2)
    episode = planned(seed, Subject(1, 2, node_id), design, now_s)
    assert episode is not None
    period_start = episode.period * design.period_s
    assert period_start <= episode.start_s <= episode.end_s <= period_start + design.period_s + 1e-3
    assert (episode.start_s / design.bucket_s) % 1 < 1e-6
    assert block_s / design.period_s <= share + 1e-9  # of the time is holdout
    assert planned(seed, Subject(1, 2, node_id), design, period_start + 0.5 * design.period_s) == episode


def test_a_share_of_zero_plans_nothing() -> None:
    assert planned(1, Subject(1, 1, 1), Design(600, 0.0, 0.2), 1e9) is None


def test_the_coin_is_fair_and_does_not_follow_the_moment() -> None:
    episodes = [
        episode
        for node_id in range(40)
        for period in range(100)
        if (episode := planned(7, Subject(3, 1, node_id), DESIGN, (period + 0.5) * DESIGN.period_s))
    ]
    early = [one for one in episodes if one.start_s % DESIGN.period_s < DESIGN.period_s / 2]
    for some in (episodes, early):
        heads = sum(one.holdout_first for one in some)
        assert abs(heads - len(some) / 2) < 4 * (len(some) / 4) ** 0.5


@pytest.mark.parametrize("holdout_first", [True, False])
def test_exactly_one_of_the_two_blocks_is_the_holdout(holdout_first: bool) -> None:
    expected = [False, holdout_first, not holdout_first, False]
    assert [in_holdout(1000, 600, holdout_first, 1000 + at) for at in (-1, 1, 601, 1201)] == expected


@given(_seeds)
def test_a_node_is_in_one_episode_at_a_time(seed: int) -> None:
    domains = {"": [1, 2]}
    candidates = [Candidate(Subject(policy, 1, node), DESIGN, "") for policy in (1, 2, 3) for node in (1, 2)]
    candidates = [one._replace(design=Design(600, 0.2, 1.0)) for one in candidates]
    ends: dict[int, float] = {}
    for episode in simulated(candidates, domains, seed):
        assert episode.start_s + 60 > ends.get(episode.subject.node_id, 0.0)
        ends[episode.subject.node_id] = episode.end_s


@given(_seeds)
def test_a_failure_domain_never_has_more_than_its_share_in_episodes(seed: int) -> None:
    racks = {"r1": list(range(1, 11)), "r2": list(range(11, 14))}
    candidates = [
        Candidate(Subject(1, 1, node), Design(600, 0.2, 0.2), rack) for rack, nodes in racks.items() for node in nodes
    ]
    episodes = simulated(candidates, racks, seed)
    rack_of = {node: rack for rack, nodes in racks.items() for node in nodes}
    for one in episodes:
        together = Counter(
            rack_of[other.subject.node_id] for other in episodes if other.start_s <= one.start_s < other.end_s - 60
        )
        assert together["r1"] <= 2
        assert together["r2"] <= 1


@given(_seeds)
def test_a_policy_for_a_few_nodes_of_a_failure_domain_has_its_share_of_those(seed: int) -> None:
    rack = {"r1": list(range(1, 101))}
    candidates = [Candidate(Subject(1, 1, node), Design(600, 0.2, 0.25), "r1") for node in range(1, 5)]
    episodes = simulated(candidates, rack, seed)
    for one in episodes:
        together = [other for other in episodes if other.start_s <= one.start_s < other.end_s - 60]
        assert len(together) == 1  # a quarter of its four nodes, not of the hundred of the rack


def test_one_node_alone_has_its_episodes() -> None:
    episodes = simulated([Candidate(Subject(1, 1, 5), DESIGN, "")], {"": [5]}, 11, periods=6)
    assert len(episodes) == 6


def at_time(candidate: Candidate, now_s: float, begun: frozenset[tuple[Subject, int]] = frozenset()) -> list[Episode]:
    own = {(1, ""): {5}}
    return begin_now(11, [candidate], running=[], nodes_by_domain={"": [5]}, own_nodes=own, begun=begun, now_s=now_s)


def test_an_episode_begins_once_even_after_a_restart() -> None:
    candidate = Candidate(Subject(1, 1, 5), DESIGN, "")
    episode = planned(11, candidate.subject, DESIGN, 1e9)
    assert episode is not None
    at = episode.start_s + 1
    assert at_time(candidate, at) == [episode]
    assert at_time(candidate, at, begun=frozenset({(candidate.subject, episode.period)})) == []


def test_an_episode_whose_beginning_was_missed_does_not_take_place() -> None:
    candidate = Candidate(Subject(1, 1, 5), DESIGN, "")
    episode = planned(11, candidate.subject, DESIGN, 1e9)
    assert episode is not None
    assert at_time(candidate, episode.start_s + DESIGN.late_s) == [episode]
    assert at_time(candidate, episode.start_s + DESIGN.late_s + 1) == []


@given(st.sampled_from((10.0, 20.0, 60.0, 600.0, 21_600.0)))
def test_what_begins_late_can_be_switched_within_any_washout(block_s: float) -> None:
    design = Design(block_s, 0.05, 0.2)
    assert 0 < design.late_s < washout((), design.bucket_s, BUCKETS)
    known = [Switch(True, [0.0] * BUCKETS)] * 100  # which show no decay
    assert design.late_s <= washout(known, design.bucket_s, BUCKETS) / 2
