"""Settings of network devices and processes in a guest: effects, refusals, and rollback."""

import json
import re
from collections.abc import Iterator

import pytest
from tests.lab.rig import Guest
from tests.lab.test_affinity import STATE, flood, interrupts, irq_named, softnet, write_settings


@pytest.fixture(autouse=True)
def left_as_found(two_socket: Guest) -> Iterator[None]:
    yield
    restored(two_socket)


def restored(guest: Guest) -> list[str]:
    return guest.run("coresteer-agent", "restore", "--state-dir", STATE).stdout.splitlines()


def scaling(guest: Guest, netdev: str) -> tuple[str | None, str | None, str | None]:
    """Return channels, their maximum and the RSS table of the inventory."""
    inventory = json.loads(guest.python("tests.lab.probe", "inventory").stdout)
    [found] = [each for each in inventory["netdevs"] if each["name"] == netdev]
    return found["channels"], found["channels_max"], found["rss"]


def grown(guest: Guest, before: dict[int, tuple[list[int], str]]) -> dict[str, int]:
    """Return the increments of eth0's queue interrupts since a reading."""
    return {
        name: sum(counts) - sum(before[irq][0])
        for irq, (counts, name) in interrupts(guest).items()
        if name.startswith("eth0-")
    }


def test_channels_are_reduced_and_restored_with_their_interrupts(two_socket: Guest) -> None:
    whole = scaling(two_socket, "eth0")
    results = write_settings(two_socket, "netdev/eth0/channels=combined 2", "netdev/eth0/channels=combined 9")
    assert [result["outcome"] for result in results] == ["applied", "refused"], results
    assert results[1]["sentence"] == "eth0 has channels for combined 8 at the most, not combined 9."
    names = [name for _, name in interrupts(two_socket).values()]
    # with so few queues igb has interrupts of their own for receiving and sending
    assert {name.rpartition("-")[2] for name in names if name.startswith("eth0-")} == {"0", "1"}, names
    assert restored(two_socket) == ["eth0's number of channels was restored to combined 8."]
    assert scaling(two_socket, "eth0") == whole
    assert irq_named(two_socket, "eth0-TxRx-7") in interrupts(two_socket)


def test_rps_moves_packets_to_another_cpu_and_is_restored(two_socket: Guest) -> None:
    results = write_settings(
        two_socket, *(f"netdev/eth0/rx-{queue}/rps=5" for queue in range(8)), "netdev/eth0/rx-8/rps=5"
    )
    assert [result["outcome"] for result in results] == ["applied"] * 8 + ["unsupported"], results
    before = softnet(two_socket)
    sent = flood(two_socket, "10.1.0.1")
    packets = [new - old for new, old in zip(softnet(two_socket), before, strict=True)]
    assert packets[5] >= 0.9 * sent, packets
    assert restored(two_socket) == [f"RPS of eth0 rx-{queue} was restored to none." for queue in reversed(range(8))]


def test_packets_follow_the_rss_table_and_it_is_restored(two_socket: Guest) -> None:
    channels, most, rss = scaling(two_socket, "eth0")
    assert (channels, most) == ("combined 8", "combined 8")
    assert rss is not None

    results = write_settings(two_socket, "netdev/eth0/rss=2,3", "netdev/eth0/rss=8", "netdev/lo/rss=0")
    assert [result["outcome"] for result in results] == ["applied", "refused", "unsupported"], results
    assert results[0]["read_back"] == "2,3"
    assert results[1]["sentence"] == "eth0 has no receive queue 8."
    before = interrupts(two_socket)
    flood(two_socket, "10.1.0.1")
    arrived = grown(two_socket, before)
    wanted = arrived["eth0-TxRx-2"] + arrived["eth0-TxRx-3"]
    assert wanted > 100
    assert wanted >= 0.9 * sum(arrived.values()), arrived

    [said] = restored(two_socket)
    assert re.match(r"RSS of eth0 was restored to [0-7,]+", said), said
    assert scaling(two_socket, "eth0") == (channels, most, rss)


def test_the_kernels_message_is_reported_and_its_default_table_is_restored(two_socket: Guest) -> None:
    """The kernel does not remove channels that a user-defined RSS table uses, until the table is reset."""
    whole = scaling(two_socket, "eth0")
    few = "netdev/eth0/channels=combined 2"
    results = write_settings(two_socket, "netdev/eth0/rss=6,7", few, "netdev/eth0/rss=0,1,2,3,4,5,6,7", few)
    assert [result["outcome"] for result in results] == ["applied", "refused", "applied", "applied"], results
    assert "requested channel counts are too low for existing indirection table" in results[1]["sentence"]
    said = restored(two_socket)
    assert said[0] == "eth0's number of channels was restored to combined 8.", said
    assert re.fullmatch("RSS of eth0 is .*, as before.", said[1]), said  # igb makes its own table anew
    assert scaling(two_socket, "eth0") == whole


def test_threads_of_a_process_are_moved_and_restored(two_socket: Guest) -> None:
    pid = two_socket.start("sleep", "60", output="/dev/null")
    [moved] = write_settings(two_socket, f"task/{pid}/affinity=4-5")
    assert (moved["outcome"], moved["found"], moved["read_back"]) == ("applied", "0-7", "4-5"), moved
    assert "Cpus_allowed_list:\t4-5" in two_socket.read(f"/proc/{pid}/status")
    assert restored(two_socket) == [f"PID {pid} was restored to 0-7."]
    assert "Cpus_allowed_list:\t0-7" in two_socket.read(f"/proc/{pid}/status")
