"""Cost of the agent: CPU per sample and resident memory at 1 Hz, compared with prometheus-node-exporter.

    python -m tests.bench.bench_agent [--seconds 60]

Runs each process for that long at its real pace, one after the other, on this machine and on a generated
tree of 128 CPUs and 600 interrupts whose counters another process moves each second; there also with policies in
force. A fixed computation runs alongside: the budgets of CPU time are larger by as much as it is slower. What the agent
does once, at its start and in its first round, is not in the figures. Exits with 1 when the agent exceeds a budget.
"""

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from msgspec import Struct
from tests.agent.fake_backend import Backend, Connection
from tests.support.polling import poll
from tests.support.slowdown import Calibration

from coresteer_core.policies.base import Mode
from coresteer_core.policies.engine_state import PolicyInForce
from coresteer_core.policies.irq_spread.policy import IrqSpread
from coresteer_core.policies.network_process.policy import NetworkProcess
from coresteer_core.protocol import COLUMNS, Ack, ColumnsMessage, Policies, encode

POLICIES = [
    PolicyInForce("1", 1, "network", 1, Mode.ENFORCE, NetworkProcess()),
    PolicyInForce("2", 1, "spread", 2, Mode.ENFORCE, IrqSpread()),
]
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_WARM_UP = 8
"""Samples until the agent has found its processes and loaded its eBPF programs, in its first round after 5 s."""
_CHUNK = 60


class Figures(Struct):
    """cpu_ms: per sample or scrape, user and system; rss_mib: at the end; slowdown: of the machine meanwhile."""

    cpu_ms: float
    rss_mib: float
    slowdown: float


class Budget(Struct):
    """Most CPU time per sample, on a machine without slowdown, and most resident memory."""

    cpu_ms: float
    rss_mib: float

    def holds(self, figures: Figures) -> bool:
        """Return whether the figures are within the budget."""
        return figures.cpu_ms <= self.cpu_ms * figures.slowdown and figures.rss_mib <= self.rss_mib


HERE = Budget(cpu_ms=6.0, rss_mib=31.5)
LARGE = Budget(cpu_ms=8.0, rss_mib=32.5)
DECIDING = Budget(cpu_ms=11.0, rss_mib=34.0)


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def _rss_mib(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES / 2**20


def _hear_samples(connection: Connection, least: int) -> int:
    """Receive blocks with at least this many samples, and acknowledge them once a minute; return how many."""
    heard = acked = 0
    while heard < least:
        match connection.hear():
            case ColumnsMessage(first_seq=first_seq, last_seq=last_seq):
                heard += last_seq - first_seq + 1
                if last_seq >= acked + _CHUNK:
                    acked = last_seq
                    connection.websocket.send(encode(Ack(acked)))
    return heard


def measure_agent(root: Path, seconds: int, policies: list[PolicyInForce] | None = None) -> Figures:
    """Measure the real agent, streaming to a backend that acknowledges once a minute."""
    backend = Backend()
    with tempfile.TemporaryDirectory() as state_dir:
        key = {"backend": backend.address, "node_id": 1, "name": "bench", "key": "csk_bench"}
        key_path = Path(state_dir, "agent/key.json")
        key_path.parent.mkdir()
        key_path.write_text(json.dumps(key))
        options = ["--backend", backend.address, "--root", str(root), "--state-dir", state_dir]
        agent = subprocess.Popen([sys.executable, "-m", "coresteer_agent", "run", *options], stderr=subprocess.DEVNULL)
        try:
            connection = backend.next_connection()
            connection.hello()
            connection.welcome(features=[COLUMNS])
            connection.websocket.send(encode(Policies(policies or [])))
            _hear_samples(connection, _WARM_UP)
            begin_s = _cpu_s(agent.pid)
            with Calibration() as calibration:
                heard = _hear_samples(connection, seconds)
            used_ms = (_cpu_s(agent.pid) - begin_s) * 1000 / heard
            return Figures(used_ms, _rss_mib(agent.pid), calibration.factor)
        finally:
            agent.terminate()
            agent.wait(10)
            backend.close()


def measure_node_exporter(program: str, options: list[str], seconds: int) -> Figures:
    """Measure node-exporter, scraped once a second."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}/metrics"
    exporter = subprocess.Popen(
        [program, f"--web.listen-address=127.0.0.1:{port}", *options], stderr=subprocess.DEVNULL
    )
    try:
        begin_s = 0.0
        next_s = time.monotonic() + 1.0  # it needs a moment to listen
        with Calibration() as calibration:
            for scrape in range(1, seconds + _WARM_UP + 1):
                next_s += 1.0
                time.sleep(max(next_s - time.monotonic(), 0))
                with urllib.request.urlopen(url, timeout=10) as answer:
                    answer.read()
                if scrape == _WARM_UP:
                    begin_s = _cpu_s(exporter.pid)
        used_ms = (_cpu_s(exporter.pid) - begin_s) * 1000 / seconds
        return Figures(used_ms, _rss_mib(exporter.pid), calibration.factor)
    finally:
        exporter.terminate()
        exporter.wait(10)


def main() -> int:
    """Print all results as one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=60, help="how long each process is measured")
    options = parser.parse_args()
    rows: list[tuple[str, str, Figures]] = []
    exporter = shutil.which("prometheus-node-exporter") or shutil.which("node_exporter")
    only_interrupts = ["--collector.disable-defaults", "--collector.interrupts"]
    with tempfile.TemporaryDirectory() as folder:
        # the first tick comes a second after the tree is whole; the warm-up swallows it
        ticker = subprocess.Popen([sys.executable, "-m", "tests.fixtures.large_tree", folder])
        try:
            poll((Path(folder) / "proc/net/snmp").exists)
            large = measure_agent(Path(folder), options.seconds)
            rows.append(("coresteer-agent", "128 CPUs × 600 IRQs", large))
            deciding = measure_agent(Path(folder), options.seconds, POLICIES)
            rows.append(("coresteer-agent with policies", "128 CPUs × 600 IRQs", deciding))
            if exporter is not None:
                paths = [f"--path.procfs={folder}/proc", f"--path.sysfs={folder}/sys"]
                figures = measure_node_exporter(exporter, only_interrupts + paths, options.seconds)
                rows.append(("node_exporter, interrupts only", "128 CPUs × 600 IRQs", figures))
        finally:
            ticker.terminate()
            ticker.wait(10)
    here = f"this machine, {os.cpu_count()} CPUs"
    alone = measure_agent(Path("/"), options.seconds)
    rows.append(("coresteer-agent", here, alone))
    if exporter is not None:
        for name, arguments in (("interrupts only", only_interrupts), ("default collectors", [])):
            figures = measure_node_exporter(exporter, arguments, options.seconds)
            rows.append((f"node_exporter, {name}", here, figures))
    else:
        print("prometheus-node-exporter is not installed, so there is nothing beside the agent.")

    print(f"{'program':<36}{'machine':<26}{'CPU ms/sample':>14}{'slowdown':>10}{'RSS MiB':>10}")
    for program, machine, each in rows:
        print(f"{program:<36}{machine:<26}{each.cpu_ms:>14.2f}{each.slowdown:>10.2f}{each.rss_mib:>10.1f}")
    within = True
    for what, figures, budget in (
        ("the agent on this machine", alone, HERE),
        ("the agent on the large machine", large, LARGE),
        ("the agent with policies on the large machine", deciding, DECIDING),
    ):
        fits = budget.holds(figures)
        within = within and fits
        print(
            f"{what.capitalize()} is {'within' if fits else 'OVER'} its budget: {budget.cpu_ms} ms × "
            f"{figures.slowdown:.2f} and {budget.rss_mib} MiB."
        )
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
