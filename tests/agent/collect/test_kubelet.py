"""Pods as the kubelet's files and cgroup paths show them, and the CPUs that are reserved on a node."""

import json
from pathlib import Path

import pytest

from coresteer_agent.collect.errors import ParseError
from coresteer_agent.collect.kubelet import (
    ExclusiveCpus,
    PodCgroup,
    PodNames,
    parse_cpu_manager_state,
    parse_pod_cgroup,
)
from coresteer_agent.collect.process_identity import ProcessIdentityReader
from coresteer_agent.collect.reserved import ReservedReader
from coresteer_agent.observe.inventory import InventoryReader
from coresteer_core.node.reserved import ReservedCpus

UID = "0d3a7c1e-5b1f-4f0a-9a43-2f6d1c0b9e11"
UNDASHED = UID.replace("-", "")
UNDERSCORED = UID.replace("-", "_")
ID = "ab" * 32
SLICE = f"/kubepods.slice/kubepods-pod{UNDERSCORED}.slice"
CGROUP = f"{SLICE}/cri-containerd-{ID}.scope"
STATE = {
    "policyName": "static",
    "defaultCpuSet": "0,2-7",
    "entries": {UID: {"app": "1"}, "f" * 32: {"other": "5-6"}},
    "checksum": 3450923,
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A node of 8 CPUs with one pod that has CPU 1 for itself, as containerd and the kubelet leave their files."""
    files = {
        "sys/devices/system/cpu/online": "0-7\n",
        "sys/fs/cgroup/cgroup.procs": "1\n",
        "sys/fs/cgroup/cpuset.cpus.effective": "0-7\n",
        "sys/fs/cgroup/web.slice/cpuset.cpus.effective": "0-7\n",
        "sys/fs/cgroup/web.slice/cpuset.cpus.partition": "member\n",
        f"var/log/pods/shop_web-1_{UID}/app/0.log": "",
        f"var/log/containers/web-1_shop_app-{ID}.log": "",
        "var/lib/kubelet/cpu_manager_state": json.dumps(STATE),
        "proc/812/cgroup": f"0::{CGROUP}\n",
    }
    for path, text in files.items():
        write(tmp_path, path, text)
    return tmp_path


def write(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (CGROUP, PodCgroup(UNDASHED, ID)),
        (f"{CGROUP}/init", PodCgroup(UNDASHED, ID)),
        (SLICE, PodCgroup(UNDASHED, None)),
        (
            f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UNDERSCORED}.slice/crio-{ID}.scope",
            PodCgroup(UNDASHED, ID),
        ),
        (f"/kubepods/besteffort/pod{UID}/{ID}", PodCgroup(UNDASHED, ID)),
        (f"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{UNDERSCORED}.slice", PodCgroup(UNDASHED, None)),
        (f"/kubepods/pod{'f' * 32}/{ID}", PodCgroup("f" * 32, ID)),
        ("/kubepods.slice", None),
        ("/system.slice/kubelet.service", None),
        (f"/system.slice/docker-{ID}.scope", None),
        ("/kubepods.slice/kubepods-pod0d3a.slice", None),
    ],
)
def test_a_cgroup_path_names_the_pod_and_the_container(path: str, found: PodCgroup | None) -> None:
    assert parse_pod_cgroup(path) == found


def test_a_process_has_the_name_of_its_pod_and_container(root: Path) -> None:
    assert ProcessIdentityReader(root).read(812).pod == "shop/web-1/app"


def test_a_container_without_a_log_has_the_name_of_its_pod_and_gets_its_own_once_it_is_known(root: Path) -> None:
    pods = PodNames(root)
    log = root / f"var/log/containers/web-1_shop_app-{ID}.log"
    log.unlink()
    assert PodNames(root).find(CGROUP) == "shop/web-1"
    (root / f"var/log/pods/shop_web-1_{UID}").rename(root / "elsewhere")
    assert pods.find(CGROUP) is None
    log.write_text("")
    assert pods.find(CGROUP) == "shop/web-1/app"
    assert pods.find("/system.slice/ssh.service") is None


@pytest.mark.parametrize("wrong", [b"", b"[]", b'{"policyName":"static","entries":{"u":{"c":"x"}}}', b'{"entries":1}'])
def test_a_state_that_makes_no_sense_is_an_error_and_reserves_nothing(root: Path, wrong: bytes) -> None:
    with pytest.raises(ParseError):
        parse_cpu_manager_state(wrong, "state")
    (root / "var/lib/kubelet/cpu_manager_state").write_bytes(wrong)
    reader = ReservedReader(root)
    reader.update()
    assert reader.cpus == []


def test_only_the_static_policy_assigns_cpus() -> None:
    assert parse_cpu_manager_state(json.dumps(STATE).encode(), "state") == [
        ExclusiveCpus(UNDASHED, "app", "1"),
        ExclusiveCpus("f" * 32, "other", "5-6"),
    ]
    none = json.dumps(STATE | {"policyName": "none"}).encode()
    assert parse_cpu_manager_state(none, "state") == []


def test_the_inventory_has_the_cpus_of_containers_and_follows_them(root: Path) -> None:
    reader = InventoryReader(root)
    assert reader.read().reserved == [
        ReservedCpus("1", "container app of pod shop/web-1"),
        ReservedCpus("5-6", f"container other of pod {'f' * 32}"),
    ]
    (root / "var/lib/kubelet/cpu_manager_state").write_text(json.dumps(STATE | {"entries": {}}))
    assert reader.read().reserved == []


def test_valid_cpuset_partitions_are_reserved(root: Path) -> None:
    (root / "var/lib/kubelet/cpu_manager_state").unlink()
    reader = ReservedReader(root)
    reader.update()
    assert reader.cpus == []
    write(root, "sys/fs/cgroup/cpuset.cpus.effective", "0-3\n")
    write(root, "sys/fs/cgroup/web.slice/cpuset.cpus.effective", "4-5\n")
    write(root, "sys/fs/cgroup/web.slice/cpuset.cpus.partition", "root\n")
    write(root, "sys/fs/cgroup/web.slice/rt/cpuset.cpus.effective", "6-7\n")
    write(root, "sys/fs/cgroup/web.slice/rt/cpuset.cpus.partition", "isolated\n")
    write(root, "sys/fs/cgroup/bad.slice/cpuset.cpus.effective", "0-3\n")
    write(
        root, "sys/fs/cgroup/bad.slice/cpuset.cpus.partition", "root invalid (Cpu list in cpuset.cpus not exclusive)\n"
    )
    assert reader.update()
    assert sorted(reader.cpus, key=lambda each: each.cpus) == [
        ReservedCpus("4-5", "cpuset partition web.slice", "web.slice"),
        ReservedCpus("6-7", "cpuset partition web.slice/rt", "web.slice/rt"),
    ]
    assert not reader.update()
