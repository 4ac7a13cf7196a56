"""Pods as the kubelet's files and cgroup paths show them, and the CPUs that are reserved on a node."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coresteer_agent.collect import kubelet
from coresteer_agent.collect.errors import ParseError
from coresteer_agent.collect.files import record_requested_paths
from coresteer_agent.collect.kubelet import (
    ExclusiveCpus,
    PodCgroup,
    PodNames,
    parse_cpu_manager_state,
    parse_pod_cgroup,
)
from coresteer_agent.collect.process_identity import ProcessIdentityReader
from coresteer_agent.collect.reserved import ReservedReader
from coresteer_agent.collect.rows import dropped_rows
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
        (f"/../../kubepods-burstable.slice/kubepods-burstable-pod{UNDERSCORED}.slice", PodCgroup(UNDASHED, None)),
        (f"/user.slice/user-1000.slice/user@1000.service{CGROUP}", None),
        (f"/system.slice/kubepods-exporter.service/pod{UID}/{ID}", None),
    ],
)
def test_a_cgroup_path_names_the_pod_and_the_container(path: str, found: PodCgroup | None) -> None:
    assert parse_pod_cgroup(path) == found


NAMES = st.sampled_from(["kubepods", "kubepods.slice", "a", "user.slice", f"pod{UID}", ID, "kubepodspod" * 20])


@given(st.lists(NAMES, max_size=16))
def test_only_a_cgroup_below_the_kubelets_is_a_pods(names: list[str]) -> None:
    found = parse_pod_cgroup("/" + "/".join(names))
    of_kubelet = bool({"kubepods", "kubepods.slice"} & set(names[:2]))
    assert (found is not None) == (of_kubelet and f"pod{UID}" in names)


@pytest.mark.parametrize("name", ["kubepodspod", "pod0", "a-", "pod-", "f"])
@pytest.mark.parametrize("separator", ["", "/"])
def test_names_that_a_user_chose_take_no_time_to_refuse(name: str, separator: str) -> None:
    length = 4000 // len(name + separator)
    parts = [name * 20] * (length // 20) if separator else [name * length]
    assert parse_pod_cgroup("/kubepods/" + "/".join(parts)) is None


def test_a_process_has_the_name_of_its_pod_and_container(root: Path) -> None:
    assert ProcessIdentityReader(root).read(812).pod == "shop/web-1/app"


def test_a_container_without_a_log_has_the_name_of_its_pod_and_gets_its_own_once_it_is_known(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [100.0]
    monkeypatch.setattr(kubelet, "monotonic", lambda: now_s[0])
    pods = PodNames(root)
    log = root / f"var/log/containers/web-1_shop_app-{ID}.log"
    log.unlink()
    assert PodNames(root).find(CGROUP) == "shop/web-1"
    (root / f"var/log/pods/shop_web-1_{UID}").rename(root / "elsewhere")
    assert pods.find(CGROUP) is None
    log.write_text("")
    assert pods.find(CGROUP) is None
    now_s[0] += 10.0
    assert pods.find(CGROUP) == "shop/web-1/app"
    assert pods.find("/system.slice/ssh.service") is None


def test_any_number_of_unknown_pods_lists_the_folders_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed: list[str] = []

    def names(_: Path, path: str) -> list[str]:
        listed.append(path)
        return []

    monkeypatch.setattr(kubelet, "names", names)
    pods = PodNames(root)
    for number in range(100):
        assert pods.find(f"/kubepods/pod{number:032x}") is None
    assert sorted(listed) == [kubelet.CONTAINERS, kubelet.PODS]


@pytest.mark.parametrize("wrong", [b"", b"[]", b'{"policyName":"static","entries":{"u":{"c":"x"}}}', b'{"entries":1}'])
def test_a_state_that_makes_no_sense_is_an_error_and_reserves_what_it_did_before_or_all_cpus(
    root: Path, wrong: bytes
) -> None:
    with pytest.raises(ParseError):
        parse_cpu_manager_state(wrong, "state")
    reader = ReservedReader(root)
    reader.update()
    before = reader.cpus
    state = root / kubelet.CPU_MANAGER_STATE
    text = state.read_bytes()
    state.write_bytes(wrong)
    assert not reader.update()
    assert reader.cpus == before != []
    assert kubelet.CPU_MANAGER_STATE in dropped_rows()
    started = ReservedReader(root)
    assert started.update()
    assert [each.cpus for each in started.cpus] == ["0-7"]
    state.write_bytes(text)
    assert started.update()
    assert started.cpus == before
    state.unlink()
    assert started.update()
    assert started.cpus == []


def test_a_state_that_cannot_be_read_reserves_what_it_did_before(root: Path) -> None:
    reader = ReservedReader(root)
    reader.update()
    before = reader.cpus
    state = root / kubelet.CPU_MANAGER_STATE
    state.unlink()
    state.mkdir()
    reader.update()
    assert reader.cpus == before != []
    assert dropped_rows()[kubelet.CPU_MANAGER_STATE].endswith("It is empty or cannot be read.")


def test_a_node_without_cgroup_version_2_has_no_file_of_it_read(tmp_path: Path) -> None:
    with record_requested_paths() as requested:
        ReservedReader(tmp_path).update()
    assert not {path for path in requested.read if path.startswith("None")}


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


def test_cpus_that_the_root_cgroup_lacks_without_a_partition_make_reserved_cpus_unknown(root: Path) -> None:
    write(root, "sys/fs/cgroup/cpuset.cpus.effective", "0-3\n")
    ReservedReader(root).update()
    assert (
        "The root cgroup lacks CPUs 4-7, which no cpuset partition has."
        in dropped_rows()["sys/fs/cgroup/cpuset.cpus.effective"]
    )


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
    for wrong in ("", "x\n"):
        write(root, "sys/fs/cgroup/cpuset.cpus.effective", wrong)
        assert not reader.update()
        assert "sys/fs/cgroup/cpuset.cpus.effective" in dropped_rows()
