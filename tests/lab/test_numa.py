"""Memory by NUMA node in a guest with two: reads, page moves, refusals, restore, and the numa policy on a process."""

import contextlib
import re
import time
from collections.abc import Iterator

import pytest
from tests.lab.fleet import Backend, agent_in, await_said
from tests.lab.nics import enforced
from tests.lab.rig import Guest
from tests.lab.test_changes import apply, await_change
from tests.lab.test_policies import allowed, await_allowed
from tests.lab.test_settings import restored
from tests.support.polling import poll

NODE_0, NODE_1 = "0-3", "4-7"
MIB = 48


@contextlib.contextmanager
def stream(guest: Guest, *, touch: str, run: str, free: bool = False, seconds: int = 120) -> Iterator[int]:
    """Run a process whose memory was touched on some CPUs and that runs on others; yield its PID."""
    bounds = ("--mib", str(MIB), "--seconds", str(seconds), *(["--free"] if free else []))
    pid = guest.start("python", "-m", "tests.lab.stream", "--touch", touch, "--run", run, *bounds, output="stream.log")
    await_said(guest, "stream.log", "ready")
    try:
        yield pid
    finally:
        guest.run("kill", str(pid), check=False)


def mib_by_node(guest: Guest, pid: int) -> dict[int, float]:
    """Return the anonymous memory of a process by NUMA node, from its numa_maps."""
    found: dict[int, float] = {}
    for line in guest.read(f"/proc/{pid}/numa_maps").splitlines():
        if "anon=" not in line:
            continue
        size = int((re.search(r"kernelpagesize_kB=(\d+)", line) or ["", "4"])[1])
        for node, pages in re.findall(r"N(\d+)=(\d+)", line):
            found[int(node)] = found.get(int(node), 0.0) + int(pages) * size / 1024
    return found


def local_share(guest: Guest, pid: int, node: int) -> float:
    found = mib_by_node(guest, pid)
    return found.get(node, 0.0) / sum(found.values())


@contextlib.contextmanager
def balancing(guest: Guest, value: str) -> Iterator[None]:
    """Turn the kernel's automatic NUMA balancing on or off: it would move pages, too."""
    path = "/proc/sys/kernel/numa_balancing"
    before = guest.read(path)
    guest.run("sh", "-c", f"echo {value} > {path}")
    try:
        yield
    finally:
        guest.run("sh", "-c", f"echo {before} > {path}")


@pytest.fixture(scope="module")
def node(two_socket: Guest, host: Backend) -> Iterator[int]:
    """Yield a node with an agent; check at the end that nothing is left to restore."""
    with balancing(two_socket, "0"), agent_in(two_socket, host):
        yield host.await_live("two-socket")["id"]
    restored(two_socket)  # forgets the originals of the processes that ended while their pages were being restored
    assert restored(two_socket) == ["Nothing to restore: every setting has its original value."]


def await_known(host: Backend, node_id: int, pid: int) -> dict[str, object]:
    """Wait until the node has reported the memory of a process; return its entry."""

    def read() -> dict[str, object] | None:
        entries = host.request("GET", f"/api/nodes/{node_id}/numa")["tasks"]
        return next((e for e in entries if e["task"]["pid"] == pid and e["task"]["bytes_by_node"]), None)

    found = poll(read, timeout_s=60, interval_s=0.5)
    assert found is not None
    return found


def test_pages_move_and_return_in_the_same_proportion(two_socket: Guest, host: Backend, node: int) -> None:
    with stream(two_socket, touch=NODE_0, run=NODE_0) as pid:
        entry = await_known(host, node, pid)
        assert entry["remote_share"] == pytest.approx(0.0, abs=0.05)
        before = mib_by_node(two_socket, pid)
        change = apply(host, node, f"task/{pid}/memory-nodes", "1")
        assert local_share(two_socket, pid, 1) >= 0.95
        host.request("POST", f"/api/changes/{change['id']}/rollback")
        await_change(host, change["id"], {"rolled_back"})
        after = mib_by_node(two_socket, pid)
        assert sum(abs(after.get(n, 0) - before.get(n, 0)) for n in (0, 1)) <= 0.1 * sum(before.values())


def test_a_node_that_does_not_exist_is_refused(two_socket: Guest, host: Backend, node: int) -> None:
    with stream(two_socket, touch=NODE_0, run=NODE_0) as pid:
        await_known(host, node, pid)
        body = {"desired": [{"key": f"task/{pid}/memory-nodes", "value": "7"}]}
        previewed = host.request("POST", f"/api/nodes/{node}/previews", body)
        assert "This node has no NUMA node 7" in previewed["refused"][0]["sentence"]


def test_the_policy_brings_a_process_to_its_memory_and_restores_it(two_socket: Guest, host: Backend, node: int) -> None:
    with stream(two_socket, touch=NODE_0, run=NODE_1, free=True) as pid:
        await_known(host, node, pid)
        spec = {"type": "numa", "min_age_s": 0}
        with enforced(host, "numa", spec, scope={"tasks": ["python*"]}):
            assert await_allowed(two_socket, pid, NODE_0) == NODE_0
            assert local_share(two_socket, pid, 0) >= 0.95
        poll(lambda: allowed(two_socket, pid) != NODE_0, timeout_s=60, interval_s=0.5)


def test_the_policy_moves_pages_to_a_process_and_its_load_stays(two_socket: Guest, host: Backend, node: int) -> None:
    with stream(two_socket, touch=NODE_0, run=NODE_1) as pid:
        await_known(host, node, pid)
        spec = {
            "type": "numa", "min_age_s": 0, "move_pages": True, "pins": {"python*": "1"},
        }  # fmt: skip
        began_s = time.monotonic()
        with enforced(host, "numa pages", spec, scope={"tasks": ["python*"]}):
            poll(lambda: local_share(two_socket, pid, 1) >= 0.95, timeout_s=60, interval_s=0.5)
            print(f"95 % local after {time.monotonic() - began_s:.0f} s")
        poll(lambda: local_share(two_socket, pid, 0) >= 0.9, timeout_s=60, interval_s=0.5)
