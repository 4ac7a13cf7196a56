"""Effect of rx-usecs in one guest compared with the model, and the coalescing policy with the driver's default.

The guest has an igb and an e1000e. First each value stands for a while under a steady flood, not in order:
interrupts a second beside the model's, with Spearman's rank correlation. Then the policy on igb and the driver's
default take turns (default, policy, policy, default) under a bulk load and under requests and responses. Everything is
restored and verified. The guest is emulated, an interrupt in it takes hundreds of µs: only ratios and ranks count.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from tests.lab.fleet import Backend, agent_in, await_said, backend
from tests.lab.machines import PEER, Machine, Nic
from tests.lab.nics import Counts, counts, enforced, ethtool, ethtool_value, load, sink
from tests.lab.provision import provide
from tests.lab.rig import Guest, GuestError, boot
from tests.lab.test_affinity import STATE, write_settings

from coresteer_core.node.nic import Timer, selects_adaptive_mode
from coresteer_core.node.nic_model import QueueTraffic, TimerParams, predict

MACHINE = Machine(
    name="coalescing",
    packages=1,
    cores=4,
    memory_mib=1024,
    nics=(
        Nic("igb", ("10.1.0.1/24",)),
        Nic("e1000e", ("10.2.0.1/24",)),
        Nic("e1000e", ("10.1.0.9/24", "10.2.0.9/24"), netns=PEER),
    ),
)
RECEIVERS = (("eth0", "igb", "10.1.0.1"), ("eth1", "e1000e", "10.2.0.1"))
RX_USECS = (0, 3, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
RATES = (2_000, 10_000)
LINK_BITS_PER_S = 1_000_000_000
POINT_S, ARM_S, SETTLING_S = 3.0, 8.0, 45.0
STARTING_S = 3.0
"""Until a program that was started in the guest is at work."""
BLOCKS = 3


def main() -> None:
    with backend() as host, boot(provide(), MACHINE, backend_port=host.port) as [guest]:
        before = {netdev: ethtool(guest, netdev) for netdev, *_ in RECEIVERS}
        with sink(guest):
            for netdev, driver, address in RECEIVERS:
                for rate in RATES:
                    sweep(guest, netdev, driver, address, rate)
            print_restored(guest)
            with agent_in(guest, host):
                for name, max_added_us, arguments in LOADS:
                    compare(guest, host, name, max_added_us, arguments)
        print_restored(guest)
        same = all(ethtool(guest, netdev) == text for netdev, text in before.items())
        print(f"\nAll that ethtool -c and -g say is {'as it was' if same else 'NOT as it was'}.")
    sys.exit(not same)


def print_restored(guest: Guest) -> None:
    """Restore the originals of the journal, and print that."""
    said = guest.run("coresteer-agent", "restore", "--state-dir", STATE).stdout.splitlines()
    print(f"\nThe journal: {' '.join(said)}", flush=True)


def sweep(guest: Guest, netdev: str, driver: str, address: str, rate: int) -> None:
    print(f"\n{driver}, one flow of {rate} packets/s\n")
    print("| rx-usecs | packets/s | interrupts/s | model | packets/interrupt | model |")
    print(f"|{'---:|' * 6}", flush=True)
    measured: dict[int, Counts] = {}
    with load(guest, "flood", "--to", address, "--rate", str(rate)):
        for value in (*RX_USECS[::2], *RX_USECS[1::2]):  # a machine that grows slower is not taken for an effect
            [result] = write_settings(guest, f"netdev/{netdev}/coalesce/rx-usecs={value}")
            if result["outcome"] != "applied":
                raise GuestError(result["sentence"])
            measured[value] = during(guest, netdev, POINT_S)
    pairs: list[tuple[float, float]] = []
    for value, seen in sorted(measured.items()):
        packets_per_s, interrupts_per_s = seen.packets / seen.seconds, seen.interrupts / seen.seconds
        said = "– | {:.1f} | –"
        if not selects_adaptive_mode(driver, value):
            arrivals = QueueTraffic(packets_per_s, seen.bytes / seen.packets, LINK_BITS_PER_S)
            model = predict(arrivals, TimerParams(Timer.THROTTLE, value))
            pairs.append((interrupts_per_s, model.interrupts_per_s))
            said = f"{model.interrupts_per_s:.0f} | {{:.1f}} | {model.packets_per_interrupt:.1f}"
        cells = said.format(seen.packets_per_interrupt)
        print(f"| {value} | {packets_per_s:.0f} | {interrupts_per_s:.0f} | {cells} |")
    print(f"\nSpearman's rank correlation of interrupts/s, {len(pairs)} values: {spearman(pairs):.3f}", flush=True)


def during(guest: Guest, netdev: str, seconds: float) -> Counts:
    """Return the counts of the next seconds."""
    before = counts(guest, netdev)
    time.sleep(seconds)
    return counts(guest, netdev).since(before)


def spearman(pairs: Sequence[tuple[float, float]]) -> float:
    """Return Spearman's rank correlation; equal values have the mean of their ranks."""

    def ranks(values: Sequence[float]) -> list[float]:
        ordered = sorted(values)
        return [ordered.index(value) + (ordered.count(value) - 1) / 2 for value in values]

    return statistics.correlation(*(ranks(values) for values in zip(*pairs, strict=True)))


LOADS: tuple[tuple[str, int, tuple[tuple[str, ...], ...]], ...] = (
    (
        "bulk: 3,000 UDP packets/s of 1,400 bytes",
        2000,
        (("flood", "--to", "10.1.0.1", "--rate", "3000", "--size", "1400"),),
    ),
    ("requests and responses alone", 100, ()),
)
"""What it is, max_added_us of the policy, and what the peer sends beside the requests that are measured."""


@dataclass
class Arm:
    """One period with the default or the policy."""

    counted: Counts
    requests: dict[str, float]


def compare(guest: Guest, host: Backend, name: str, max_added_us: int, traffic: tuple[tuple[str, ...], ...]) -> None:
    spec = {
        "type": "coalescing",
        "max_added_us": max_added_us,
        "packets_per_interrupt": 64,
        "min_packets_per_s": 50,
    }
    arms: dict[str, list[Arm]] = {"default": [], "policy": []}
    stood: list[str] = []
    with ExitStack() as stack:
        for arguments in traffic:
            stack.enter_context(load(guest, *arguments))
        for block in range(BLOCKS):
            arms["default"].append(measure(guest))
            # of two that follow each other the later one must not be held back by what the former left
            damping = {"dwell_s": 5, "min_revert_s": 5}
            with enforced(host, f"{name} {block}", spec, scope={"netdevs": ["eth0"]}, damping=damping):
                with load(guest, "request", "--to", "10.1.0.1"):
                    stood.append(settled(guest))
                for _ in range(2):
                    arms["policy"].append(measure(guest))
                    stood.append(ethtool_value(guest, "eth0", "rx-usecs"))
            returned(guest)
            arms["default"].append(measure(guest))
    print(f"\n{name}; the policy may add {max_added_us} µs; {BLOCKS} blocks of default, policy, policy, default")
    print(f"rx-usecs with the policy, settled and after each of its turns: {', '.join(stood)}\n")
    print("| | packets/s | MiB/s | interrupts/packet | requests/s | RTT p50 µs | RTT p99 µs |")
    print(f"|---|{'---:|' * 6}")
    columns: tuple[Callable[[Arm], float], ...] = (
        lambda arm: arm.counted.packets / arm.counted.seconds,
        lambda arm: arm.counted.bytes / arm.counted.seconds / (1 << 20),
        lambda arm: 1 / arm.counted.packets_per_interrupt,
        lambda arm: arm.requests["requests"] / (ARM_S + 2 * STARTING_S),
        lambda arm: arm.requests["p50_us"],
        lambda arm: arm.requests["p99_us"],
    )
    for regime, taken in arms.items():
        cells = (f"{statistics.median(map(column, taken)):.4g}" for column in columns)
        spread = (f"({min(map(column, taken)):.3g}–{max(map(column, taken)):.3g})" for column in columns)
        print(f"| {regime} | {' | '.join(f'{a} {b}' for a, b in zip(cells, spread, strict=True))} |")
    default, policy = (
        [statistics.median(column(arm) for arm in arms[regime]) for column in columns] for regime in arms
    )
    print(
        f"\nInterrupts per packet: {policy[2] / default[2]:.2f} × the default's. "
        f"RTT p50: {policy[4] - default[4]:+.0f} µs of {max_added_us} µs allowed.",
        flush=True,
    )


def measure(guest: Guest) -> Arm:
    """Measure ARM_S seconds of the load, with concurrent requests on one connection."""
    command = ("ip", "netns", "exec", PEER, "python", "-m", "tests.lab.traffic", "request", "--to", "10.1.0.1")
    guest.start(*command, "--count", "1000000", "--seconds", str(ARM_S + 2 * STARTING_S), output="request.log")
    time.sleep(STARTING_S)
    counted = during(guest, "eth0", ARM_S)
    await_said(guest, "request.log", "}\n")
    said = (guest.share / "request.log").read_text()
    if not said.startswith("{"):
        raise GuestError(said)
    return Arm(counted, json.loads(said))


def settled(guest: Guest) -> str:
    """Return rx-usecs once it is unchanged for a third of SETTLING_S, or at its end."""
    end = time.monotonic() + SETTLING_S
    value, since = ethtool_value(guest, "eth0", "rx-usecs"), time.monotonic()
    while (now := time.monotonic()) < end and now - since < SETTLING_S / 3:
        time.sleep(1)
        if (found := ethtool_value(guest, "eth0", "rx-usecs")) != value:
            value, since = found, now
    return value


def returned(guest: Guest) -> None:
    """Wait until the driver's own value is restored."""
    end = time.monotonic() + SETTLING_S
    while ethtool_value(guest, "eth0", "rx-usecs") != "3" and time.monotonic() < end:
        time.sleep(0.5)


if __name__ == "__main__":
    main()
