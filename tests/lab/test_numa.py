"""Memory by NUMA node in a guest with two: reads, page moves, refusals, restore, and the numa policy on a process."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from tests.lab.fleet import Backend, agent_in
from tests.lab.memory import CPUS, Place, balancing, place, stream
from tests.lab.nics import enforced
from tests.lab.rig import Guest
from tests.lab.test_affinity import STATE
from tests.lab.test_changes import apply, roll_back
from tests.lab.test_settings import restored
from tests.support.polling import poll

from coresteer_agent.collect.cgroup_memory import parse_numa_stat

WAIT_S = 180
"""An agent retries a failed restore after 60 s, and a policy's change stays unconfirmed for up to 60 s."""
LIFE_S = 3600
"""Longer than the tests take on a slow machine: they fail if a process ends before them."""
MIB = 24
JOB = "/sys/fs/cgroup/lab-numa/job"
PROCESSES: dict[str, tuple[int, tuple[str, ...]]] = {
    "moved": (0, ()), "pinned": (1, ()), "free": (1, ("--free",)),
    "job": (0, ("--busy", "0.6", "--cgroup", f"{JOB}/main")),
}  # fmt: skip
"""The node on which each runs, and further arguments; the memory of all is on node 0."""
SPEC = {"type": "numa", "min_age_s": 0, "move_pages": True, "pins": {"pinned": "1"}}
SCOPE = {"tasks": ["pinned", "free"]}


@pytest.fixture(scope="module")
def job(two_socket: Guest) -> Iterator[None]:
    """Make a cgroup on NUMA node 0 with the CPUs of its parent, 0-3, and below it one without a cpuset of its own."""
    begin = f"""
        mkdir -p {JOB}/main; cd {JOB}
        for parent in ../.. ..; do echo +cpuset +memory > $parent/cgroup.subtree_control; done
        echo +memory > cgroup.subtree_control
        echo {CPUS[0]} > ../cpuset.cpus; echo 0 > cpuset.mems
    """
    two_socket.run("sh", "-ec", begin)
    yield
    end = "until rmdir lab-numa/job/main; do sleep 0.1; done; rmdir -p lab-numa/job"
    two_socket.run("sh", "-ec", f"cd /sys/fs/cgroup; {end}; echo -cpuset -memory > cgroup.subtree_control")


@pytest.fixture(scope="module")
def pids(two_socket: Guest, job: None) -> Iterator[dict[str, int]]:
    """Yield processes by name; they start together, because an agent takes some rounds to see a process's load."""
    with balancing(two_socket, "0"), ExitStack() as stack:
        found = {}
        for name, (node, arguments) in PROCESSES.items():
            options = ("--busy", "0.3", *arguments)
            process = stream(two_socket, *options, touch=CPUS[0], run=CPUS[node], name=name, seconds=LIFE_S, mib=MIB)
            found[name] = stack.enter_context(process)
        yield found


@pytest.fixture(scope="module")
def agent_pid(two_socket: Guest, host: Backend, pids: dict[str, int]) -> Iterator[int]:
    """Yield the PID of an agent; check at the end that nothing is left to restore."""
    with agent_in(two_socket, host) as pid:
        yield pid
    restored(two_socket)  # forgets the originals of the processes that ended while their pages were being restored
    assert restored(two_socket) == ["Nothing to restore: every setting has its original value."]


@pytest.fixture(scope="module")
def node(host: Backend, agent_pid: int) -> int:
    found: int = host.await_live("two-socket")["id"]
    return found


def await_known(host: Backend, node_id: int, pid: int) -> dict[str, Any]:
    """Wait until the node has reported where a process has its memory and runs; return its entry."""

    def read() -> dict[str, Any] | None:
        entries = host.request("GET", f"/api/v1/nodes/{node_id}/numa")["tasks"]
        return next((e for e in entries if e["task"]["pid"] == pid and e["remote_share"] is not None), None)

    return poll(read, timeout_s=WAIT_S, interval_s=0.1)


def await_place(guest: Guest, pid: int, affinity: str, node: int) -> None:
    """Wait until a process may run on these CPUs and 95 % of its memory is on the node."""

    def reached(found: Place) -> bool:
        return found.affinity == affinity and found.share(node) >= 0.95

    poll(lambda: place(guest, pid), reached, timeout_s=WAIT_S, interval_s=0.1)


def test_a_node_that_does_not_exist_is_refused(host: Backend, node: int, pids: dict[str, int]) -> None:
    assert await_known(host, node, pids["moved"])["remote_share"] == pytest.approx(0.0, abs=0.05)
    body = {"desired": [{"key": f"task/{pids['moved']}/memory-nodes", "value": "7"}]}
    previewed = host.request("POST", f"/api/v1/nodes/{node}/previews", body)
    assert "This node has no NUMA node 7" in previewed["refused"][0]["sentence"]


def test_the_memory_of_a_cgroup_follows_its_numa_nodes_and_returns(
    two_socket: Guest, host: Backend, node: int, pids: dict[str, int]
) -> None:
    key, pid = "cgroup/lab-numa/job/cpuset.mems", pids["job"]
    await_known(host, node, pid)
    counted = parse_numa_stat(two_socket.read(f"{JOB}/main/memory.numa_stat").encode(), "")["anon"][0] / (1 << 20)
    assert MIB <= counted <= place(two_socket, pid).mib[0]
    previewed = host.request("POST", f"/api/v1/nodes/{node}/previews", {"desired": [{"key": key, "value": "1"}]})
    assert "The kernel moves about" in previewed["warnings"][0]["sentence"]
    change = apply(host, node, key, "1")
    assert place(two_socket, pid).share(1) >= 0.95
    roll_back(host, change["id"])
    assert two_socket.read(f"{JOB}/cpuset.mems") == "0"
    assert place(two_socket, pid).share(0) >= 0.95


def test_an_empty_list_of_a_cgroup_with_processes_is_restored_to_that_of_its_parent(
    two_socket: Guest, host: Backend, node: int, pids: dict[str, int]
) -> None:
    await_known(host, node, pids["job"])
    change = apply(host, node, "cgroup/lab-numa/job/cpuset.cpus", "1-2")
    assert place(two_socket, pids["job"]).affinity == "1-2"
    roll_back(host, change["id"])
    assert two_socket.read(f"{JOB}/cpuset.cpus") == CPUS[0]
    assert place(two_socket, pids["job"]).affinity == CPUS[0]


def test_a_list_that_a_cgroup_may_not_have_is_refused_with_a_reason(
    host: Backend, node: int, pids: dict[str, int]
) -> None:
    await_known(host, node, pids["job"])
    says = {
        ("job/cpuset.mems", "7"): "This node has no NUMA node 7.",
        ("job/cpuset.cpus", "2-5"): "CPUs 4-5 are not in cpuset.cpus.effective of lab-numa, the parent of",
        ("job/main/cpuset.mems", "1"): "The cpuset controller is not enabled for lab-numa/job/main: enable it",
        ("gone/cpuset.mems", "1"): "This node has no cgroup lab-numa/gone",
    }
    for (end, value), sentence in says.items():
        body = {"desired": [{"key": f"cgroup/lab-numa/{end}", "value": value}]}
        previewed = host.request("POST", f"/api/v1/nodes/{node}/previews", body)
        assert sentence in previewed["refused"][0]["sentence"]


@pytest.mark.slow("waits for several rounds of the policy, of 5 s each")
def test_the_policy_brings_memory_to_a_pinned_process_and_a_free_one_to_its_memory_and_restores_both(
    two_socket: Guest, host: Backend, node: int, pids: dict[str, int]
) -> None:
    with enforced(host, "numa", SPEC, scope=SCOPE):
        await_place(two_socket, pids["pinned"], CPUS[1], 1)
        await_place(two_socket, pids["free"], CPUS[0], 0)
    await_place(two_socket, pids["free"], "0-7", 0)
    await_place(two_socket, pids["pinned"], CPUS[1], 0)


@pytest.mark.slow("waits for the agent's reports of memory, every 5 s")
def test_pages_return_in_the_same_proportion_also_after_kill_9_during_a_move(
    two_socket: Guest, host: Backend, node: int, pids: dict[str, int], agent_pid: int
) -> None:
    """The last one: it kills the agent."""
    two_socket.run("kill", str(pids["pinned"]), str(pids["free"]))
    pid = pids["moved"]
    await_known(host, node, pid)
    before = place(two_socket, pid).share(0)
    change = apply(host, node, f"task/{pid}/memory-nodes", "1")
    assert place(two_socket, pid).share(1) >= 0.95
    roll_back(host, change["id"])
    assert place(two_socket, pid).share(0) == pytest.approx(before, abs=0.05)

    # an agent reports memory every few seconds, and a plan from before that is refused
    poll(
        lambda: await_known(host, node, pid)["remote_share"],
        lambda share: share <= 0.05,
        timeout_s=WAIT_S,
        interval_s=0.5,
    )
    body = {"plan": change["plan"], "confirm_timeout_s": 120}
    host.request("POST", f"/api/v1/nodes/{node}/changes", body)
    poll(lambda: place(two_socket, pid).share(1) > 0.1, timeout_s=WAIT_S, interval_s=0.5)
    two_socket.run("kill", "-9", str(agent_pid))
    assert place(two_socket, pid).share(1) > 0.1
    two_socket.run("coresteer-agent", "restore", "--state-dir", STATE)
    assert place(two_socket, pid).share(0) == pytest.approx(before, abs=0.05)
