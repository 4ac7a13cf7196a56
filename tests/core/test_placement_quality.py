from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.placement import Case, best_cost, chosen, large_case, most_placed, small_case
from tests.support.views import make_topology

from coresteer_core.node.tasks import NetTask
from coresteer_core.policies.network_process.capacity import PacketShares
from coresteer_core.policies.network_process.explain import Candidate

RANDOMS = st.integers(0, 2**32).map(Random)


def test_small_placements_cost_little_more_than_the_best_of_all() -> None:
    cases = [small_case(Random(seed)) for seed in range(200)]  # noqa: S311, cases, not secrets
    pairs = [(case.cost(chosen(case)), best_cost(case)) for case in cases]
    assert sum(found for found, _ in pairs) / sum(best for _, best in pairs) < 1.05
    assert sum(found <= best + 1e-9 for found, best in pairs) >= 0.75 * len(pairs)


@settings(max_examples=100, deadline=None)
@given(RANDOMS)
def test_no_placement_is_better_than_the_best_of_all_nor_takes_more_than_there_is(random: Random) -> None:
    case = small_case(random)
    where = chosen(case)
    load = list(case.base)
    for candidate in case.candidates:
        if candidate.task.pid in where:
            load[where[candidate.task.pid]] += candidate.task.cpu_share
            assert load[where[candidate.task.pid]] <= 1 + 1e-6
    assert case.cost(where) >= best_cost(case) - 1e-9


@pytest.mark.parametrize("seed", range(4))
def test_with_equal_shares_at_least_half_of_the_most_traffic_is_placed(seed: int) -> None:
    case = large_case(Random(seed), processes=300)  # noqa: S311, a case, not a secret
    where = chosen(case)
    placed = sum(candidate.rate for candidate in case.candidates if candidate.task.pid in where)
    assert most_placed(case) / 2 <= placed <= most_placed(case) + 1e-6


@settings(max_examples=100, deadline=None)
@given(RANDOMS, st.integers(2, 32))
def test_the_busiest_cpu_of_a_group_is_within_grahams_bound(random: Random, cores: int) -> None:
    """CPU 0 is full, so all go to the other CPUs of its L3, which are equally far."""
    topology = make_topology(packages=1, nodes_per_package=1, cores_per_node=cores + 1, threads=1)
    base = [1.0, *(random.uniform(0, 0.3) for _ in range(cores))]
    shares = [random.uniform(0.01, 0.2) for _ in range(random.randint(1, 2 * cores))]
    candidates = [
        Candidate(
            NetTask(pid, 0, "made", None, 1, "", "", 1 << 20, share, 0.0, []),
            random.uniform(1e5, 1e8),
            PacketShares((0,), (1.0,)),
            0.0,
            None,
        )
        for pid, share in enumerate(shares, 1)
    ]
    where = chosen(Case(topology, base, candidates))
    assert len(where) == len(shares)
    load = list(base)
    for candidate in candidates:
        load[where[candidate.task.pid]] += candidate.task.cpu_share
    best_possible = max(sum(load[1:]) / cores, *base[1:], *shares)
    assert max(load[1:]) <= (2 - 1 / cores) * best_possible + 1e-9
