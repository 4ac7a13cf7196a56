"""Prints, each few seconds, the settings and counters of a guest that policies change, as a line of JSON.

    python -m tests.lab.steering.watch SECONDS [TIMES]

Runs in a guest, with the standard library and ethtool: one process, as each start of a program takes long there.
"""

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.lab.machines import PEER

_NETDEVS = ("eth0", "eth1")
_QUEUE_FILES = ("rx-*/rps_cpus", "rx-*/rps_flow_cnt", "tx-*/xps_cpus")
_KERNEL = ("rps_sock_flow_entries", "netdev_budget", "netdev_budget_usecs", "busy_poll", "busy_read")


def main() -> None:
    every_s = float(sys.argv[1])
    for _ in range(int(sys.argv[2]) if len(sys.argv) > 2 else 1_000_000):
        began = time.monotonic()
        print(json.dumps(reading()), flush=True)
        time.sleep(max(began + every_s - time.monotonic(), 0.1))


def reading() -> dict[str, Any]:
    """Return the fields of readings.Reading."""
    interrupts = Path("/proc/interrupts").read_text()
    softnet = Path("/proc/net/softnet_stat").read_text().splitlines()
    peer = subprocess.run(
        ["ip", "netns", "exec", PEER, "cat", "/proc/net/snmp"], capture_output=True, text=True, check=True
    )
    return {
        "at_s": time.monotonic(),
        "settings": dict(settings()),
        "irq_cpus": {
            int(path.parent.name): first(text) for path, text in texts("/proc/irq", "*/effective_affinity_list")
        },
        "busy": [sum(row[:3]) + sum(row[5:8]) for row in cpu_ticks()],
        "ipis": ipis(interrupts, "CAL") + ipis(interrupts, "RES"),
        "received_rps": sum(int(row.split()[9], 16) for row in softnet),
        "out_of_order": named(Path("/proc/net/netstat").read_text(), "TcpExt", "TCPOFOQueue"),
        "retransmitted": named(peer.stdout, "Tcp", "RetransSegs"),
    }


def settings() -> Iterator[tuple[str, str]]:
    """Yield the key and value of each setting that a policy or irqbalance may change."""
    for path, text in texts("/proc/irq", "*/smp_affinity_list"):
        yield f"irq/{path.parent.name}/affinity", text
    for path, text in texts("/proc", "[0-9]*/cmdline"):
        if "tests.lab.consumer" in text:
            with suppress(OSError):  # it has ended
                status = (path.parent / "status").read_text()
                yield f"task/{path.parent.name}/affinity", re.findall(r"Cpus_allowed_list:\s*(\S+)", status)[0]
    for netdev in _NETDEVS:
        for pattern in _QUEUE_FILES:
            for path, text in texts(f"/sys/class/net/{netdev}/queues", pattern):
                yield f"netdev/{netdev}/{path.parent.name}/{path.name}", text
        shown = subprocess.run(["ethtool", "-x", netdev], capture_output=True, text=True, check=True).stdout
        yield f"netdev/{netdev}/rss", " ".join(re.findall(r"^ +\d+: +(.*)$", shown, re.MULTILINE))
    for name in _KERNEL:
        yield f"kernel/{name}", Path("/proc/sys/net/core", name).read_text().strip()


def texts(folder: str, pattern: str) -> Iterator[tuple[Path, str]]:
    for path in Path(folder).glob(pattern):
        with suppress(OSError):  # it is gone, or not to be read
            if text := path.read_text().strip():
                yield path, text


def first(cpus: str) -> int:
    """Return the first CPU of a list."""
    return int(re.split("[-,]", cpus)[0])


def cpu_ticks() -> list[list[int]]:
    """Return the columns of /proc/stat by CPU."""
    rows = re.findall(r"^cpu\d+ (.*)$", Path("/proc/stat").read_text(), re.MULTILINE)
    return [list(map(int, row.split())) for row in rows]


def ipis(interrupts: str, name: str) -> int:
    """Return the sum of a row of /proc/interrupts."""
    return sum(map(int, re.findall(rf"^ *{name}:((?: +\d+)+)", interrupts, re.MULTILINE)[0].split()))


def named(text: str, table: str, name: str) -> int:
    """Return a value of a file whose lines alternate between names and values."""
    names, values = (row.split() for row in re.findall(rf"^{table}: .*$", text, re.MULTILINE)[:2])
    return int(values[names.index(name)])


if __name__ == "__main__":
    main()
