"""Labels of clouds and of Kubernetes, from files and the environment."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coresteer_agent.collect.platform_labels import (
    MAX_PLATFORM_LABELS,
    bounded,
    kubernetes_labels,
    parse_dmi,
    parse_instance_data,
    parse_pod_labels,
    read_platform_labels,
)

DATA = {
    "base64_encoded_keys": [],
    "ds": {
        "_doc": "EXPERIMENTAL",
        "meta_data": {"instance-id": "i-0a33f80f09c96477f", "instance-type": "t2.small", "public-keys": ["ssh-rsa A"]},
    },
    "userdata": "redacted for non-root user",
    "v1": {"availability_zone": "us-east-2b", "cloud_name": "aws", "region": "us-east-2", "variant": "ubuntu"},
}
AWS = {
    "cloud.provider": "aws",
    "cloud.region": "us-east-2",
    "cloud.zone": "us-east-2b",
    "cloud.instance-type": "t2.small",
}
POD = 'app="agent"\npod-template-hash="5d4f8"\ntopology.kubernetes.io/zone="us-east-2b"\nnote="a \\"quoted\\" value"\n'


@pytest.mark.parametrize(
    ("fields", "labels"),
    [
        ({}, {}),
        ({"sys_vendor": "Dell Inc.", "product_name": "PowerEdge R740"}, {}),
        (
            {"sys_vendor": "Amazon EC2", "product_name": "m5.large", "board_asset_tag": "i-0a33f80f09c96477f"},
            {"cloud.provider": "aws", "cloud.instance-type": "m5.large"},
        ),
        ({"sys_vendor": "Xen", "product_name": "HVM domU", "board_asset_tag": "i-0a33f80f"}, {"cloud.provider": "aws"}),
        ({"sys_vendor": "Google", "product_name": "Google Compute Engine"}, {"cloud.provider": "gce"}),
        (
            {
                "sys_vendor": "Microsoft Corporation",
                "product_name": "Virtual Machine",
                "chassis_asset_tag": "7783-7084-3265-9085-8269-3286-77",
            },
            {"cloud.provider": "azure"},
        ),
        ({"sys_vendor": "Microsoft Corporation", "product_name": "Virtual Machine"}, {}),
        ({"sys_vendor": "QEMU", "chassis_asset_tag": "OracleCloud.com"}, {"cloud.provider": "oracle"}),
        ({"sys_vendor": "Hetzner", "product_name": "vServer"}, {"cloud.provider": "hetzner"}),
        ({"sys_vendor": "Not Hetzner"}, {}),
    ],
)
def test_a_cloud_is_known_by_the_fields_of_dmi(fields: dict[str, str], labels: dict[str, str]) -> None:
    assert parse_dmi(fields) == labels


@pytest.mark.parametrize(
    ("data", "labels"),
    [
        (DATA, AWS),
        ({"v1": {"cloud_name": "nocloud", "region": None}}, {}),
        ({"v1": {"cloud_name": "none", "region": "r"}}, {}),
        ({"v1": {"cloud_name": "hetzner", "region": None}}, {"cloud.provider": "hetzner"}),
        (
            {
                "v1": {"cloud_name": "azure", "region": "eastus2"},
                "ds": {"meta_data": {"imds": {"compute": {"vmSize": "Standard_D8s_v5"}}}},
            },
            {"cloud.provider": "azure", "cloud.region": "eastus2", "cloud.instance-type": "Standard_D8s_v5"},
        ),
        ({"v1": {"region": ["a list"]}}, {}),
        ([], {}),
        ({}, {}),
    ],
)
def test_instance_data_says_region_zone_and_type(data: object, labels: dict[str, str]) -> None:
    assert parse_instance_data(json.dumps(data).encode()) == labels


@given(st.integers(0, len(json.dumps(DATA))))
def test_instance_data_that_ends_early_gives_no_label(length: int) -> None:
    whole = json.dumps(DATA).encode()
    assert parse_instance_data(whole[:length]) == (AWS if length == len(whole) else {})


@given(st.binary())
def test_any_other_content_gives_no_label(content: bytes) -> None:
    assert parse_instance_data(content) == {}
    parse_pod_labels(content.decode(errors="replace"))


def test_a_pods_labels_are_read_except_those_of_its_revision_and_those_with_escapes() -> None:
    assert parse_pod_labels(POD) == {"k8s.app": "agent", "k8s.topology.kubernetes.io/zone": "us-east-2b"}
    assert parse_pod_labels("") == parse_pod_labels("no label\n=\n") == {}


@pytest.mark.parametrize(
    ("environment", "labels"),
    [
        ({"NODE_NAME": "node-7", "KUBERNETES_SERVICE_HOST": "10.0.0.1"}, {"k8s.node": "node-7"}),
        ({"NODE_NAME": "a CI runner"}, {}),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, {}),
    ],
)
def test_the_node_of_a_pod_is_named_by_its_environment(environment: dict[str, str], labels: dict[str, str]) -> None:
    assert kubernetes_labels(environment) == labels


@given(st.dictionaries(st.text(max_size=80), st.text(max_size=80)))
def test_labels_are_bounded(labels: dict[str, str]) -> None:
    kept = bounded(labels.items())
    assert kept.items() <= labels.items()
    assert all(len(name) <= 63 and len(value) <= 63 and "\n" not in value for name, value in kept.items())


def test_of_too_many_labels_the_first_by_name_are_kept() -> None:
    labels = {f"k8s.l{number:03}": "x" for number in range(100)}
    assert list(bounded(labels.items())) == sorted(labels)[:MAX_PLATFORM_LABELS]


def test_files_below_the_root_are_read(tmp_path: Path) -> None:
    assert read_platform_labels(tmp_path, {}) == {}
    for path, text in (
        ("sys/class/dmi/id/sys_vendor", "Amazon EC2\n"),
        ("sys/class/dmi/id/product_name", "m5.large\n"),
        ("run/cloud-init/instance-data.json", json.dumps(DATA)),
        ("etc/podinfo/labels", POD),
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    environment = {"NODE_NAME": "node-7", "KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    assert read_platform_labels(tmp_path, environment) == AWS | {
        "k8s.app": "agent",
        "k8s.node": "node-7",
        "k8s.topology.kubernetes.io/zone": "us-east-2b",
    }


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "etc/podinfo").mkdir(parents=True)
    (tmp_path / "etc/podinfo/labels").write_text(POD * 20_000)
    assert read_platform_labels(tmp_path, {}) == {}
