"""Changes requested at a backend on the host, applied by an agent in a guest, verified in the guest's kernel."""

import time
from typing import Any

from tests.lab.fleet import Backend, await_said, join
from tests.lab.rig import Guest
from tests.lab.test_affinity import STATE, interrupts, irq_named

OPEN = {"applying", "unconfirmed"}


def apply(host: Backend, node_id: int, key: str, value: str, *, timeout_s: int = 120) -> dict[str, Any]:
    """Preview and apply a change, and wait until it is applied."""
    previewed = host.request("POST", f"/api/v1/nodes/{node_id}/previews", {"desired": [{"key": key, "value": value}]})
    assert previewed["can_apply"], previewed
    asked = {"plan": previewed["plan"], "confirm_timeout_s": timeout_s}
    change = host.request("POST", f"/api/v1/nodes/{node_id}/changes", asked)
    return await_change(host, change["id"], {"unconfirmed"})


def roll_back(host: Backend, change_id: str) -> dict[str, Any]:
    host.command(change_id, "rollback")
    return await_change(host, change_id, {"rolled_back"})


def await_change(host: Backend, change_id: str, states: set[str], *, seconds: float = 60) -> dict[str, Any]:
    end = time.monotonic() + seconds
    while (change := host.request("GET", f"/api/v1/changes/{change_id}"))["state"] not in states:
        assert time.monotonic() < end, change
        time.sleep(0.1)
    found: dict[str, Any] = change
    return found


def affinity(guest: Guest, irq: int) -> str:
    return guest.read(f"/proc/irq/{irq}/smp_affinity_list")


def test_a_change_is_applied_in_the_guest_and_persists_when_confirmed(
    two_socket: Guest, host: Backend, agent: int
) -> None:
    node_id = host.await_live("two-socket")["id"]
    irq = irq_named(two_socket, "eth1-TxRx-2")
    before = affinity(two_socket, irq)
    change = apply(host, node_id, f"irq/{irq}/affinity", "5")
    assert affinity(two_socket, irq) == "5"
    host.command(change["id"], "confirm")
    await_change(host, change["id"], {"confirmed"})
    assert affinity(two_socket, irq) == "5"
    roll_back(host, change["id"])
    assert affinity(two_socket, irq) == before


def test_restore_works_after_kill_9(two_socket: Guest, host: Backend, agent: int) -> None:
    node_id = host.await_live("two-socket")["id"]
    irq = irq_named(two_socket, "eth0-TxRx-5")
    before = affinity(two_socket, irq)
    change = apply(host, node_id, f"irq/{irq}/affinity", "6")
    two_socket.run("kill", "-9", str(agent))
    assert affinity(two_socket, irq) == "6"
    restored = two_socket.run("coresteer-agent", "restore", "--state-dir", STATE)
    assert f"IRQ {irq} was restored to {before}" in restored.stdout
    assert affinity(two_socket, irq) == before

    again = join(two_socket, host)
    assert await_change(host, change["id"], {"rolled_back", "failed"})["state"] == "rolled_back"
    two_socket.run("kill", str(again))


def test_a_change_of_one_of_three_guests_does_not_affect_the_others(trio: list[Guest], host: Backend) -> None:
    agents = [join(guest, host) for guest in trio]
    nodes = [host.await_live(guest.machine.name) for guest in trio]
    assert len({node["id"] for node in nodes}) == 3
    irqs = [next(irq for irq, (_, name) in interrupts(guest).items() if name.endswith("input.2")) for guest in trio]
    before = [affinity(guest, irq) for guest, irq in zip(trio, irqs, strict=True)]
    target = "0" if before[1] != "0" else "1"
    change = apply(host, nodes[1]["id"], f"irq/{irqs[1]}/affinity", target)
    after = [affinity(guest, irq) for guest, irq in zip(trio, irqs, strict=True)]
    assert after == [before[0], target, before[2]]
    roll_back(host, change["id"])
    assert affinity(trio[1], irqs[1]) == before[1]
    for guest, pid in zip(trio, agents, strict=True):
        guest.run("kill", str(pid))


def test_guests_on_the_bridge_reach_each_other(trio: list[Guest]) -> None:
    sink = trio[1].start("python", "-m", "tests.lab.traffic", "serve", "--seconds", "30", output="sink.log")
    await_said(trio[1], "sink.log", "ready")
    asked = trio[0].python("tests.lab.traffic", "request", "--to", "10.1.0.2", "--count", "200", "--flows", "4")
    assert '"requests": 200' in asked.stdout
    trio[1].run("kill", str(sink))
