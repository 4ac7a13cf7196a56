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


STEERING = {
    "kernel/rps_sock_flow_entries": ("0", "32768", "/proc/sys/net/core/rps_sock_flow_entries"),
    "kernel/netdev_budget": ("300", "600", "/proc/sys/net/core/netdev_budget"),
    "kernel/busy_read": ("0", "50", "/proc/sys/net/core/busy_read"),
    "netdev/eth0/rx-0/rps_flow_cnt": ("0", "4096", "/sys/class/net/eth0/queues/rx-0/rps_flow_cnt"),
    "netdev/eth0/threaded": ("0", "1", "/sys/class/net/eth0/threaded"),
}
"""Value before, another one, and the kernel's file of it."""


def test_rfs_napi_threads_and_limits_of_the_softirq_are_set_and_restored(two_socket: Guest) -> None:
    results = write_settings(two_socket, *(f"{key}={value}" for key, (_, value, _) in STEERING.items()))
    found = [(result["outcome"], result["found"], result["read_back"]) for result in results]
    assert found == [("applied", was, value) for was, value, _ in STEERING.values()], results
    assert [two_socket.read(file).strip() for _, _, file in STEERING.values()] == [v for _, v, _ in STEERING.values()]
    assert len(restored(two_socket)) == len(STEERING)
    assert [two_socket.read(file).strip() for _, _, file in STEERING.values()] == [v for v, _, _ in STEERING.values()]


def test_the_kernel_rounds_sizes_of_rfs_tables_up_so_others_are_refused(two_socket: Guest) -> None:
    refused = "kernel/rps_sock_flow_entries=40000", "netdev/eth0/rx-0/rps_flow_cnt=3000"
    assert [result["outcome"] for result in write_settings(two_socket, *refused)] == ["refused"] * 2
    for file in ("/proc/sys/net/core/rps_sock_flow_entries", "/sys/class/net/eth0/queues/rx-0/rps_flow_cnt"):
        two_socket.run("sh", "-c", f"echo 3000 > {file}")
        assert two_socket.read(file).strip() == "4096"
        two_socket.run("sh", "-c", f"echo 0 > {file}")


def test_xps_selects_the_queue_and_is_restored(two_socket: Guest) -> None:
    file = "/sys/class/net/eth0/queues/tx-3/xps_cpus"
    was = two_socket.read(file)
    [result] = write_settings(two_socket, "netdev/eth0/tx-3/xps=6")
    assert (result["outcome"], result["read_back"]) == ("applied", "6"), result
    assert int(two_socket.read(file).replace(",", ""), 16) == 1 << 6
    [said] = restored(two_socket)
    assert said.startswith("XPS of eth0 tx-3 was restored to "), said
    assert two_socket.read(file) == was


def test_a_rule_for_a_flow_is_refused_by_a_nic_that_has_none_and_nothing_is_left(two_socket: Guest) -> None:
    """The emulated igb states the size of a table, but has ntuple fixed; e1000e, vmxnet3 and virtio have no table."""
    results = write_settings(
        two_socket, "netdev/eth0/flow-rule/3=flow-type tcp4 dst-port 80 action 3", "netdev/eth0/ntuple=on"
    )
    assert [result["outcome"] for result in results] == ["unsupported"] * 2, results
    assert "its driver has it fixed" in results[1]["sentence"], results
    assert restored(two_socket) == ["Nothing to restore: every setting has its original value."]


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
