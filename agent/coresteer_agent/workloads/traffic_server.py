"""The server of a traffic workload: it takes what comes, counts it, and answers requests.

    python -m coresteer_agent.workloads.traffic_server ORDERS          (traffic.ServerOrders)

A process for each connection, which takes the next one when that ends: no more are served at a time than the workload
has, whoever asks. Each has one CPU of server_cpus in turn.
"""

import socket
import sys
import time
from contextlib import suppress
from typing import NoReturn

import msgspec

from coresteer_agent.workloads.process_control import pin
from coresteer_agent.workloads.shared_counters import COUNTED, open_row
from coresteer_agent.workloads.traffic import ServerOrders, cpus_of
from coresteer_agent.workloads.worker_threads import Ready, run_team
from coresteer_core.experiments.model import TcpRequest, UdpFlood

_READ_BYTES = 256 * 1024


def main() -> None:
    """Serve until this process is ended."""
    orders = msgspec.json.decode(sys.argv[1], type=ServerOrders)
    workload = orders.workload
    cpus = cpus_of(workload.server_cpus)
    sockets = [socket.socket(fileno=descriptor) for descriptor in orders.sockets]
    team = len(sockets) if isinstance(workload, UdpFlood) else workload.connections

    def work(turn: int, ready: Ready) -> None:
        pin(cpus, turn)
        row = open_row(orders.counts, turn)
        ready()
        if isinstance(workload, UdpFlood):
            take_packets(sockets[turn], workload.payload_bytes, row)
        while True:
            connection, _ = sockets[0].accept()
            with connection, suppress(ConnectionError):  # the client was ended
                if isinstance(workload, TcpRequest):
                    answer(connection, workload, row)
                else:
                    discard(connection, row)

    run_team(orders.parent, team, work)


def discard(connection: socket.socket, row: memoryview) -> None:
    """Count the bytes until the client ends the connection."""
    buffer = bytearray(_READ_BYTES)
    while size := connection.recv_into(buffer):
        row[COUNTED] += size


def answer(connection: socket.socket, workload: TcpRequest, row: memoryview) -> None:
    """Each whole request, until the client ends the connection."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    size = workload.request_bytes
    buffer, response, work_ns = bytearray(size), bytes(workload.response_bytes), workload.work_us * 1000
    while connection.recv_into(buffer, size, socket.MSG_WAITALL) == size:
        if work_ns:
            until_ns = time.thread_time_ns() + work_ns
            while time.thread_time_ns() < until_ns:
                pass
        connection.sendall(response)
        row[COUNTED] += 1


def take_packets(packets: socket.socket, size: int, row: memoryview) -> NoReturn:
    """Count them for ever."""
    buffer = bytearray(size)
    while True:
        packets.recv_into(buffer)
        row[COUNTED] += 1


if __name__ == "__main__":
    main()
