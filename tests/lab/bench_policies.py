"""Where packets are handled, and what it costs, under several regimes and traffic mixes in one guest.

    python -m tests.lab.bench_policies [--runs 8] [--seconds 10] [--regimes NAME ...] [--mixes NAME ...]
        [--to FILE]

The guest has two sockets and an igb on each NUMA node; CPU 7 is isolated. For every byte the kernel says which CPU did
its protocol work (SO_INCOMING_CPU) and which NAPI was polled for it (SO_INCOMING_NAPI_ID), and the program on which CPU
it runs, so the shares of bytes that stay within a core, a cache or a node are counted, not estimated. An agent observes
in all regimes. A run measures every regime once per mix, in an order shuffled with a fixed seed, on new flows. --to
appends each measurement to a file as a line of JSON, and the table is made of all lines of the file, so that several
invocations add up. CPU time per byte means nothing in an emulated machine: tests.bench.bench_steering measures it.
"""

import argparse
import json
import os
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path

from tests.lab.fleet import Backend, BackendError, backend, join
from tests.lab.machines import TWO_SOCKET
from tests.lab.provision import provide
from tests.lab.rig import BOOTS, Guest, GuestError, boot
from tests.lab.steering.measured import Measured, Readings, measured
from tests.lab.steering.mixes import MIXES, Mix, answered_p99_us, ask, traffic
from tests.lab.steering.readings import Reading, await_readings, begin_watch, cells, changed, napi_irqs, read_once
from tests.lab.steering.regimes import REGIMES
from tests.lab.steering.table import print_table

ISOLATED = 7
MACHINE = replace(TWO_SOCKET, memory_mib=2048, kernel_arguments=(f"isolcpus={ISOLATED}",))
RESTORED_S = 40
"""Within which the end of a regime must have restored all settings."""
BOOT_S = 120
"""A machine that is busy with other work boots slowly."""
EVERY_S = 3
"""Between two readings of settings and counters."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=10, help="measured")
    parser.add_argument("--regimes", nargs="+", choices=REGIMES, default=list(REGIMES))
    parser.add_argument("--mixes", nargs="+", choices=MIXES, default=list(MIXES))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--to", type=Path)
    args = parser.parse_args()
    order = random.Random(args.seed)  # noqa: S311 - an order of runs, not a secret
    rows = [Measured(**json.loads(line)) for line in args.to.open()] if args.to and args.to.exists() else []
    with backend() as host:
        for run in range(args.runs):
            left = [(regime, mix) for mix in args.mixes for regime in order.sample(args.regimes, len(args.regimes))]
            for row in run_all(host, left, args.seconds):
                rows.append(row)
                print(f"run {run + 1}: {json.dumps(asdict(row))}", file=sys.stderr, flush=True)
                if args.to:
                    with args.to.open("a") as file:
                        file.write(json.dumps(asdict(row)) + "\n")
    print(f"Measured {args.seconds:g} s; load average of the host {os.getloadavg()[0]:.1f}.")
    print_table(rows)


def run_all(host: Backend, left: list[tuple[str, str]], seconds: float) -> Iterator[Measured]:
    """Yield a measurement for each regime and mix; one during which the guest hung is left out."""
    hung = 0
    while left and hung < BOOTS:
        try:
            with boot(provide(), MACHINE, backend_port=host.port, boot_s=BOOT_S) as [guest]:
                join(guest, host)
                host.await_live(guest.machine.name, 60)
                irqs = napi_irqs(guest)
                while left:
                    regime, mix = left.pop(0)
                    try:
                        yield run_one(guest, host, regime, MIXES[mix], irqs=irqs, seconds=seconds)
                    except BackendError as error:  # a policy that this version does not have
                        print(f"{regime}: {error}", file=sys.stderr, flush=True)
        except GuestError as error:
            hung += 1
            print(f"The guest hung: {error}", file=sys.stderr, flush=True)


def run_one(guest: Guest, host: Backend, regime: str, mix: Mix, *, irqs: dict[int, str], seconds: float) -> Measured:
    """Measure one regime with one mix, and restore all settings."""
    originals = read_once(guest)
    settle_s = REGIMES[regime].settle_s + mix.connecting_s
    with REGIMES[regime].start(guest, host), traffic(guest, mix, settle_s + seconds + 120):
        begin_watch(guest, EVERY_S, settle_s + seconds + 60)
        await_readings(guest, mix.connecting_s, 0)
        ask(guest, REGIMES[regime].settle_s, seconds)
        moments = await_readings(guest, settle_s, seconds)
        run = Readings(cells(guest, mix), irqs, moments, answered_p99_us(guest))
    for before, after in pairwise(moments):
        for key in changed(before, after):
            print(f"{regime}: {key} {before.settings[key]} → {after.settings[key]}", file=sys.stderr, flush=True)
    restore(guest, originals, regime)
    return measured(regime, mix.name, run, MACHINE, ISOLATED)


def restore(guest: Guest, originals: Reading, regime: str) -> None:
    """Wait until the agent has restored all settings, and write back what irqbalance left. Raises GuestError."""
    end = time.monotonic() + RESTORED_S
    while left := changed(originals, read_once(guest)):
        if regime == "irqbalance":
            commands = (
                f"echo {originals.settings[key]} > /proc/{key.removesuffix('affinity')}smp_affinity_list"
                for key in left
            )
            guest.run("sh", "-c", "\n".join([*commands, "true"]), check=False)
            return
        if time.monotonic() > end:
            raise GuestError(f"{regime} left {', '.join(left)}.")


if __name__ == "__main__":
    main()
