"""Mutated kernel texts for every parser of the agent: an input is parsed, or refused with ParseError."""

import random
import re
import socket
import struct
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.fixtures.large_tree import LargeTree

from coresteer_agent.collect.boot_files import parse_options
from coresteer_agent.collect.cgroup_memory import parse_numa_stat
from coresteer_agent.collect.cgroups import parse_weight
from coresteer_agent.collect.counter_table import CounterTableReader
from coresteer_agent.collect.errors import ParseError
from coresteer_agent.collect.files import parse_cpu_number
from coresteer_agent.collect.histogram import parse_histogram
from coresteer_agent.collect.interrupts import parse_descriptions
from coresteer_agent.collect.net_counters import NetCountersParser
from coresteer_agent.collect.netdev import parse_default_routes, parse_netdev
from coresteer_agent.collect.numa import parse_meminfo, parse_numastat
from coresteer_agent.collect.numa_maps import parse_numa_maps
from coresteer_agent.collect.pending import parse_pending
from coresteer_agent.collect.process_identity import parse_cgroups, parse_command, parse_passwd, parse_user
from coresteer_agent.collect.resctrl import parse_counter, parse_tasks
from coresteer_agent.collect.rows import MAX_FILES, dropped_rows
from coresteer_agent.collect.schedstat import parse_schedstat, parse_sleeps, parse_state
from coresteer_agent.collect.sock_diag import parse_message
from coresteer_agent.collect.softnet import parse_softnet
from coresteer_agent.collect.stat import parse_stat
from coresteer_agent.collect.tasks import TaskScanner, parse_scheduling, parse_task_stat
from coresteer_agent.collect.tcp_sockets import SocketDump
from coresteer_agent.collect.topology import parse_size, read_topology
from coresteer_agent.collect.vectors import parse_free_vectors
from coresteer_agent.linux.addresses import parse_address
from coresteer_agent.linux.xdp import parse_link, parse_socket
from coresteer_agent.observe.inventory import InventoryReader
from coresteer_agent.observe.queues import parse_irq_name
from coresteer_agent.observe.sampler import Sampler
from coresteer_agent.runtime.meter import parse_context_switches, parse_pages_moved
from coresteer_agent.runtime.meter import parse_numastat as parse_numastat_totals
from coresteer_core.cpuset import CpuListError, parse_cpu_list, parse_cpu_mask
from coresteer_core.node.derive import derive_rates
from coresteer_core.protocol import (
    MAX_FRAME_BYTES,
    InventoryMessage,
    RatesMessage,
    TasksMessage,
    ToBackend,
    TopologyMessage,
    encode,
)

Parser = Callable[[bytes], object]

_NUMBERS = [
    b"", b"-1", b"0x10", b"1_0", b"70000", b"999999999", b"4294967296", b"18446744073709551616", b"9" * 60, b"9" * 5000,
    b"\xd9\xa3", b"+5", b"1.5", b"nan",
]  # fmt: skip
_LINES = [b"", b"\0", b"cpu", b"cpu0", b":", b": 1", b"Node", b"Tcp: ", b"a" * 5000, b"(null)", b"\xff\xfe", b"N0=1"]
_TOKEN = re.compile(rb"\d+")
_MAX_BYTES = 64 * 1024


def _inet_diag(family: int) -> bytes:
    head = struct.pack("=BBBB", family, 1, 0, 0) + struct.pack("!HH", 80, 5555) + bytes(range(32))
    head += struct.pack("=IQIIIII", 0, 9, 0, 300, 1, 1000, 7)
    return head + struct.pack("=HHB3x", 5, 8, 0) + struct.pack("=HH", 4 + 232, 2) + bytes(232)


_MESSAGES = [_inet_diag(socket.AF_INET), _inet_diag(socket.AF_INET6)]
_DUMP = [
    struct.pack("=IHHII", 16 + len(message), 20, 2, 1, 1) + message + struct.pack("=IHHIIi", 20, 3, 2, 1, 1, 0)
    for message in _MESSAGES
]
_ADDRESS = struct.pack("=BBBBI", 2, 24, 0, 0, 3) + struct.pack("=HH4s", 8, 2, b"\x0a\0\0\1")
_LINK = struct.pack("=BxHiII", 0, 1, 2, 0, 0) + struct.pack("=HH8sHHHHI", 12, 3, b"eth0", 12, 43, 8, 4, 17)
_XDP_SOCKET = struct.pack("=BB2xIQ", 44, 3, 4711, 0) + struct.pack("=HHII", 12, 1, 2, 5)
_TASK = b"812 (a (b) c) S 1 812 812 0 -1 4194560 0 0 0 0 30 12 0 0 20 0 1 0 777 1 5" + b" 0" * 13 + b" 17 3 0 0\n"
_STATUS = b"Name:\ta\nUid:\t0\t1000\t0\t0\nRssAnon:\t 10 kB\nvoluntary_ctxt_switches:\t19\n"
_ROUTE = b"Iface\tDestination\n" + b"eth0\t00000000\t0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n" * 2
_NUMA_STAT = b"anon N0=1048576 N1=4096\nfile N0=0 N1=8192\n"
_PAGE = b'# TYPE t histogram\nt_bucket{a="b",le="0.1"} 3\nt_bucket{le="+Inf"} 7 1700000000000\nt_sum 4\nt_count 7\n'
_NUMASTAT = b"numa_hit 9\nnuma_miss 0\nlocal_node 7\nother_node 2\n"
_CGROUPS = b"12:cpuset:/a\n4:cpu,cpuacct:/b\n1:name=systemd:/system.slice/x.service\n0::/c/d.scope\n"
_MAPS = (
    b"7f0000000000 default file=/lib/x anon=2 mapmax=3 N0=2 kernelpagesize_kB=4\n"
    b"7f0000200000 bind:0-1 anon=5 dirty=5 N0=2 N1=3 kernelpagesize_kB=2048\n7ffd00000000 default stack anon=1 N1=1\n"
)


def _text(parse: Callable[[str], object]) -> Parser:
    return lambda data: parse(data.decode("utf-8", "replace"))


def _ascii(parse: Callable[[str], object]) -> Parser:
    """As files.py passes the text of a file on."""
    return lambda data: parse(data.decode("ascii", "replace").strip("\0 \n\t"))


def _view(parse: Callable[[memoryview], object]) -> Parser:
    return lambda data: parse(memoryview(data))


def _at(parse: Callable[[bytes, str], object], path: str) -> Parser:
    return lambda data: parse(data, path)


class _Table:
    """A reader of a counter table that keeps its state, as that of an agent does."""

    def __init__(self, path: str) -> None:
        self._reader = CounterTableReader(path)

    def __call__(self, data: bytes) -> object:
        return self._reader.parse(data)


def text_parsers(root: Path) -> dict[str, tuple[Parser, list[bytes]]]:
    """Return every parser of a text or message with captured ones. root: of a tree with the larger files."""

    def captured(*paths: str) -> list[bytes]:
        return [(root / path).read_bytes() for path in paths]

    stat, irqs = captured("proc/stat"), captured("proc/interrupts")
    return {
        "interrupts": (_Table("proc/interrupts"), irqs),
        "softirqs": (_Table("proc/softirqs"), captured("proc/softirqs")),
        "descriptions": (lambda data: parse_descriptions(data.splitlines()), irqs),
        "stat": (parse_stat, stat),
        "context switches": (parse_context_switches, [*stat, b"ctxt 12\n"]),
        "softnet": (lambda data: parse_softnet(data, range(4)), captured("proc/net/softnet_stat")),
        "net/dev": (parse_netdev, captured("proc/net/dev")),
        "net/route": (parse_default_routes, [_ROUTE]),
        "net/snmp": (NetCountersParser("proc/net/snmp").parse, captured("proc/net/snmp")),
        "net/netstat": (NetCountersParser("proc/net/netstat").parse, captured("proc/net/netstat")),
        "vmstat": (NetCountersParser("proc/vmstat").parse, [b"numa_local 20\nnuma_other 10\npgmigrate_success 7\n"]),
        "pages moved": (parse_pages_moved, [b"numa_local 20\npgmigrate_success 7\n"]),
        "PID/stat": (_at(parse_task_stat, "proc/812/stat"), [_TASK]),
        "PID/stat, scheduling": (_at(parse_scheduling, "proc/812/stat"), [_TASK]),
        "PID/stat, state": (_at(parse_state, "proc/812/stat"), [_TASK]),
        "PID/schedstat": (_at(parse_schedstat, "proc/812/schedstat"), [b"123456 789 12\n"]),
        "PID/status, sleeps": (_at(parse_sleeps, "proc/812/status"), [_STATUS]),
        "PID/status, user": (parse_user, [_STATUS]),
        "PID/cgroup": (_text(parse_cgroups), [_CGROUPS]),
        "PID/cmdline": (parse_command, [b"/usr/sbin/nginx: worker\0-g\0"]),
        "PID/numa_maps": (_at(parse_numa_maps, "proc/812/numa_maps"), [_MAPS]),
        "passwd": (parse_passwd, [b"root:x:0:0:root:/root:/bin/sh\nweb:x:33:33::/:/bin/false\n"]),
        "memory.numa_stat": (_at(parse_numa_stat, "memory.numa_stat"), [_NUMA_STAT]),
        "weight": (_ascii(parse_weight), [b"100\n", b"default 100\n8:0 50\n"]),
        "node meminfo": (_at(parse_meminfo, "meminfo"), [b"Node 1 MemTotal:  1024 kB\nNode 1 MemFree:  10 kB\n"]),
        "node numastat": (_at(parse_numastat, "numastat"), [_NUMASTAT]),
        "node numastat, totals": (parse_numastat_totals, [_NUMASTAT]),
        "resctrl counter": (parse_counter, [b"123456\n", b"Unavailable\n"]),
        "resctrl tasks": (parse_tasks, [b"1\n22\n333\n"]),
        "histogram": (lambda data: parse_histogram(data, "t"), [_PAGE]),
        "cache size": (_ascii(lambda text: parse_size(text, "size")), [b"1280K\n", b"32M"]),
        "CPU list": (_ascii(parse_cpu_list), [b"0-3,8,10-11\n", b"0-15:2/4\n"]),
        "CPU mask": (_ascii(parse_cpu_mask), [b"ff,00000001\n", b"f\n"]),
        "CPU number": (lambda data: parse_cpu_number(data, "cpu", 1), [b"17"]),
        "interrupt name": (
            _text(lambda text: parse_irq_name(text, "eth0", ["virtio2"])),
            [b"eth0-TxRx-3", b"virtio2-input.0", b"mlx5_comp3@pci:0000:3b:00.0"],
        ),
        "inet_diag, RTT": (parse_message, _MESSAGES),
        "inet_diag, queue": (parse_pending, _MESSAGES),
        "socket list": (_view(lambda view: SocketDump({}).parse(view)), _DUMP),
        "address": (_view(parse_address), [_ADDRESS]),
        "link": (_view(parse_link), [_LINK]),
        "free vectors": (parse_free_vectors, [b" flags: 0x103\n | CPU | avl |\n     0   180     1\n     1     0\n"]),
        "options of a file": (_text(parse_options), [b"[Link]\nRxCoalesceSec=50us\n# a\n-net/core/busy_poll = 1\n"]),
        "xdp_diag": (_view(parse_socket), [_XDP_SOCKET]),
    }  # fmt: skip


ACCEPTED: dict[str, tuple[type[Exception], ...]] = {
    "CPU list": (CpuListError,),
    "CPU mask": (CpuListError,),
    "socket list": (OSError,),
}
"""What a parser raises by its contract besides ParseError."""


def mutated(text: bytes, chance: random.Random) -> bytes:
    """Return a text with up to four changes: of a number, a line, some bytes, or its end."""
    for _ in range(chance.randint(1, 4)):
        kind = chance.randrange(6)
        place = chance.randrange(len(text) + 1)
        if kind == 0 and (found := _TOKEN.search(text, place) or _TOKEN.search(text)):
            text = text[: found.start()] + chance.choice(_NUMBERS) + text[found.end() :]
        elif kind == 1:
            start = text.rfind(b"\n", 0, place) + 1
            text = text[:start] + chance.choice(_LINES) + b"\n" + text[start:]
        elif kind == 2:
            start, end = text.rfind(b"\n", 0, place) + 1, text.find(b"\n", place) + 1 or len(text)
            text = text[:start] + text[start:end] * chance.choice([0, 2]) + text[end:]
        elif kind == 3:
            text = text[:place] + chance.randbytes(chance.randint(1, 4)) + text[place + chance.randint(0, 4) :]
        elif kind == 4 and text:
            byte = bytearray(text)
            byte[place - 1] ^= 1 << chance.randrange(8)
            text = bytes(byte)
        elif kind == 5:
            text = text[:place]
    return text[:_MAX_BYTES]


@dataclass
class Fuzzed:
    """inputs: by parser; refused: with ParseError; unexpected: other exceptions, the first of each parser and place."""

    inputs: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    unexpected: dict[tuple[str, str], str] = field(default_factory=dict)
    slowest: tuple[float, str] = (0.0, "")

    def run(self, name: str, parse: Callable[[], object], shown: Callable[[], str]) -> None:
        """Count one input."""
        self.inputs[name] += 1
        refusals: tuple[type[Exception], ...] = (ParseError, *ACCEPTED.get(name, ()))
        begin_s = time.perf_counter()
        try:
            parse()
        except refusals:
            self.refused[name] += 1
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{last.filename}:{last.lineno}"
            self.unexpected.setdefault((name, where), f"{name}: {error!r} at {where}: {shown()}")
        self.slowest = max(self.slowest, (time.perf_counter() - begin_s, name))


def fuzz_texts(count: int, seed: int, root: Path) -> Fuzzed:
    """Return what became of a number of mutated texts, in turn for each parser."""
    chance, found = random.Random(seed), Fuzzed()  # noqa: S311 - repeatable on purpose
    parsers = list(text_parsers(root).items())
    for number in range(count):
        name, (parse, texts) = parsers[number % len(parsers)]
        text = mutated(chance.choice(texts), chance)
        found.run(name, lambda parse=parse, text=text: parse(text), lambda text=text: repr(text[:300]))  # type: ignore[misc]
    _check_reports()
    return found


def fuzz_tree(count: int, seed: int, machine: LargeTree) -> Fuzzed:
    """Return what became of a number of trees with one to three mutated files, read as an agent reads its machine."""
    chance, found = random.Random(seed), Fuzzed()  # noqa: S311 - repeatable on purpose
    root = machine.root
    paths = sorted(path for path in root.rglob("*") if path.is_file() and not path.is_symlink())
    whole = {path: path.read_bytes() for path in paths}
    sampler, scanner = Sampler(root), TaskScanner(root)
    before = sampler.sample()
    for number in range(count):
        wrong = chance.sample(paths, chance.randint(1, 3))
        for path in wrong:
            path.write_bytes(mutated(whole[path], chance))
        shown = [str(path.relative_to(root)) for path in wrong]

        def read(number: int = number) -> None:
            sample = sampler.sample()
            rates = derive_rates(before, sample, number + 1)
            inventory = InventoryReader(root).read(rates)
            messages: list[ToBackend] = [
                RatesMessage(rates),
                InventoryMessage(inventory),
                TasksMessage(0, scanner.scan()),
            ]
            assert all(len(encode(message)) < MAX_FRAME_BYTES for message in messages)
            encode(TopologyMessage(read_topology(root)))

        found.run("tree", read, lambda shown=shown: f"{shown}")  # type: ignore[misc]
        for path in wrong:
            path.write_bytes(whole[path])
    sampler.close()
    scanner.close()
    _check_reports()
    return found


def _check_reports() -> None:
    reports = dropped_rows()
    assert len(reports) <= MAX_FILES
    assert all(text.isprintable() and len(text) <= 200 for pair in reports.items() for text in pair)


def lines(found: Fuzzed) -> Iterator[str]:
    """Yield the table of a run, and each unexpected exception."""
    for name, count in found.inputs.items():
        yield f"{name:24} {count:9,} inputs  {100 * found.refused[name] / count:5.1f} % refused"
    yield from found.unexpected.values()
