"""The agent's work without its connection, for bench_agent: python -m tests.bench.agent_like ROOT SECONDS.

A module of its own so that nothing is in memory which the agent would not have there. Prints the CPU
milliseconds per sample, user and system, and the resident MiB at the end as JSON.
"""

import json
import logging
import resource
import sys
import time
from pathlib import Path

import websockets.sync.client  # noqa: F401 - the link's memory counts as well

from coresteer_agent.collect.hotplug import HotplugMonitor
from coresteer_agent.collect.inventory import InventoryReader
from coresteer_agent.collect.sampler import Sampler
from coresteer_agent.collect.tasks import TaskScanner
from coresteer_agent.collect.topology import read_topology
from coresteer_core import protocol
from coresteer_core.rates import derive

WARM_UP = 3


def run(root: Path, seconds: int) -> dict[str, float]:
    """One sample a second at the real pace."""
    hotplug, sampler, inventory, tasks = HotplugMonitor(), Sampler(root), InventoryReader(root), TaskScanner(root)
    protocol.encode(protocol.TopologyMessage(read_topology(root)))
    previous = sampler.sample()
    known = inventory.read()
    begin_s = 0.0
    next_s = time.monotonic()
    for seq in range(1, seconds + WARM_UP + 1):
        next_s += 1.0
        time.sleep(max(next_s - time.monotonic(), 0))
        current = sampler.sample()
        rates = derive(previous, current, seq)
        previous = current
        protocol.encode(protocol.RatesMessage(rates))
        if hotplug.changed():
            inventory.rescan()
        fresh = inventory.read(rates)
        if fresh is not known:
            known = fresh
            protocol.encode(protocol.InventoryMessage(known))
        if seq % 5 == 0:
            protocol.encode(protocol.TasksMessage(rates.time_ms, tasks.scan()))
        if seq == WARM_UP:
            begin_s = _cpu_s()
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    return {"cpu_ms": (_cpu_s() - begin_s) * 1000 / seconds, "rss_mib": resident / 2**20}


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    logging.disable()
    sys.stdout.write(json.dumps(run(Path(sys.argv[1]), int(sys.argv[2]))))
