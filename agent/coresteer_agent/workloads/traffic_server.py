"""Server program of a traffic workload: receives and counts data, and answers requests.

    python -m coresteer_agent.workloads.traffic_server CONFIG          (traffic_protocol.ServerConfig)

One process per connection, which accepts the next one when that ends, so that no more connections are served at a time
than the workload has. Each is pinned to one CPU of server_cpus in turn.
"""

import socket
import sys
import time
from contextlib import suppress
from typing import NoReturn

import msgspec

from coresteer_agent.workloads.process_control import pin_to_cpu
from coresteer_agent.workloads.receipts import begin_receipts
from coresteer_agent.workloads.shared_counters import COUNT_INDEX, open_row
from coresteer_agent.workloads.traffic_protocol import ServerConfig, parse_cpus
from coresteer_agent.workloads.worker_processes import SignalReady, run_processes
from coresteer_core.experiments.model import TcpRequest, UdpFlood

_READ_BYTES = 256 * 1024


def main() -> None:
    """Serve the traffic workload's client until this process is ended."""
    config = msgspec.json.decode(sys.argv[1], type=ServerConfig)
    begin_receipts(config.receipts)
    workload = config.workload
    cpus = parse_cpus(workload.server_cpus)
    sockets = [socket.socket(fileno=descriptor) for descriptor in config.sockets]
    process_count = len(sockets) if isinstance(workload, UdpFlood) else workload.connections

    def work(index: int, ready: SignalReady) -> None:
        pin_to_cpu(cpus, index)
        row = open_row(config.counts, index)
        ready()
        if isinstance(workload, UdpFlood):
            count_packets(sockets[index], workload.payload_bytes, row)
        while True:
            connection, _ = sockets[0].accept()
            with connection, suppress(ConnectionError):  # the client has ended
                if isinstance(workload, TcpRequest):
                    answer_requests(connection, workload, row)
                else:
                    count_stream(connection, row)

    run_processes(config.parent, process_count, work)


def count_stream(connection: socket.socket, row: memoryview) -> None:
    """Count a connection's received bytes until the client closes it."""
    buffer = bytearray(_READ_BYTES)
    while size := connection.recv_into(buffer):
        row[COUNT_INDEX] += size


def answer_requests(connection: socket.socket, workload: TcpRequest, row: memoryview) -> None:
    """Answer a connection's requests until the client closes it."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    size = workload.request_bytes
    buffer, response, work_ns = bytearray(size), bytes(workload.response_bytes), workload.work_us * 1000
    while connection.recv_into(buffer, size, socket.MSG_WAITALL) == size:
        if work_ns:
            until_ns = time.thread_time_ns() + work_ns
            while time.thread_time_ns() < until_ns:
                pass
        connection.sendall(response)
        row[COUNT_INDEX] += 1


def count_packets(packets: socket.socket, size: int, row: memoryview) -> NoReturn:
    """Count received UDP packets until this process is ended."""
    buffer = bytearray(size)
    while True:
        packets.recv_into(buffer)
        row[COUNT_INDEX] += 1


if __name__ == "__main__":
    main()
