"""Service classes in a guest with cgroup version 2: static weights, adjusted weights, and the gate."""

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest
from tests.lab.fleet import Backend, agent_in, await_said
from tests.lab.nics import enforced
from tests.lab.rig import Guest
from tests.lab.test_changes import await_change, roll_back
from tests.support.polling import poll

T = TypeVar("T")

GROUPS = "/sys/fs/cgroup/lab"
PORTS = {"gold": 9011, "bronze": 9012}
OWN = {"gold": "150", "bronze": "100"}
"""The groups' weights before anybody else sets them."""
SOCKET = "/run/coresteer/gate.sock"
WORKER = """
import signal, sys
from coresteer_gate import Gate
with Gate(patience_s=None).enter(sys.argv[1]) as entered:
    print(f"in as {entered.name or 'nobody'}, {entered.priority}", flush=True)
    signal.pause()
"""
"""Goes in and stays until it is killed."""


@pytest.fixture(scope="module")
def node(small_vm: Guest, host: Backend) -> Iterator[int]:
    """Yield a node with an agent, and a server of each class in its own cgroup; check that weights are restored."""
    for group in ("/sys/fs/cgroup", GROUPS):
        small_vm.run("sh", "-ec", f"mkdir -p {group}; echo +cpu +io > {group}/cgroup.subtree_control")
    servers = []
    for name, port in PORTS.items():
        own = f"mkdir {GROUPS}/{name}; cd {GROUPS}/{name}; echo {OWN[name]} > cpu.weight; echo $$ > cgroup.procs"
        worker = f"exec python -m tests.lab.worker {name} --port {port} --cpu 1 --work-ms 120"
        servers.append(small_vm.start("sh", "-ec", f"{own}; {worker}", output=name))
    with agent_in(small_vm, host):
        for name in PORTS:
            await_said(small_vm, name, "ready")
        yield host.await_live("small-vm")["id"]
    small_vm.run("kill", *map(str, servers))
    assert cpu_weights(small_vm) == OWN


def cpu_weights(guest: Guest) -> dict[str, str]:
    said = guest.run("cat", *(f"{GROUPS}/{name}/cpu.weight" for name in PORTS)).stdout
    return dict(zip(PORTS, said.split(), strict=True))


def cpu_usecs(guest: Guest) -> dict[str, int]:
    """Return the CPU time of each cgroup, µs."""
    said = guest.run("grep", "-h", "^usage_usec", *(f"{GROUPS}/{name}/cpu.stat" for name in PORTS)).stdout
    return dict(zip(PORTS, map(int, said.split()[1::2]), strict=True))


def classes(host: Backend, node_id: int) -> dict[str, dict[str, Any]]:
    """Return the latest figures of each class of the policy in force, by name; empty before the first report."""
    [policy] = host.request("GET", f"/api/v1/nodes/{node_id}/classes")["policies"]
    return {each["name"]: each for each in policy["reported"] or []}


def wait_for(read: Callable[[], T], accept: Callable[[T], object]) -> T:
    """Return the first accepted value; neither the kernel nor the backend sends an event for it."""
    return poll(read, accept, timeout_s=120, interval_s=0.2)


def test_a_killed_worker_releases_its_slot_and_without_a_policy_all_are_admitted(
    small_vm: Guest, host: Backend, node: int
) -> None:
    graded = [{"name": "first", "target_percent": 90}, {"name": "last", "target_percent": 50}]
    with enforced(host, "gate", {"type": "service-class", "classes": graded, "window_s": 60, "slots": 1}):
        wait_for(lambda: classes(host, node), bool)
        small_vm.run("test", "-S", SOCKET)
        killed = small_vm.start("python", "-c", WORKER, "last", output="killed")
        await_said(small_vm, "killed", "in as last, 0")
        second = small_vm.start("python", "-c", WORKER, "first", output="second")
        third = small_vm.start("python", "-c", WORKER, "last", output="third")
        figures = wait_for(lambda: classes(host, node), lambda seen: [c["waiting"] for c in seen.values()] == [1, 1])
        assert [each["active"] for each in figures.values()] == [0, 1]
        assert (small_vm.share / "second").read_text() + (small_vm.share / "third").read_text() == ""

        small_vm.run("kill", "-9", str(killed))
        await_said(small_vm, "second", "in as first, 6")
        figures = wait_for(lambda: classes(host, node), lambda seen: seen["first"]["active"] == 1)
        counted = {name: (each["requests"], each["satisfied"], each["source"]) for name, each in figures.items()}
        assert counted == {"first": (1, 0, "gate"), "last": (2, 0, "gate")}
        assert (small_vm.share / "third").read_text() == ""
    await_said(small_vm, "third", "in as nobody, None")
    small_vm.run("test", "!", "-e", SOCKET)
    small_vm.run("kill", str(second), str(third))


def test_weights_are_written_to_cgroups_and_restored(small_vm: Guest, host: Backend, node: int) -> None:
    desired = [
        {"key": "cgroup/lab/gold/cpu.weight", "value": "300"},
        {"key": "cgroup/lab/gold/io.weight", "value": "50"},
    ]
    files = [f"{GROUPS}/gold/cpu.weight", f"{GROUPS}/gold/io.weight"]
    before = small_vm.run("cat", *files).stdout
    assert before == "150\ndefault 100\n"
    # its processes are looked for every five seconds
    previewed = wait_for(
        lambda: host.request("POST", f"/api/v1/nodes/{node}/previews", {"desired": desired}),
        lambda seen: seen["can_apply"],
    )
    change = host.request("POST", f"/api/v1/nodes/{node}/changes", {"plan": previewed["plan"]})
    applied = await_change(host, change["id"], {"unconfirmed"})
    assert [(result["found"], result["read_back"]) for result in applied["results"]] == [("150", "300"), ("100", "50")]
    assert small_vm.run("cat", *files).stdout == "300\ndefault 50\n"
    roll_back(host, change["id"])
    assert small_vm.run("cat", *files).stdout == before


def test_weights_are_adjusted_until_the_class_meets_its_deadline_and_restored_with_the_policy(
    small_vm: Guest, host: Backend, node: int
) -> None:
    """Class gold requires two thirds of the CPU; its initial weight gives it less."""
    graded = [
        {"name": "gold", "target_percent": 100, "deadline_ms": 180, "match": {"listens": [PORTS["gold"]]}},
        {"name": "bronze", "target_percent": 50, "match": {"cgroups": ["/lab/bronze"]}},
    ]
    spec = {"type": "service-class", "classes": graded, "window_s": 2, "slots": 4, "weights": ["cpu"]}
    with enforced(host, "weights", spec):
        wait_for(lambda: cpu_weights(small_vm), lambda seen: int(seen["gold"]) >= 10 * int(seen["bronze"]))
        before = cpu_usecs(small_vm)
        figures = wait_for(
            lambda: classes(host, node), lambda seen: seen["gold"]["satisfied"] >= 0.8 * seen["gold"]["requests"] > 0
        )
        had = {name: usecs - before[name] for name, usecs in cpu_usecs(small_vm).items()}
        assert had["gold"] > 2 * had["bronze"], had
        assert {(each["source"], each["tasks"]) for each in figures.values()} == {("gate", 1)}, figures
    assert wait_for(lambda: cpu_weights(small_vm), lambda seen: seen == OWN) == OWN
