"""Interrupt affinity in a guest: moves, refusals of the kernel, and their reasons."""

import json
import re
from typing import Any

import pytest
from tests.lab.machines import PEER
from tests.lab.rig import Guest

STATE = "/var/lib/coresteer"


def write_settings(guest: Guest, *desired: str) -> list[dict[str, Any]]:
    """Return the executor's results for desired values of the form key=value."""
    results: list[dict[str, Any]] = json.loads(guest.python("tests.lab.probe", "apply", STATE, *desired).stdout)
    return results


def interrupts(guest: Guest) -> dict[int, tuple[list[int], str]]:
    """Return counts by CPU and the name, by interrupt."""
    rows = re.findall(r"^ *(\d+):((?: +\d+)+) +(?:\S+ +)+?(\S+)$", guest.read("/proc/interrupts"), re.MULTILINE)
    return {int(irq): (list(map(int, counts.split())), name) for irq, counts, name in rows}


def softnet(guest: Guest) -> list[int]:
    """Return the packets processed by CPU."""
    return [int(line.split()[0], 16) for line in guest.read("/proc/net/softnet_stat").splitlines()]


def flood(guest: Guest, address: str, *, count: int = 900) -> int:
    """Send UDP from the guest's peer, too slowly for NAPI polling; return the number of packets."""
    options = ("--to", address, "--flows", "16", "--count", str(count), "--rate", "300")
    done = guest.run("ip", "netns", "exec", PEER, "python", "-m", "tests.lab.traffic", "flood", *options)
    sent: int = json.loads(done.stdout)["packets"]
    return sent


@pytest.mark.parametrize(
    ("machine", "netdev", "address"),
    [("two_socket", "eth0", "10.1.0.1"), ("two_socket", "eth1", "10.2.0.1"), ("small_vm", "eth1", "10.2.0.1")],
)
def test_interrupts_and_packets_follow_the_affinity(
    request: pytest.FixtureRequest, machine: str, netdev: str, address: str
) -> None:
    guest: Guest = request.getfixturevalue(machine)
    before = interrupts(guest)
    flood(guest, address)
    after = interrupts(guest)
    grown = {
        irq: [new - old for new, old in zip(counts, before[irq][0], strict=True)]
        for irq, (counts, name) in after.items()
        if name.startswith(f"{netdev}-")
    }
    busiest = max(grown, key=lambda irq: sum(grown[irq]))
    origin = max(range(len(grown[busiest])), key=lambda cpu: grown[busiest][cpu])
    target = (origin + 1) % 3  # not CPU 3, which is isolated on one of the machines

    [moved] = write_settings(guest, f"irq/{busiest}/affinity={target}")
    assert (moved["outcome"], moved["read_back"]) == ("applied", str(target)), moved

    counts, packets = interrupts(guest)[busiest][0], softnet(guest)
    sent = flood(guest, address)
    counts = [new - old for new, old in zip(interrupts(guest)[busiest][0], counts, strict=True)]
    packets = [new - old for new, old in zip(softnet(guest), packets, strict=True)]
    assert counts[target] > 100
    assert counts[target] >= 0.95 * sum(counts), counts
    assert packets[target] >= 0.9 * sent, packets
    assert guest.read(f"/proc/irq/{busiest}/effective_affinity_list") == str(target)
    restored = guest.run("coresteer-agent", "restore", "--state-dir", STATE)
    assert f"IRQ {busiest} was restored to" in restored.stdout


def irq_named(guest: Guest, name: str) -> int:
    return next(irq for irq, (_, found) in interrupts(guest).items() if found == name)


def test_a_managed_interrupt_is_refused_as_managed(two_socket: Guest) -> None:
    [result] = write_settings(two_socket, f"irq/{irq_named(two_socket, 'nvme0q3')}/affinity=1")
    assert result["outcome"] == "refused"
    assert "cannot be moved" in result["sentence"]
    [free] = write_settings(two_socket, f"irq/{irq_named(two_socket, 'nvme0q0')}/affinity=2")
    assert free["outcome"] == "applied"


def test_the_timer_is_refused_as_bound_to_its_cpu(small_vm: Guest) -> None:
    [result] = write_settings(small_vm, "irq/0/affinity=1")
    assert (result["outcome"], "cannot be moved" in result["sentence"]) == ("refused", True)


def test_a_missing_interrupt_is_unsupported(small_vm: Guest) -> None:
    [result] = write_settings(small_vm, "irq/9999/affinity=1")
    assert result["outcome"] == "unsupported"


def test_an_isolated_cpu_is_refused_by_the_guard(small_vm: Guest) -> None:
    [result] = write_settings(small_vm, f"irq/{irq_named(small_vm, 'eth1-rx-0')}/affinity=3")
    assert result["outcome"] == "refused"
    assert "isolcpus" in result["sentence"]


def test_an_offline_cpu_is_refused(two_socket: Guest) -> None:
    irq = irq_named(two_socket, "eth0-TxRx-1")
    online = "/sys/devices/system/cpu/cpu6/online"
    two_socket.run("sh", "-c", f"echo 0 > {online}")
    try:
        [result] = write_settings(two_socket, f"irq/{irq}/affinity=6")
    finally:
        two_socket.run("sh", "-c", f"echo 1 > {online}")
    assert result["outcome"] == "refused"
    assert "CPU 6 is not online" in result["sentence"]
    [result] = write_settings(two_socket, f"irq/{irq}/affinity=6")
    assert result["outcome"] == "applied"


def test_a_cpu_without_free_vectors_is_refused_as_full(small_vm: Guest) -> None:
    # by the shell alone: each program that starts takes a tenth of a second here
    fill = """
        while read -r irq rest; do irq=${irq%:}; case $rest in
          *virtio*-input|*virtio*-output)
            read -r was < /proc/irq/$irq/smp_affinity_list; echo $irq $was
            echo 2 > /proc/irq/$irq/smp_affinity_list || exit 0;;
        esac; done < /proc/interrupts 2>/dev/null; exit 1
    """
    originals = small_vm.run("sh", "-c", fill).stdout.split()
    # away first: where the old set holds CPU 2 too, the kernel would leave them there
    pairs = zip(originals[::2], originals[1::2], strict=True)
    back = "\n".join(f"for to in 0-1 {to}; do echo $to > /proc/irq/{irq}/smp_affinity_list; done" for irq, to in pairs)
    irq = irq_named(small_vm, "eth1-rx-0")
    try:
        [result] = write_settings(small_vm, f"irq/{irq}/affinity=2")
    finally:
        small_vm.run("sh", "-c", back)
    assert result["outcome"] == "failed"
    assert "All interrupt vectors of that CPU are in use" in result["sentence"]
    [result] = write_settings(small_vm, f"irq/{irq}/affinity=2")
    assert result["outcome"] == "applied"
