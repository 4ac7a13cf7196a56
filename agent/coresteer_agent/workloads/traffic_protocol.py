"""Configuration and output of the two ends of a traffic workload, and their number of processes."""

import os
import socket
import sys
from typing import NoReturn, TypeAlias

from msgspec import Struct

from coresteer_core.cpuset import parse_cpu_list
from coresteer_core.experiments.model import TcpRequest, TcpStream, UdpFlood

Generated: TypeAlias = TcpStream | TcpRequest | UdpFlood
READY = "ready"
FAILED = "failed "
"""A workload's program prints one of these as a line, the second followed by a sentence."""
_PACKETS_PER_S_OF_ONE = 100_000


class ServerConfig(Struct):
    """sockets: descriptors, one listening for TCP, one per process for UDP. counts: descriptor of SharedCounters."""

    parent: int
    workload: Generated
    sockets: list[int]
    counts: int


class ClientConfig(Struct):
    """network: path of the client's namespace, empty for this one."""

    parent: int
    workload: Generated
    host: str
    port: int
    network: str
    counts: int


def process_count_of(workload: Generated) -> int:
    """Return the processes per end: one per connection; for a flood as its rate requires, at most one per CPU."""
    if not isinstance(workload, UdpFlood):
        return workload.connections
    needed = -(-workload.packets_per_s // _PACKETS_PER_S_OF_ONE)
    return min(needed, workload.flows, len(os.sched_getaffinity(0)))


def open_sockets(workload: Generated, host: str) -> tuple[list[socket.socket], int]:
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
    """Return HOST:PORT, as it is sent to a client on another node."""
    return f"{host}:{port}"


def split_address(address: str) -> tuple[str, int]:
    """Return host and port. Raises ValueError."""
    host, _, port = address.rpartition(":")
    if not host:
        raise ValueError(f"{address!r} is not HOST:PORT.")
    return host, int(port)


def cpus_of(text: str) -> list[int]:
    """Return the CPUs of a CPU list in order, none for an empty one. Raises ValueError."""
    return sorted(parse_cpu_list(text)) if text else []


def print_line(line: str) -> None:
    """Write one line to standard output in a single write."""
    os.write(1, line.encode() + b"\n")


def exit_with_error(sentence: str) -> NoReturn:
    """Print why the program fails, and exit with 1."""
    print_line(FAILED + sentence)
    sys.stdout.flush()
    os._exit(1)
