"""What the two ends of a traffic workload are told, and how many processes each is."""

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
"""A program of a workload says one of the two, the second with a sentence, as a line of its output."""
_PACKETS_PER_S_OF_ONE = 100_000


class ServerOrders(Struct):
    """sockets: descriptors, a listening one for TCP, one for each process for UDP. counts: a Counts' descriptor."""

    parent: int
    workload: Generated
    sockets: list[int]
    counts: int


class ClientOrders(Struct):
    """network: of the client's namespace, as a path, empty for this one."""

    parent: int
    workload: Generated
    host: str
    port: int
    network: str
    counts: int


def processes(workload: Generated) -> int:
    """How many of an end: one for each connection; of a flood as many as its rate needs and there are CPUs for."""
    if not isinstance(workload, UdpFlood):
        return workload.connections
    needed = -(-workload.packets_per_s // _PACKETS_PER_S_OF_ONE)
    return min(needed, workload.flows, len(os.sched_getaffinity(0)))


def open_sockets(workload: Generated, host: str) -> tuple[list[socket.socket], int]:
    """The server's, on a port that was free. Raises OSError."""
    if not isinstance(workload, UdpFlood):
        listener = socket.create_server((host, 0), backlog=workload.connections)
        return [listener], listener.getsockname()[1]
    sockets: list[socket.socket] = []
    port = 0
    for _ in range(processes(workload)):
        one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sockets.append(one)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        one.bind((host, port))
        port = one.getsockname()[1]
    return sockets, port


def join_address(host: str, port: int) -> str:
    """As it is told to a client on another node."""
    return f"{host}:{port}"


def split_address(address: str) -> tuple[str, int]:
    """Host and port. Raises ValueError."""
    host, _, port = address.rpartition(":")
    if not host:
        raise ValueError(f"{address!r} is no HOST:PORT.")
    return host, int(port)


def cpus_of(text: str) -> list[int]:
    """Of a CPU list, in order; empty for an empty one. Raises ValueError."""
    return sorted(parse_cpu_list(text)) if text else []


def say(line: str) -> None:
    """A line of output, at once and in one piece."""
    os.write(1, line.encode() + b"\n")


def give_up(sentence: str) -> NoReturn:
    """Say why, and end."""
    say(FAILED + sentence)
    sys.stdout.flush()
    os._exit(1)
