"""One traffic mix under four regimes in one guest: the kernel's default, irqbalance, irq-spread, network-process.

The guest has two sockets and an igb on each NUMA node; CPU 7 is isolated. Four programs receive TCP streams of unequal
rates over both NICs. For every byte the kernel tells on which CPU its packets were handled (SO_INCOMING_CPU) and the
program on which it runs, so the share of bytes that stay within a cache or a node is counted, not estimated.
"""

import json
import re
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

from tests.lab.fleet import Backend, await_said, backend, join
from tests.lab.machines import PEER, TWO_SOCKET
from tests.lab.provision import provide
from tests.lab.rig import Guest, boot

ISOLATED = 7
MACHINE = replace(TWO_SOCKET, kernel_arguments=(f"isolcpus={ISOLATED}",))
SETTLING_S, MEASURED_S = 60, 60
CONSUMERS = (
    (9001, "10.1.0.1", 6, 3000),
    (9002, "10.1.0.1", 3, 1500),
    (9003, "10.2.0.1", 6, 3000),
    (9004, "10.2.0.1", 2, 800),
)
"""Port, address, flows, KiB/s."""
SPREAD: dict[str, object] = {"type": "irq-spread"}
PROCESS: dict[str, object] = {"type": "network-process", "min_bytes_per_s": 20_000, "max_distance": "numa"}


@dataclass
class Measured:
    """Shares of received bytes and of CPU time. moves: changes of affinities.

    best_l2: the most that could share an L2 wherever the programs ran, each on one CPU at a time: a program whose
    flows are handled on several CPUs cannot be next to all of them.
    """

    bytes: int
    same_l2: float
    best_l2: float
    same_l3: float
    same_node: float
    busiest_cpu: float
    moves_per_min: float
    violations: int


def main() -> None:
    kit = provide()
    print("| regime | MiB received | L2 | L2 at best | L3 | NUMA node | busiest CPU | moves/min | on isolated CPU |")
    print(f"|{'---|' * 9}", flush=True)
    with backend() as host, boot(kit, MACHINE, backend_port=host.port) as [guest]:
        regimes: list[tuple[str, Callable[[], Callable[[], None]]]] = [
            ("kernel default", lambda: lambda: None),
            ("irqbalance", lambda: irqbalance(guest)),
            ("irq-spread", lambda: policies(guest, host, SPREAD)),
            ("irq-spread + network-process", lambda: policies(guest, host, SPREAD, PROCESS)),
        ]
        originals = affinities(guest)
        for name, begin in regimes:
            end = begin()
            m = measure(guest)
            end()
            restored_externally(guest, originals)
            print(
                f"| {name} | {m.bytes >> 20} | {m.same_l2:.1%} | {m.best_l2:.1%} | {m.same_l3:.1%} | {m.same_node:.1%} "
                f"| {m.busiest_cpu:.1%} | {m.moves_per_min:.1f} | {m.violations} |",
                flush=True,
            )


def measure(guest: Guest) -> Measured:
    seconds = SETTLING_S + MEASURED_S + 20
    for port, address, flows, kib_per_s in CONSUMERS:
        log = f"consumer-{port}"
        guest.start("python", "-m", "tests.lab.consumer", "--port", str(port), "--seconds", str(seconds), output=log)
        await_said(guest, log, "ready")
        options = ("--to", address, "--port", str(port), "--flows", str(flows), "--kib-per-s", str(kib_per_s))
        bounds = ("--count", "4096", "--seconds", str(seconds))
        command = ("python", "-m", "tests.lab.traffic", "stream", *options, *bounds)
        guest.start("ip", "netns", "exec", PEER, *command, output=f"stream-{port}")
    time.sleep(SETTLING_S)
    skip = {port: len(lines(guest, port)) for port, *_ in CONSUMERS}
    before, moved = affinities(guest), 0
    busy_before, counts_before = cpu_times(guest), nic_interrupts(guest)
    end = time.monotonic() + MEASURED_S
    while time.monotonic() < end:
        time.sleep(5)
        now = affinities(guest)
        moved += sum(now[key] != before.get(key, now[key]) for key in now)
        before = now
    busy = [new - old for new, old in zip(cpu_times(guest), busy_before, strict=True)]
    counts = nic_interrupts(guest)
    grown = [new - old for new, old in zip(counts, counts_before, strict=True)]
    received: Counter[tuple[int, int]] = Counter()
    best = 0
    for port, *_ in CONSUMERS:
        handled: Counter[int] = Counter()
        for line in lines(guest, port)[skip[port] :]:
            for softirq, task, count in json.loads(line)["received"]:
                received[softirq, task] += count
                handled[softirq] += count
        best += max(handled.values(), default=0)
    guest.run("pkill", "-f", "tests.lab.traffic", check=False)
    guest.run("pkill", "-f", "tests.lab.consumer", check=False)
    total = sum(received.values()) or 1
    per_node = MACHINE.cpus // MACHINE.numa_nodes

    def share(near: Callable[[int, int], bool]) -> float:
        return sum(count for (softirq, task), count in received.items() if near(softirq, task)) / total

    return Measured(
        bytes=sum(received.values()),
        same_l2=share(lambda a, b: a == b),  # a core of this machine has one thread and an L2 of its own
        best_l2=best / total,
        same_l3=share(lambda a, b: a // MACHINE.cores == b // MACHINE.cores),
        same_node=share(lambda a, b: a // per_node == b // per_node),
        busiest_cpu=max(busy) / (MEASURED_S * 100),
        moves_per_min=moved * 60 / MEASURED_S,
        violations=grown[ISOLATED] + sum(c for (softirq, task), c in received.items() if ISOLATED in (softirq, task)),
    )


def lines(guest: Guest, port: int) -> list[str]:
    """Return the output of a consumer so far."""
    return [line for line in (guest.share / f"consumer-{port}").read_text().splitlines() if line.endswith("}")]


def cpu_times(guest: Guest) -> list[int]:
    """Return the non-idle ticks of each CPU."""
    rows = re.findall(r"^cpu\d+ (.*)$", guest.read("/proc/stat"), re.MULTILINE)
    return [sum(int(cell) for at, cell in enumerate(row.split()[:8]) if at not in (3, 4)) for row in rows]


def nic_interrupts(guest: Guest) -> list[int]:
    """Return the interrupts of the two igb NICs by CPU."""
    rows = re.findall(r"^ *\d+:((?: +\d+)+) .* eth[01]-TxRx-\d+$", guest.read("/proc/interrupts"), re.MULTILINE)
    return [sum(cells) for cells in zip(*(map(int, row.split()) for row in rows), strict=True)]


def affinities(guest: Guest) -> dict[str, str]:
    """Return the affinities of all interrupts and of the consumers."""
    script = (
        "cd /proc/irq; for i in [0-9]*; do read -r a < $i/smp_affinity_list; echo irq/$i $a; done; "
        "for p in $(pgrep -f tests.lab.consumer); do "
        "while read -r k v; do [ $k = Cpus_allowed_list: ] && echo task/$p $v; done < /proc/$p/status; done; true"
    )
    pairs = (line.split() for line in guest.run("sh", "-c", script).stdout.splitlines())
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}


def restored_externally(guest: Guest, originals: dict[str, str]) -> None:
    script = "\n".join(
        f"echo {value} > /proc/irq/{key.removeprefix('irq/')}/smp_affinity_list 2>/dev/null"
        for key, value in originals.items()
        if key.startswith("irq/")
    )
    guest.run("sh", "-c", script + "\ntrue")


def irqbalance(guest: Guest) -> Callable[[], None]:
    pid = guest.start("irqbalance", "--foreground", "--interval=5", output="irqbalance.log")
    return lambda: (guest.run("kill", str(pid)), None)[1]


def policies(guest: Guest, host: Backend, *specs: dict[str, object]) -> Callable[[], None]:
    pid = join(guest, host)
    host.await_live(guest.machine.name)
    made = []
    for rank, spec in enumerate(specs):
        body = {"name": f"{spec['type']}-{time.monotonic_ns()}", "rank": rank, "mode": "enforce", "spec": spec}
        made.append(host.request("POST", "/api/policies", body)["id"])
        host.request("POST", f"/api/policies/{made[-1]}/enable")

    def end() -> None:
        for policy_id in made:
            host.request("POST", f"/api/policies/{policy_id}/disable")
        time.sleep(10)  # settings return in the next rounds
        guest.run("kill", str(pid))
        print((guest.share / "agent.log").read_text()[-1500:], file=sys.stderr)

    return end


if __name__ == "__main__":
    main()
