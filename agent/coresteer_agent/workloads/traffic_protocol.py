"""Configuration and output of the client and server programs of a traffic workload."""

import os
import socket
import sys
from typing import NoReturn, TypeAlias

from msgspec import Struct

from coresteer_core.cpuset import parse_cpu_list
from coresteer_core.experiments.model import TcpRequest, TcpStream, UdpFlood

GeneratedTraffic: TypeAlias = TcpStream | TcpRequest | UdpFlood
READY = "ready"
FAILED = "failed "
"""A workload's program prints one of these as a line, the second followed by a sentence."""
_PACKETS_PER_S_OF_ONE = 100_000


class Give(Struct, frozen=True, tag="give"):
    """Receipts (see receipts.py) of the receiving program. descriptor: of a UDP socket at the server's address."""

    descriptor: int
    key: str


class Require(Struct, frozen=True, tag="require"):
    """Receipts (see receipts.py) for the sending program. host, port: where the receiving program answers."""

    host: str
    port: int
    key: str


ReceiptsPart: TypeAlias = Give | Require
"""A program's part in receipts; they need none where both ends are on one node."""


class ServerConfig(Struct):
    """Configuration of the server. sockets: descriptors, one listening for TCP, one per process for UDP.

    counts: descriptor of SharedCounters.
    """

    parent: int
    workload: GeneratedTraffic
    sockets: list[int]
    counts: int
    receipts: ReceiptsPart | None = None


class ClientConfig(Struct):
    """Configuration of the client. network: path of its network namespace, empty for this one."""

    parent: int
    workload: GeneratedTraffic
    host: str
    port: int
    network: str
    counts: int
    receipts: ReceiptsPart | None = None


def descriptors_of(receipts: ReceiptsPart | None) -> list[int]:
    """Return the descriptors that a program with this part in receipts has to inherit."""
    return [receipts.descriptor] if isinstance(receipts, Give) else []


def process_count_of(workload: GeneratedTraffic) -> int:
    """Return the number of processes per end: one per connection; for UDP by packet rate, at most one per CPU."""
    if not isinstance(workload, UdpFlood):
        return workload.connections
    needed = -(-workload.packets_per_s // _PACKETS_PER_S_OF_ONE)
    return min(needed, workload.flows, len(os.sched_getaffinity(0)))


def open_sockets(workload: GeneratedTraffic, host: str) -> tuple[list[socket.socket], int]:
    """Open the server's sockets on a free port; return them and the port. Raises OSError."""
    if not isinstance(workload, UdpFlood):
        listener = socket.create_server((host, 0), backlog=workload.connections)
        return [listener], listener.getsockname()[1]
    sockets: list[socket.socket] = []
    port = 0
    for _ in range(process_count_of(workload)):
        one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sockets.append(one)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        one.bind((host, port))
        port = one.getsockname()[1]
    return sockets, port


def join_address(host: str, port: int) -> str:
    """Return host and port as HOST:PORT."""
    return f"{host}:{port}"


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of HOST:PORT. Raises ValueError."""
    host, _, port = address.rpartition(":")
    if not host:
        raise ValueError(f"{address!r} is not HOST:PORT.")
    return host, int(port)


def parse_cpus(text: str) -> list[int]:
    """Return the CPUs of a CPU list, ascending; none for an empty one. Raises ValueError."""
    return sorted(parse_cpu_list(text)) if text else []


def print_line(line: str) -> None:
    """Write a line to standard output in a single write(2)."""
    os.write(1, line.encode() + b"\n")


def exit_with_error(sentence: str) -> NoReturn:
    """Print a line with the reason of a failure and exit with code 1."""
    print_line(FAILED + sentence)
    sys.stdout.flush()
    os._exit(1)
