"""The client of a traffic workload: it makes the load, at no more than its rate, and counts.

    python -m coresteer_agent.workloads.traffic_client ORDERS          (traffic.ClientOrders)

A process for each connection, of a flood for each part of its flows. Each has one CPU of client_cpus in turn.
"""

import socket
import sys
import time
from contextlib import suppress
from typing import NoReturn

import msgspec

from coresteer_agent.workloads.process_control import enter_network, pin
from coresteer_agent.workloads.shared_counters import COUNTED, bucket_of, open_row
from coresteer_agent.workloads.traffic import ClientOrders, cpus_of, give_up, processes
from coresteer_agent.workloads.worker_threads import Ready, run_team
from coresteer_core.experiments.model import TcpRequest, TcpStream, UdpFlood

_CONNECT_S = 10
_WRITE_BYTES = 128 * 1024
_SO_MAX_PACING_RATE = 47  # include/uapi/asm-generic/socket.h
_UNPACED_MBIT_PER_S = 400_000
_LATE_NS = 10_000_000
_SHORTEST_SLEEP_NS = 500_000


def main() -> None:
    """Make load until this process is ended."""
    orders = msgspec.json.decode(sys.argv[1], type=ClientOrders)
    workload = orders.workload
    cpus = cpus_of(workload.client_cpus)
    team = processes(workload)
    server = (orders.host, orders.port)
    try:
        enter_network(orders.network)
    except OSError as error:
        give_up(f"The client's network namespace cannot be entered: {error.strerror}.")

    def work(turn: int, ready: Ready) -> None:
        pin(cpus, turn)
        row = open_row(orders.counts, turn)
        if isinstance(workload, UdpFlood):
            flood(server, workload, range(turn, workload.flows, team), row, ready)
        with socket.create_connection(server, _CONNECT_S) as connection:
            connection.settimeout(None)
            if isinstance(workload, TcpRequest):
                ask(connection, workload, row, ready)
            else:
                stream(connection, workload, row, ready)

    run_team(orders.parent, team, work)


def stream(connection: socket.socket, workload: TcpStream, row: memoryview, ready: Ready) -> NoReturn:
    """Send as fast as it goes, or at this connection's part of the rate, which the kernel keeps."""
    if workload.limit_mbit_per_s < _UNPACED_MBIT_PER_S:
        bytes_per_s = workload.limit_mbit_per_s * 1_000_000 // 8 // workload.connections
        connection.setsockopt(socket.SOL_SOCKET, _SO_MAX_PACING_RATE, bytes_per_s.to_bytes(8, sys.byteorder))
    data = bytes(_WRITE_BYTES)
    ready()
    while True:
        connection.sendall(data)
        row[COUNTED] += _WRITE_BYTES


def ask(connection: socket.socket, workload: TcpRequest, row: memoryview, ready: Ready) -> NoReturn:
    """The next request when the last is answered and, at this connection's part of the rate, it is time."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    request, size = bytes(workload.request_bytes), workload.response_bytes
    buffer = bytearray(size)
    apart_ns = 1_000_000_000 * workload.connections // workload.limit_per_s
    due_ns = time.monotonic_ns()
    ready()
    while True:
        asked_ns = time.monotonic_ns()
        if asked_ns < due_ns:
            time.sleep((due_ns - asked_ns) / 1e9)
            asked_ns = time.monotonic_ns()
        due_ns = max(due_ns, asked_ns - _LATE_NS) + apart_ns
        connection.sendall(request)
        if connection.recv_into(buffer, size, socket.MSG_WAITALL) < size:
            raise ConnectionError("the server ended the connection")
        row[bucket_of(time.monotonic_ns() - asked_ns)] += 1
        row[COUNTED] += 1


def flood(server: tuple[str, int], workload: UdpFlood, flows: range, row: memoryview, ready: Ready) -> NoReturn:
    """A packet of each flow in turn, as evenly as sleeping allows; what could not be sent in time is left out."""
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in flows]
    for one in sockets:
        one.connect(server)
    sends = [one.send for one in sockets]
    data = bytes(workload.payload_bytes)
    apart_ns = 1_000_000_000 * workload.flows // (workload.packets_per_s * len(flows)) or 1
    ready()
    due_ns = time.monotonic_ns()
    while True:
        for send in sends:
            now_ns = time.monotonic_ns()
            if now_ns < due_ns:
                time.sleep(max(due_ns - now_ns, _SHORTEST_SLEEP_NS) / 1e9)
            due_ns = max(due_ns, now_ns - _LATE_NS) + apart_ns
            with suppress(OSError):  # nobody listens yet, or a queue is full
                send(data)
                row[COUNTED] += 1


if __name__ == "__main__":
    main()
