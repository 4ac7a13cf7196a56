"""Sampler: reads the kernel's counter files through open descriptors and parses what has changed."""

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from coresteer_agent.collect import interrupts, net_counters, netdev, softirqs, softnet, stat
from coresteer_agent.collect.counter_table import CounterTableReader
from coresteer_agent.collect.errors import ParseError
from coresteer_agent.collect.files import HotFile, read_cpus
from coresteer_agent.collect.rows import report_unknown
from coresteer_agent.collect.self_usage import SelfUsageReader
from coresteer_agent.collect.sock_diag import TcpLatencyReader
from coresteer_core.node.derive import Sample

_log = logging.getLogger(__name__)

T = TypeVar("T")

PRESENT_PATH = "sys/devices/system/cpu/present"


class Sampler:
    """Reads all counters below root. A source that fails is None in the Sample; each failure is logged once."""

    def __init__(self, root: Path) -> None:
        self._stat = HotFile(root, stat.PATH)
        self._interrupts = HotFile(root, interrupts.PATH)
        self._softirqs = HotFile(root, softirqs.PATH)
        self._softnet = HotFile(root, softnet.PATH)
        self._netdev = HotFile(root, netdev.PATH)
        self._net_counters = [
            (HotFile(root, path), net_counters.NetCountersParser(path)) for path in net_counters.PATHS
        ]
        self._interrupts_table = CounterTableReader(interrupts.PATH)
        self._softirqs_table = CounterTableReader(softirqs.PATH)
        self._tcp = TcpLatencyReader() if root == Path("/") else None
        self._usage = SelfUsageReader()
        self._absent: set[str] = set()
        self._cpus = 1 + max(read_cpus(root, PRESENT_PATH) or (), default=-1)

    def sample(self) -> Sample:
        """Read all counters and return them as a Sample; takes some milliseconds on a large machine."""
        time_ms = time.time_ns() // 1_000_000
        monotonic_s = time.monotonic()
        times = self._read(self._stat, lambda text: stat.parse_stat(bytes(text)))
        table = self._read(self._interrupts, self._interrupts_table.parse)
        online = times or dict.fromkeys(table.cpus if table else ())
        self._cpus = max(self._cpus, 1 + max(online, default=-1))
        return Sample(
            time_ms=time_ms,
            monotonic_s=monotonic_s,
            cpus=self._cpus,
            times=times,
            interrupts=table,
            softirqs=self._read(self._softirqs, self._softirqs_table.parse),
            softnet=self._read(self._softnet, lambda text: softnet.parse_softnet(bytes(text), online)),
            netdevs=self._read(self._netdev, lambda text: netdev.parse_netdev(bytes(text))),
            tcp=None if self._tcp is None else self._tcp.read(),
            self_usage=self._usage.read(),
            counters=self._read_counters(),
        )

    def _read_counters(self) -> dict[str, int]:
        """Return the node's counters by name, without those of a file that could not be read."""
        counters: dict[str, int] = {}
        for file, parser in self._net_counters:
            counters |= self._read(file, parser.parse) or {}
        return counters

    def _read(self, file: HotFile, parse: Callable[[bytearray], T]) -> T | None:
        text = file.read()
        if text is None:
            self._is_absent(file.path)
            return None
        try:
            value = parse(text)
        except ParseError as error:
            report_unknown(error)
            return None
        self._absent.discard(file.path)
        return value

    def _is_absent(self, path: str) -> None:
        if path not in self._absent:
            self._absent.add(path)
            why = "cannot be read or is empty; the metrics from it are unknown until that changes"
            _log.warning("%s %s.", path, why)

    def close(self) -> None:
        """Close the descriptors of all counter files."""
        files = (self._stat, self._interrupts, self._softirqs, self._softnet, self._netdev)
        for file in (*files, *(file for file, _ in self._net_counters)):
            file.close()
        self._usage.close()
        if self._tcp is not None:
            self._tcp.close()
