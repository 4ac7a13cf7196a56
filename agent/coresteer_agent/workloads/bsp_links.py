"""Connections between the processes of a parallel job, on one machine and between two.

Of two machines the first listens and the second opens all connections. Each begins with a few bytes that name the two
processes, because connections may arrive in any order, and a stranger's among them.
"""

import socket
import struct
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import NamedTuple

from coresteer_agent.workloads.bsp_process import neighbours_of
from coresteer_core.experiments.parallel_jobs import Bsp

LINKS_S = 30.0
"""Longest time until all connections between two machines exist."""
_HELLO = struct.Struct("!8sHHH")
_TAG = b"CSBSPJOB"
_HELLO_S = 1.0


class Link(NamedTuple):
    """A connection between two processes of a job. first, second: their ranks on the first and the second machine."""

    job: int
    first: int
    second: int


CONTROL = Link(0xFFFF, 0, 0)
"""The connection between the programs of the two machines."""


def ranks_of(workload: Bsp, machine: int) -> range:
    """Return the ranks of each job's processes on a machine (0 or 1): with two machines, every other one."""
    return range(machine, workload.processes, workload.machines)


def links_of(workload: Bsp) -> list[Link]:
    """Return all connections between two machines; none with one machine."""
    if workload.machines == 1:
        return []
    pairs = [(rank, other) for rank in ranks_of(workload, 0) for other in neighbours_of(workload, rank)]
    between = [pair for pair in pairs if pair[1] in ranks_of(workload, 1)]
    return [CONTROL, *(Link(job, *pair) for job in range(workload.jobs) for pair in between)]


def accept_links(listener: socket.socket, wanted: Collection[Link]) -> dict[Link, socket.socket]:
    """Return the connections that the second machine opens, on the first one. Raises OSError, also if time is over."""
    until_s = time.monotonic() + LINKS_S
    found: dict[Link, socket.socket] = {}
    while len(found) < len(wanted):
        left_s = until_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError(f"the second machine did not open its connections within {LINKS_S:g} s")
        listener.settimeout(left_s)
        with suppress(TimeoutError):
            connection, _ = listener.accept()
            link = _receive_hello(connection)
            if link is not None and link in wanted and link not in found:
                found[link] = connection
            else:
                connection.close()
    return _prepared(found)


def open_links(address: tuple[str, int], wanted: Collection[Link]) -> dict[Link, socket.socket]:
    """Open the connections to the first machine, on the second one. Raises OSError."""
    found = {}
    for link in wanted:
        found[link] = socket.create_connection(address, LINKS_S)
        found[link].sendall(_HELLO.pack(_TAG, *link))
    return _prepared(found)


def connect_job(
    workload: Bsp, job: int, machine: int, links: Mapping[Link, socket.socket]
) -> dict[int, list[socket.socket]]:
    """Return the connections of each of a job's processes on a machine with all its peers, by rank. Raises OSError."""
    ranks = ranks_of(workload, machine)
    ends: dict[int, list[socket.socket]] = {rank: [] for rank in ranks}
    pairs = [(rank, other) for rank in ranks for other in neighbours_of(workload, rank) if rank < other]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        for rank, other in (pair for pair in pairs if pair[1] in ranks):
            near = socket.create_connection(listener.getsockname())
            far, address = listener.accept()
            while address != near.getsockname():  # another program's connection
                far.close()
                far, address = listener.accept()
            for end in (near, far):
                _make_immediate(end)
            ends[rank].append(near)
            ends[other].append(far)
    for link, connection in links.items():
        if link.job == job:
            ends[(link.first, link.second)[machine]].append(connection)
    return ends


def _receive_hello(connection: socket.socket) -> Link | None:
    """Return which connection this is; None if it is none of the jobs'."""
    connection.settimeout(_HELLO_S)
    try:
        tag, *link = _HELLO.unpack(connection.recv(_HELLO.size))
    except (OSError, struct.error):
        return None
    return Link(*link) if tag == _TAG else None


def _prepared(links: dict[Link, socket.socket]) -> dict[Link, socket.socket]:
    for link, connection in links.items():
        if link == CONTROL:
            connection.settimeout(None)
        else:
            _make_immediate(connection)
    return links


def _make_immediate(connection: socket.socket) -> None:
    """Let neither the process wait for a connection nor the kernel for more data to send."""
    connection.setblocking(False)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
