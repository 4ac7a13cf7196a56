"""Regimes of the bench of policies: who places interrupts, processes and flows."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass

from tests.lab.fleet import Backend
from tests.lab.nics import enforced
from tests.lab.rig import Guest

SPREAD: dict[str, object] = {"type": "irq-spread"}
PROCESS: dict[str, object] = {"type": "network-process", "min_bytes_per_s": 20_000, "max_distance": "numa"}
STEERING: dict[str, object] = {
    "type": "flow-steering",
    "min_bytes_per_s": 20_000,
    "rfs": "on",
    "dwell_s": 10,
    "max_rules": 0,
}
"""rfs: whether it costs CPU time cannot be tried in an emulated machine. max_rules: igb has a table, but its driver
accepts no rule for a flow.
"""
FLOW_ENTRIES = 32_768
QUEUES = 16
"""Of both NICs; the entries are shared evenly (Documentation/networking/scaling.rst)."""

Start = Callable[[Guest, Backend], AbstractContextManager[object]]


@dataclass(frozen=True)
class Regime:
    """What places the work, and the seconds from the start of the traffic after which it should move nothing more."""

    start: Start
    settle_s: float


@contextmanager
def irqbalance(guest: Guest, _: Backend) -> Iterator[None]:
    pid = guest.start("irqbalance", "--foreground", "--interval=5", output="irqbalance.log")
    try:
        yield
    finally:
        guest.run("kill", str(pid), check=False)


@contextmanager
def rfs_alone(guest: Guest, _: Backend) -> Iterator[None]:
    """The kernel's RFS as an administrator sets it, on all queues of both NICs."""
    try:
        write_rfs(guest, FLOW_ENTRIES)
        yield
    finally:
        write_rfs(guest, 0)


def write_rfs(guest: Guest, entries: int) -> None:
    guest.run(
        "sh",
        "-c",
        f"for f in /sys/class/net/eth[01]/queues/rx-*/rps_flow_cnt; do echo {entries // QUEUES} > $f; done; "
        f"echo {entries} > /proc/sys/net/core/rps_sock_flow_entries",
    )


def policies(*specs: dict[str, object]) -> Start:
    """Return the start of these policies in force, the first with the lowest rank."""

    @contextmanager
    def in_force(_: Guest, host: Backend) -> Iterator[None]:
        with ExitStack() as stack:
            for rank, spec in enumerate(specs):
                name = f"{spec['type']} {time.monotonic_ns()}"
                stack.enter_context(enforced(host, name, spec, rank=rank))
            yield

    return in_force


REGIMES = {
    "kernel default": Regime(lambda *_: nullcontext(), 6),
    "irqbalance": Regime(irqbalance, 12),
    "irq-spread": Regime(policies(SPREAD), 15),
    "irq-spread + network-process": Regime(policies(SPREAD, PROCESS), 25),
    "RFS alone": Regime(rfs_alone, 6),
    "flow-steering": Regime(policies(STEERING), 30),
    "irq-spread + network-process + flow-steering": Regime(policies(SPREAD, PROCESS, STEERING), 150),
}
