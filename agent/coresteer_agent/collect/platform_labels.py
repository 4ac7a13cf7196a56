"""Labels of the platform that the machine runs on: of a cloud and of Kubernetes, from files and the environment only.

No metadata service is asked. Labels that do not fit their bounds are left out.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from coresteer_core.bounds import LABEL_NAME, MAX_LABEL

MAX_PLATFORM_LABELS = 32
_MAX_FILE_BYTES = 1024 * 1024
_DMI = Path("sys/class/dmi/id")
_INSTANCE_DATA = Path("run/cloud-init/instance-data.json")
_POD_LABELS = Path("etc/podinfo/labels")

_PROVIDERS = (
    ("sys_vendor", r"Amazon EC2", "aws"),
    ("board_asset_tag", r"i-[0-9a-f]{8,17}", "aws"),  # also on its bare metal
    ("product_name", r"Google Compute Engine", "gce"),
    ("chassis_asset_tag", r"7783-7084-3265-9085-8269-3286-77", "azure"),  # its other fields are those of any Hyper-V
    ("chassis_asset_tag", r"OracleCloud\.com", "oracle"),
    ("product_name", r"Alibaba Cloud ECS", "aliyun"),
    ("sys_vendor", r"(?:Akamai|Linode)", "akamai"),
    ("sys_vendor", r"DigitalOcean", "digitalocean"),
    ("sys_vendor", r"Hetzner", "hetzner"),
    ("sys_vendor", r"Scaleway", "scaleway"),
    ("sys_vendor", r"UpCloud", "upcloud"),
    ("sys_vendor", r"Vultr", "vultr"),
    ("product_name", r"OpenStack (?:Nova|Compute)", "openstack"),
)
"""Fields of DMI, their values, and cloud-init's name of the cloud (tools/ds-identify has the same tests)."""
_NO_CLOUD = ("none", "nocloud", "unknown")
_AWS_TYPE = re.compile(r"[a-z0-9-]+\.[a-z0-9-]+", re.ASCII)
_POD_LABEL = re.compile(r'([^\s="]+)="([A-Za-z0-9._-]*)"', re.ASCII)
_OF_A_REVISION = ("controller-revision-hash", "pod-template-generation", "pod-template-hash")
"""Labels of pods that say nothing about the node."""


def read_platform_labels(root: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the labels of the platform below root, at most 32; environment: of the agent's own process."""
    dmi = {name: _read(root / _DMI / name).decode(errors="replace").strip() for name, _, _ in _PROVIDERS}
    labels = parse_dmi(dmi) | parse_instance_data(_read(root / _INSTANCE_DATA))
    labels |= parse_pod_labels(_read(root / _POD_LABELS).decode(errors="replace")) | kubernetes_labels(environment)
    return bounded(labels.items())


def _read(path: Path) -> bytes:
    """Return a file's content, empty if it is absent, not readable or too large to be what it should be."""
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_FILE_BYTES + 1)
    except OSError:
        return b""
    return content if len(content) <= _MAX_FILE_BYTES else b""


def parse_dmi(fields: Mapping[str, str]) -> dict[str, str]:
    """Return the cloud, and on AWS the instance's type, of the files in /sys/class/dmi/id, by their names."""
    for field, value, provider in _PROVIDERS:
        if re.fullmatch(value, fields.get(field, "")):
            product = fields.get("product_name", "")
            has_type = provider == "aws" and _AWS_TYPE.fullmatch(product)
            return {"cloud.provider": provider} | ({"cloud.instance-type": product} if has_type else {})
    return {}


class _V1(Struct, frozen=True):
    cloud_name: str | None = None
    region: str | None = None
    availability_zone: str | None = None


class _AzureCompute(Struct, frozen=True, rename={"vm_size": "vmSize"}):
    vm_size: str | None = None


class _Imds(Struct, frozen=True):
    compute: _AzureCompute = _AzureCompute()


class _MetaData(Struct, frozen=True, rename={"instance_type": "instance-type"}):
    instance_type: str | None = None
    imds: _Imds = _Imds()


class _Ds(Struct, frozen=True):
    meta_data: _MetaData = _MetaData()


class _InstanceData(Struct, frozen=True):
    """What labels need of cloud-init's instance data; the type of an instance is where its cloud puts it."""

    v1: _V1 = _V1()
    ds: _Ds = _Ds()


def parse_instance_data(content: bytes) -> dict[str, str]:
    """Return the cloud, region, zone and instance type in cloud-init's instance-data.json; empty for anything else."""
    try:
        data = msgspec.json.decode(content, type=_InstanceData)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}
    if data.v1.cloud_name in _NO_CLOUD:
        return {}
    found = {
        "cloud.provider": data.v1.cloud_name,
        "cloud.region": data.v1.region,
        "cloud.zone": data.v1.availability_zone,
        "cloud.instance-type": data.ds.meta_data.instance_type or data.ds.meta_data.imds.compute.vm_size,
    }
    return {name: value for name, value in found.items() if value}


def parse_pod_labels(text: str) -> dict[str, str]:
    """Return the labels in a file of Kubernetes' downward API, which has lines such as app="web"."""
    matches = [match for line in text.split("\n") if (match := _POD_LABEL.fullmatch(line.strip()))]
    return {f"k8s.{match[1]}": match[2] for match in matches if match[1] not in _OF_A_REVISION}


def kubernetes_labels(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the node that NODE_NAME names. Outside a pod, that variable is another program's."""
    node = environment.get("NODE_NAME")
    return {"k8s.node": node} if node and "KUBERNETES_SERVICE_HOST" in environment else {}


def bounded(labels: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return those labels that can be stored and selected, of too many the first by name."""
    valid = {
        name: value
        for name, value in sorted(labels)
        if len(name) <= MAX_LABEL and re.fullmatch(LABEL_NAME, name) and len(value) <= MAX_LABEL and value.isprintable()
    }
    return dict(list(valid.items())[:MAX_PLATFORM_LABELS])
