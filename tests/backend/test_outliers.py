"""Outliers: which nodes differ from the rest of their group, and in what."""

import pytest
from tests.backend.conftest import Backend
from tests.backend.policy_node import asked, created, policy_node

from coresteer.fleet.outliers import MIN_NODES, Traits, find_outliers, nic_traits


def group(*values: str | None, name: str = "") -> list[Traits]:
    """Nodes that differ in one trait only, which None does not report."""
    rows = enumerate(values, 1)
    return [Traits(i, f"n{i}", name, {} if value is None else {"kernel": value}) for i, value in rows]


@pytest.mark.parametrize(
    ("nodes", "outliers"),
    [
        (group(), []),
        (group("a", "a", "a", "b"), ["n4"]),
        (group("a", "a", "a", "a"), []),
        (group("a", "a", "b", "b"), []),
        (group("a", "a", "b"), []),
        (group("a", "a", "b", None), []),
        (group("a", "a", "a", "b", None), ["n4"]),
        (group("a", "a", "a", name="x") + group("b", "b", "b", name="y"), []),
    ],
)
def test_a_node_that_differs_from_most_of_its_group_is_an_outlier(nodes: list[Traits], outliers: list[str]) -> None:
    assert [outlier.node_name for outlier in find_outliers(nodes)] == outliers


def test_an_outlier_names_each_difference_and_how_many_nodes_have_the_usual_value() -> None:
    usual = {"kernel": "6.12", "rx-usecs": "50"}
    nodes = [Traits(n, f"n{n}", "rack=r01", usual) for n in range(MIN_NODES)]
    (found,) = find_outliers([*nodes, Traits(9, "odd", "rack=r01", {"kernel": "6.1", "rx-usecs": "3"})])
    assert [(each.trait, each.value, each.usual) for each in found.differences] == [
        ("kernel", "6.1", "6.12"),
        ("rx-usecs", "3", "50"),
    ]
    assert {(each.usual_nodes, each.nodes) for each in found.differences} == {(MIN_NODES, MIN_NODES + 1)}


async def test_the_fleet_is_compared_by_label_kernel_or_driver(backend: Backend) -> None:
    async with (
        policy_node(backend) as one,
        policy_node(backend) as two,
        policy_node(backend) as three,
        policy_node(backend, kernel="5.4") as odd,
    ):
        nodes = (one, two, three, odd)
        for node in nodes:
            await node.operator.patch(node.path, {"labels": {"rack": "r1"}})
        policy = await created(one, one.body(selector={"hostnames": [n.name for n in nodes[:3]]}))
        await asked(one.operator, f"/api/v1/policies/{policy['id']}/enable")
        observed = await created(one, one.body(mode="observe", selector={"hostnames": [one.name]}))
        await asked(one.operator, f"/api/v1/policies/{observed['id']}/enable")
        (found,) = (await one.operator.get("/api/v1/fleet/outliers?group=label:rack")).json()["outliers"]
        assert (found["node_name"], found["group"]) == (odd.name, "r1")
        assert {(each["trait"], each["value"], each["usual"]) for each in found["differences"]} == {
            ("kernel", "5.4", "6.1"),
            (f"policy {policy['name']}", "not in force", "v1"),
        }
        assert (await one.operator.get("/api/v1/fleet/outliers?group=kernel")).json() == {"outliers": [], "more": 0}
        assert (await one.operator.get("/api/v1/fleet/outliers?group=nonsense")).status_code == 422


def test_firmware_is_compared_between_nics_of_one_driver() -> None:
    nics: list[dict[str, object]] = [
        {"driver": "igb", "firmware": "1.63", "queues": 0, "params": None},
        {"driver": "mlx5_core", "firmware": "22.41", "queues": 0, "params": None},
        {"driver": "mlx5_core", "firmware": "22.31", "queues": 0, "params": None},
        {"driver": "veth", "firmware": None, "queues": 0, "params": None},
        {"driver": None, "firmware": None, "queues": 0, "params": None},
    ]
    assert nic_traits(nics) == {"igb firmware": "1.63", "mlx5_core firmware": "22.31, 22.41"}
