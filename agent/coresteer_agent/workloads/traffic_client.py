"""Client program of a traffic workload: generates load at up to its rate limit, and counts it.

    python -m coresteer_agent.workloads.traffic_client CONFIG          (traffic_protocol.ClientConfig)

One process per connection, or for a flood per part of its flows. Each is pinned to one CPU of client_cpus in turn.
"""

import socket
import sys
import time
from contextlib import suppress
from typing import NoReturn

import msgspec

from coresteer_agent.workloads.process_control import enter_network_namespace, pin_to_cpu
from coresteer_agent.workloads.receipts import begin_receipts
from coresteer_agent.workloads.shared_counters import COUNT_INDEX, bucket_of, open_row
from coresteer_agent.workloads.traffic_protocol import ClientConfig, exit_with_error, parse_cpus, process_count_of
from coresteer_agent.workloads.worker_processes import SignalReady, run_processes
from coresteer_core.experiments.model import TcpRequest, TcpStream, UdpFlood

_CONNECT_S = 10
_WRITE_BYTES = 128 * 1024
_SO_MAX_PACING_RATE = 47  # include/uapi/asm-generic/socket.h
_UNPACED_MBIT_PER_S = 400_000
_LATE_NS = 10_000_000
_MIN_SLEEP_NS = 500_000


def main() -> None:
    """Generate the traffic workload's load until this process is ended."""
    config = msgspec.json.decode(sys.argv[1], type=ClientConfig)
    workload = config.workload
    cpus = parse_cpus(workload.client_cpus)
    process_count = process_count_of(workload)
    server = (config.host, config.port)
    try:
        enter_network_namespace(config.network)
    except OSError as error:
        exit_with_error(f"The client of the workload cannot enter its network namespace: {error.strerror}.")
    begin_receipts(config.receipts)

    def work(index: int, ready: SignalReady) -> None:
        pin_to_cpu(cpus, index)
        row = open_row(config.counts, index)
        if isinstance(workload, UdpFlood):
            send_packets(server, workload, range(index, workload.flows, process_count), row, ready)
        with socket.create_connection(server, _CONNECT_S) as connection:
            connection.settimeout(None)
            if isinstance(workload, TcpRequest):
                send_requests(connection, workload, row, ready)
            else:
                send_stream(connection, workload, row, ready)

    run_processes(config.parent, process_count, work)


def send_stream(connection: socket.socket, workload: TcpStream, row: memoryview, ready: SignalReady) -> NoReturn:
    """Send a TCP stream at maximum speed, or at this connection's share of the rate limit (kernel pacing)."""
    if workload.limit_mbit_per_s < _UNPACED_MBIT_PER_S:
        bytes_per_s = workload.limit_mbit_per_s * 1_000_000 // 8 // workload.connections
        connection.setsockopt(socket.SOL_SOCKET, _SO_MAX_PACING_RATE, bytes_per_s.to_bytes(8, sys.byteorder))
    data = bytes(_WRITE_BYTES)
    ready()
    while True:
        connection.sendall(data)
        row[COUNT_INDEX] += _WRITE_BYTES


def send_requests(connection: socket.socket, workload: TcpRequest, row: memoryview, ready: SignalReady) -> NoReturn:
    """Send requests, each after the previous answer, at this connection's share of the rate limit."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    request, size = bytes(workload.request_bytes), workload.response_bytes
    buffer = bytearray(size)
    apart_ns = 1_000_000_000 * workload.connections // workload.limit_per_s
    due_ns = time.monotonic_ns()
    ready()
    while True:
        sent_ns = time.monotonic_ns()
        if sent_ns < due_ns:
            time.sleep((due_ns - sent_ns) / 1e9)
            sent_ns = time.monotonic_ns()
        due_ns = max(due_ns, sent_ns - _LATE_NS) + apart_ns
        connection.sendall(request)
        if connection.recv_into(buffer, size, socket.MSG_WAITALL) < size:
            raise ConnectionError("the server closed the connection")
        row[bucket_of(time.monotonic_ns() - sent_ns)] += 1
        row[COUNT_INDEX] += 1


def send_packets(
    server: tuple[str, int], workload: UdpFlood, flows: range, row: memoryview, ready: SignalReady
) -> NoReturn:
    """Send UDP packets of each flow in turn at an even rate; packets that would be late are omitted."""
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
                time.sleep(max(due_ns - now_ns, _MIN_SLEEP_NS) / 1e9)
            due_ns = max(due_ns, now_ns - _LATE_NS) + apart_ns
            with suppress(OSError):  # the server does not listen yet, or a queue is full
                send(data)
                row[COUNT_INDEX] += 1


if __name__ == "__main__":
    main()
