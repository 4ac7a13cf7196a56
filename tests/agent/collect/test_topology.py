from pathlib import Path

import pytest
from tests.fixtures.machines import EXPECTED, unpack

from coresteer_agent.collect.errors import ParseError
from coresteer_agent.collect.rows import dropped_rows
from coresteer_agent.collect.topology import parse_size, read_topology
from coresteer_core.node.topology import Topology

CPU = "sys/devices/system/cpu"

ON_PURPOSE: dict[str, dict[str, tuple[int, str]]] = {
    # hwloc knows that AMD family 21 has two cores in what Linux calls one, and drops thread_siblings_list;
    # we follow the kernel, which also schedules by it.
    "64amd64-4s2n4ca2co": {
        "cores": (32, f"{CPU}/cpu0/topology/thread_siblings_list is 0-1: two CPUs share a core"),
    },
    # hwloc shows one package and its L3 less; the files are complete and agree with the four NUMA nodes.
    "40intel64-4n10c+pci-conflicts": {
        "packages": (4, f"{CPU}/cpu3/topology/physical_package_id is 3: the packages are 0 to 3"),
        "l3_caches": (4, f"{CPU}/cpu3/cache/index3/shared_cpu_map names 3,7,11,…,39: one L3 a package"),
    },
}


def counts(topology: Topology) -> dict[str, int]:
    online = [cpu for cpu in topology.cpus if cpu.online]
    data = [cache for cache in topology.caches if cache.type in ("Unified", "Data")]
    return {
        "packages": len({cpu.package for cpu in online}),
        "numa_nodes": len(topology.numa_nodes),
        "cores": len({(cpu.package, cpu.core) for cpu in online}),
        "cpus": len(online),
        "l2_caches": sum(cache.level == 2 for cache in data),
        "l3_caches": sum(cache.level == 3 for cache in data),
    }


@pytest.mark.parametrize("machine", EXPECTED)
def test_a_captured_machine_has_the_parts_hwloc_counts(machine: str, tmp_path: Path) -> None:
    topology = read_topology(unpack(machine, tmp_path))
    ours = {name: value for name, (value, _) in ON_PURPOSE.get(machine, {}).items()}
    assert counts(topology) == EXPECTED[machine] | ours
    online = topology.online()
    for cpu in topology.cpus:
        assert cpu.online or (cpu.core, cpu.package, cpu.siblings) == (None, None, "")
        assert not cpu.online or (cpu.core is not None and cpu.siblings)
    assert online


def test_offline_cpus_are_listed_and_nothing_is_said_of_their_place(tmp_path: Path) -> None:
    topology = read_topology(unpack("16em64t-4s2c2t-offlines", tmp_path))
    assert [cpu.cpu for cpu in topology.cpus if not cpu.online] == [2, 5, 13, 14]
    assert all(cpu.core is None for cpu in topology.cpus if not cpu.online)


def test_nodes_that_claim_the_same_cpus_are_one_with_their_memory_together(tmp_path: Path) -> None:
    (node,) = read_topology(unpack("8em64t-2s2ca2c-buggynuma", tmp_path)).numa_nodes
    assert node.cpus == "0-7"
    assert node.distances == [10]
    assert node.memory_bytes == (2096684 + 2096128 + 6 * 2097152) * 1024


def test_numa_distances_are_in_the_order_of_the_nodes(tmp_path: Path) -> None:
    nodes = read_topology(unpack("256ppc-8n8s4t", tmp_path)).numa_nodes
    assert [node.id for node in nodes] == [0, 1, 4, 5, 8, 9, 12, 13]
    assert [node.distances[i] for i, node in enumerate(nodes)] == [10] * 8


def test_a_distance_row_for_nodes_that_are_not_shown_is_left_out(tmp_path: Path) -> None:
    (node,) = read_topology(unpack("offline-cpu0-node0", tmp_path)).numa_nodes
    assert (node.id, node.distances) == (1, [])


def test_hybrid_cores_share_their_l2_by_four(tmp_path: Path) -> None:
    caches = read_topology(unpack("20em64t-hybrid-1p6c2t+2ca4co1t", tmp_path)).caches
    assert [(c.cpus, c.size_bytes) for c in caches if c.level == 2][-2:] == [
        ("12-15", 2048 * 1024),
        ("16-19", 2048 * 1024),
    ]


def small_machine(root: Path, files: dict[str, str]) -> Path:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


TWO_CPUS = {
    f"{CPU}/online": "0-1\n",
    f"{CPU}/cpu0/topology/core_cpus_list": "0-1\n",
    f"{CPU}/cpu1/topology/core_cpus_list": "0-1\n",
    f"{CPU}/cpu0/topology/physical_package_id": "0\n",
    f"{CPU}/cpu1/topology/physical_package_id": "0\n",
}


def test_an_empty_tree_has_an_empty_topology(tmp_path: Path) -> None:
    assert read_topology(tmp_path) == Topology([], [], [])


def test_a_kernel_without_numa_has_one_node_with_every_cpu(tmp_path: Path) -> None:
    topology = read_topology(small_machine(tmp_path, TWO_CPUS | {"proc/meminfo": "MemTotal:  2048 kB\n"}))
    (node,) = topology.numa_nodes
    assert (node.id, node.cpus, node.memory_bytes) == (0, "0-1", 2048 * 1024)
    assert {cpu.numa_node for cpu in topology.cpus} == {0}


def test_memory_that_cannot_be_read_is_none_and_not_zero(tmp_path: Path) -> None:
    assert read_topology(small_machine(tmp_path, TWO_CPUS)).numa_nodes[0].memory_bytes is None


def test_isolated_and_nohz_full_cpus_and_capacities_are_told(tmp_path: Path) -> None:
    more = {f"{CPU}/isolated": "1\n", f"{CPU}/nohz_full": "(null)\n", f"{CPU}/cpu1/cpu_capacity": "446\n"}
    topology = read_topology(small_machine(tmp_path, TWO_CPUS | more))
    assert (topology.isolated, topology.nohz_full) == ("1", "")
    assert [cpu.capacity for cpu in topology.cpus] == [None, 446]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (f"{CPU}/online", "0-\n"),
        (f"{CPU}/cpu1/topology/core_cpus_list", "3-1\n"),
        (f"{CPU}/cpu1/topology/physical_package_id", "first\n"),
        ("sys/devices/system/node/node0/distance", "10 x\n"),
        ("sys/devices/system/node/node0/cpumap", "zz\n"),
    ],
)
def test_a_value_that_makes_no_sense_is_unknown_and_reported_and_the_others_are_read(
    path: str, text: str, tmp_path: Path
) -> None:
    topology = read_topology(small_machine(tmp_path, TWO_CPUS | {path: text}))
    assert [(cpu.cpu, cpu.online) for cpu in topology.cpus] == [(0, True), (1, True)]
    assert dropped_rows()[path].startswith("It cannot be parsed. Line 1: ")


def test_a_list_of_cpus_that_must_not_be_used_is_never_taken_for_none(tmp_path: Path) -> None:
    path = f"{CPU}/isolated"
    with pytest.raises(ParseError) as caught:
        read_topology(small_machine(tmp_path, TWO_CPUS | {path: "0-99999\n"}))
    assert (caught.value.path, caught.value.line) == (path, 1)


@pytest.mark.parametrize(
    ("text", "size"), [("32K", 32768), ("1M", 1 << 20), ("64", 64), ("0K", None), ("", None), (None, None)]
)
def test_cache_sizes_are_bytes(text: str | None, size: int | None) -> None:
    assert parse_size(text, "size") == size


def test_a_cache_size_without_a_number_is_refused() -> None:
    with pytest.raises(ParseError, match="512K"):
        parse_size("big", "size")
