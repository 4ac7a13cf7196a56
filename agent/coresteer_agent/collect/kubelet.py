"""What the kubelet's read-only files say of pods: their names, and CPUs that a container has for itself.

- /var/log/pods/NAMESPACE_POD_UID (Kubernetes: pkg/kubelet/kuberuntime, BuildPodLogsDirectory)
- /var/log/containers/POD_NAMESPACE_CONTAINER-ID.log (the same, logSymlink)
- /var/lib/kubelet/cpu_manager_state (Kubernetes: pkg/kubelet/cm/cpumanager/state, CPUManagerCheckpoint)
"""

import re
from pathlib import Path
from time import monotonic

import msgspec
from msgspec import Struct

from coresteer_agent.collect.errors import ParseError
from coresteer_agent.collect.files import names, read_bytes
from coresteer_core.bounds import MAX_NAME
from coresteer_core.cpuset import CpuListError, format_cpu_list, parse_cpu_list
from coresteer_core.node.reserved import is_kubepods

CPU_MANAGER_STATE = "var/lib/kubelet/cpu_manager_state"
PODS = "var/log/pods"
CONTAINERS = "var/log/containers"
_LIST_S = 10.0
_STATIC = "static"

_POD = re.compile(
    r"(?:.*-)?pod(?P<uid>[0-9a-f]{8}(?:[-_]?[0-9a-f]{4}){3}[-_]?[0-9a-f]{12})(?:\.slice)?", re.ASCII | re.DOTALL
)
_CONTAINER = re.compile(r"(?:[a-z-]+-)?(?P<id>[0-9a-f]{64})(?:\.scope)?", re.ASCII)
"""Names of cgroups of systemd (``kubepods-podUID.slice``, ``crio-ID.scope``) and cgroupfs (``podUID``, ``ID``).

Users choose the names of theirs, so each is matched alone: no pattern may span several.
"""
_LOG = re.compile(r"(?P<pod>[^_]+)_(?P<namespace>[^_]+)_(?P<container>.+)-(?P<id>[0-9a-f]{64})\.log\Z", re.ASCII)


class PodCgroup(Struct, frozen=True):
    """The pod of a cgroup, and its container; container: its id, None for a cgroup of the whole pod."""

    uid: str
    container: str | None


class ExclusiveCpus(Struct, frozen=True):
    """CPUs that the kubelet's static CPU manager policy assigned to one container. cpus: a CPU list."""

    uid: str
    container: str
    cpus: str


class _State(Struct):
    """cpu_manager_state since Kubernetes 1.18. entries: a CPU list by container name by pod UID."""

    policy: str = msgspec.field(name="policyName")
    entries: dict[str, dict[str, str]] = {}


def parse_pod_cgroup(path: str) -> PodCgroup | None:
    """Return the pod and the container to which a cgroup belongs; None for one that is not below a pod's."""
    if not is_kubepods(path):
        return None
    names = path.split("/")
    for name, below in zip(names, [*names[1:], ""], strict=True):
        if (pod := _POD.fullmatch(name)) is not None:
            container = _CONTAINER.fullmatch(below)
            return PodCgroup(_undashed(pod["uid"]), None if container is None else container["id"])
    return None


def assigns_cpus(root: Path) -> bool:
    """Return whether the kubelet's CPU manager has the policy static, which assigns CPUs to single containers."""
    try:
        state = msgspec.json.decode(read_bytes(root, CPU_MANAGER_STATE) or b"{}", type=_State)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return False
    return state.policy == _STATIC


def parse_cpu_manager_state(text: bytes, path: str) -> list[ExclusiveCpus]:
    """Parse which containers have CPUs for themselves; none with another policy than static. Raises ParseError."""
    try:
        state = msgspec.json.decode(text, type=_State)
        if state.policy != _STATIC:
            return []
        return [
            ExclusiveCpus(_undashed(uid), container, format_cpu_list(parse_cpu_list(cpus)))
            for uid, containers in state.entries.items()
            for container, cpus in containers.items()
            if cpus
        ]
    except (msgspec.MsgspecError, UnicodeDecodeError, CpuListError) as error:
        raise ParseError(path, None, f"It is not the state of a CPU manager: {error}") from None


def read_pod_names(root: Path) -> dict[str, str]:
    """Return ``namespace/pod`` by UID, without its dashes, of the pods that have logs on the node."""
    found = {}
    for name in names(root, PODS):
        namespace, _, rest = name.partition("_")
        pod, _, uid = rest.rpartition("_")
        if namespace and pod and uid:
            found[_undashed(uid)] = f"{namespace}/{pod}"
    return found


def read_container_names(root: Path) -> dict[str, str]:
    """Return ``namespace/pod/container`` by the container's id of the containers that have logs on the node."""
    logs = map(_LOG.match, names(root, CONTAINERS))
    return {log["id"]: f"{log['namespace']}/{log['pod']}/{log['container']}" for log in logs if log is not None}


class PodNames:
    """Names of the pods and containers to which cgroups belong.

    Folders are listed again for an unknown one, at most every 10 s.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._containers: dict[str, str] = {}
        self._pods: dict[str, str] = {}
        self._listed_s = float("-inf")

    def find(self, cgroup: str | None) -> str | None:
        """Return ``namespace/pod/container`` of a cgroup, or without the container; None if unknown or not a pod's."""
        pod = None if cgroup is None else parse_pod_cgroup(cgroup)
        if pod is None:
            return None
        known = pod.uid in self._pods if pod.container is None else pod.container in self._containers
        if not known and monotonic() - self._listed_s >= _LIST_S:
            self._listed_s = monotonic()
            self._containers, self._pods = read_container_names(self._root), read_pod_names(self._root)
        found = self._containers.get(pod.container or "") or self._pods.get(pod.uid)
        return None if found is None else found[:MAX_NAME]


def _undashed(uid: str) -> str:
    return uid.replace("-", "").replace("_", "")
