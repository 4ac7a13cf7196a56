"""Interrupt coalescing of a NIC in a guest: its driver's handling of values, and the effect on interrupts."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.lab.fleet import Backend, agent_in
from tests.lab.nics import await_value, enforced, ethtool, ethtool_value, load, sink
from tests.lab.rig import Guest
from tests.lab.test_changes import apply, await_change, roll_back
from tests.lab.test_settings import restored
from tests.support.polling import poll

RX_USECS = "netdev/eth0/coalesce/rx-usecs"
IGB_OWN = "3"
"""Its driver's default: not 3 µs but a pace of its own."""
BOUND_US = 5000


@pytest.fixture(scope="module")
def node(two_socket: Guest, host: Backend) -> Iterator[int]:
    """Yield a node with an agent; check at the end that all values are restored and the journal is empty."""
    before = ethtool(two_socket, "eth0")
    with agent_in(two_socket, host):
        yield host.await_live("two-socket")["id"]
    assert restored(two_socket) == ["Nothing to restore: every setting has its original value."]
    assert ethtool(two_socket, "eth0") == before


@pytest.fixture(scope="module")
def flooded(two_socket: Guest) -> Iterator[None]:
    with sink(two_socket), load(two_socket, "flood", "--to", "10.1.0.1", "--rate", "4000"):
        yield


def coalescing(host: Backend, node_id: int, netdev: str) -> dict[str, Any]:
    found: dict[str, Any] = host.request("GET", f"/api/v1/nodes/{node_id}/netdevs/{netdev}/coalescing")
    return found


def preview(host: Backend, node_id: int, key: str, value: str) -> dict[str, Any]:
    found: dict[str, Any] = host.request(
        "POST", f"/api/v1/nodes/{node_id}/previews", {"desired": [{"key": key, "value": value}]}
    )
    return found


def failed(host: Backend, node_id: int, key: str, value: str) -> dict[str, Any]:
    """Return the single result of a change that failed."""
    previewed = preview(host, node_id, key, value)
    assert previewed["can_apply"], previewed
    change = host.request("POST", f"/api/v1/nodes/{node_id}/changes", {"plan": previewed["plan"]})
    ended = await_change(host, change["id"], {"failed", "rolled_back", "unconfirmed"})
    assert ended["state"] == "failed", ended
    [result] = ended["results"]
    found: dict[str, Any] = result
    return found


def response(
    host: Backend, node_id: int, netdev: str, name: str, requested: str, *, seconds: float = 60
) -> dict[str, Any]:
    """Return what the agent learned about a value written to the driver."""
    end = time.monotonic() + seconds
    while True:
        everything = coalescing(host, node_id, netdev)["responses"]
        found: list[dict[str, Any]] = [
            each for each in everything if (each["name"], each["requested"]) == (name, requested)
        ]
        if found and found[0]["verdict"] != "accepted":
            return found[0]
        assert time.monotonic() < end, everything
        time.sleep(0.5)


def test_a_value_is_written_to_the_nic_and_rolled_back(two_socket: Guest, host: Backend, node: int) -> None:
    change = apply(host, node, RX_USECS, "100")
    assert ethtool_value(two_socket, "eth0", "rx-usecs") == "100"
    roll_back(host, change["id"])
    assert ethtool_value(two_socket, "eth0", "rx-usecs") == IGB_OWN
    poll(lambda: preview(host, node, RX_USECS, "5")["plan"]["actions"][0]["was"] == IGB_OWN)


def test_a_refusal_of_the_driver_has_the_kernels_message_and_is_not_retried(
    two_socket: Guest, host: Backend, node: int
) -> None:
    assert "Invalid argument" in failed(host, node, RX_USECS, "5")["sentence"]
    assert ethtool_value(two_socket, "eth0", "rx-usecs") == IGB_OWN
    assert response(host, node, "eth0", "coalesce/rx-usecs", "5")["verdict"] == "refused"
    again = preview(host, node, RX_USECS, "5")
    assert [refusal["code"] for refusal in again["refused"]] == ["learned"]
    assert "Invalid argument" in again["refused"][0]["sentence"]


def test_a_rounded_ring_size_is_rolled_back_and_the_next_size_is_named(
    two_socket: Guest, host: Backend, node: int
) -> None:
    result = failed(host, node, "netdev/eth0/ring/rx", "500")
    assert (result["found"], result["read_back"]) == ("256", "504"), result
    assert ethtool_value(two_socket, "eth0", "RX") == "256"
    learned = response(host, node, "eth0", "ring/rx", "500")
    assert (learned["verdict"], learned["read_back"]) == ("rounded", "504")
    assert "use 504" in preview(host, node, "netdev/eth0/ring/rx", "500")["refused"][0]["sentence"]


def test_a_driver_that_ignores_a_value_is_detected(trio: list[Guest], host: Backend) -> None:
    with agent_in(trio[0], host):
        node_id = host.await_live("trio-1")["id"]
        failed(host, node_id, "netdev/eth0/coalesce/adaptive-rx", "on")
        learned = response(host, node_id, "eth0", "coalesce/adaptive-rx", "on")
        assert (learned["verdict"], learned["read_back"]) == ("ignored", "off")


@pytest.mark.usefixtures("flooded")
def test_the_policy_coalesces_up_to_its_limit_and_the_original_is_restored(
    two_socket: Guest, host: Backend, node: int
) -> None:
    await_point(host, node, int(IGB_OWN))
    spec = {"type": "coalescing", "max_added_us": BOUND_US, "packets_per_interrupt": 64, "min_packets_per_s": 100}
    with enforced(host, "few interrupts", spec, damping={"dwell_s": 5}):
        await_value(two_socket, "eth0", "rx-usecs", str(BOUND_US), seconds=180)
        waiting = await_point(host, node, BOUND_US)
    own = await_point(host, node, int(IGB_OWN))
    assert waiting >= 1.5 * own  # twenty times, unless the host is so busy that packets gather by themselves
    await_value(two_socket, "eth0", "rx-usecs", IGB_OWN)
    await_seen(host, node, "coalesce/rx-usecs", IGB_OWN)


@pytest.mark.usefixtures("flooded")
def test_an_ineffective_value_is_detected_by_its_interrupts(host: Backend, node: int) -> None:
    """igb uses the lower 13 bits of the value, which are 0 for 8192 (kernel: igb_main.c, igb_write_itr)."""
    change = apply(host, node, RX_USECS, "8192")
    learned = response(host, node, "eth0", "coalesce/rx-usecs", "8192", seconds=180)
    assert (learned["verdict"], learned["read_back"]) == ("no_effect", "8192"), learned
    roll_back(host, change["id"])


def await_seen(host: Backend, node_id: int, name: str, value: str, *, seconds: float = 60) -> None:
    """Wait until the backend has a value of eth0."""
    end = time.monotonic() + seconds
    while (params := coalescing(host, node_id, "eth0")["params"])[name] != value:
        assert time.monotonic() < end, params
        time.sleep(0.2)


def await_point(host: Backend, node_id: int, rx_usecs: int, *, seconds: float = 120) -> float:
    """Return the packets per interrupt measured at a value of rx-usecs over at least 5 s."""
    end = time.monotonic() + seconds
    while True:
        points = coalescing(host, node_id, "eth0")["points"]
        for point in points:
            if point["rx_usecs"] == rx_usecs and point["seconds"] >= 5 and point["packets_per_interrupt"] is not None:
                found: float = point["packets_per_interrupt"]
                return found
        assert time.monotonic() < end, points
        time.sleep(0.5)
