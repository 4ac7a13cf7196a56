"""A policy created on the host, evaluated and enforced by the agent in a guest, on real traffic."""

import json
import re
import time

from tests.lab.fleet import Backend, await_said
from tests.lab.machines import PEER
from tests.lab.nics import enforced
from tests.lab.rig import Guest

SECONDS = 90


def allowed(guest: Guest, pid: int) -> str:
    """Return the affinity of a process."""
    found = re.search(r"^Cpus_allowed_list:\s*(\S+)$", guest.read(f"/proc/{pid}/status"), re.MULTILINE)
    assert found is not None
    return found[1]


def await_allowed(guest: Guest, pid: int, pattern: str) -> str:
    end = time.monotonic() + SECONDS
    while not re.fullmatch(pattern, cpus := allowed(guest, pid)):
        assert time.monotonic() < end, f"It may run on {cpus}."
        time.sleep(0.5)  # the kernel tells nobody when an affinity changes
    return cpus


def test_a_process_is_moved_to_its_packets_and_restored_with_the_policy(
    two_socket: Guest, host: Backend, agent: int
) -> None:
    bounds = ("--seconds", str(4 * SECONDS))
    consumer = two_socket.start("python", "-m", "tests.lab.consumer", "--port", "9001", *bounds, output="consumer")
    await_said(two_socket, "consumer", "ready")
    options = ("--to", "10.1.0.1", "--port", "9001", "--kib-per-s", "500", *bounds)
    sender = two_socket.start(
        *("ip", "netns", "exec", PEER, "python", "-m", "tests.lab.traffic", "stream", *options), output="stream"
    )
    spec = {"type": "network-process", "min_bytes_per_s": 20_000, "max_distance": "cpu"}
    with enforced(host, "near", spec) as policy:
        cpu = int(await_allowed(two_socket, consumer, r"\d+"))

        since = len((two_socket.share / "consumer").read_text())
        await_lines_since(two_socket, since)
        lines = (two_socket.share / "consumer").read_text()[since:].splitlines()[1:]
        cells = [cell for line in lines if line.endswith("}") for cell in json.loads(line)["received"]]
        near = sum(count for protocol, task, _, count in cells if protocol == task == cpu)
        assert near >= 0.95 * sum(count for *_, count in cells), cells
        decisions = host.request("GET", f"/api/v1/nodes/{node_id(host)}/decisions")
        [decision] = [d for d in decisions if d["change_id"] and d["policy_id"] == policy]
        assert f"CPU {cpu}" in decision["evaluation"]["actions"][0]["reason"]

    assert await_allowed(two_socket, consumer, "0-7") == "0-7"
    two_socket.run("kill", str(sender), str(consumer))


def await_lines_since(guest: Guest, since: int) -> None:
    """Return the next four lines of the consumer, which prints one per second."""
    end = time.monotonic() + 30
    while (guest.share / "consumer").read_text().count("\n", since) < 5:
        assert time.monotonic() < end
        time.sleep(0.2)


def node_id(host: Backend) -> int:
    found: int = host.await_live("two-socket")["id"]
    return found
