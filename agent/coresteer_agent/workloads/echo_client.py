"""Client program of one service class: threads that send requests to the echo server on new connections.

    python -m coresteer_agent.workloads.echo_client CONFIG     (JSON; stdin: starts with a byte, ends when it is closed)

Writes a byte when it is ready, and at the end ClientResult to a file.
"""

import os
import random
import socket
import struct
import sys
import threading
import time
from pathlib import Path

import msgspec
from msgspec import Struct

from coresteer_agent.workloads.echo_server import ANSWER_BYTES, REQUEST_BYTES, WAIT_BYTES

TIMEOUT_S = 60
_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER of 0 s: close without TIME_WAIT, so that tens of thousands of connections do not accumulate."""


class Config(Struct):
    """Configuration of the client. requests: of each thread. output: the file for ClientResult."""

    port: int
    threads: int
    requests: int
    seed: int
    cpus: list[int]
    output: str


class ClientResult(Struct):
    """Response times and waiting times of all answered requests, and the number of failed ones.

    responses_us: from connect to answer. waits_us: from accept until the request got a CPU. begin_s, end_s:
    CLOCK_MONOTONIC. cpu_s: CPU time of this process.
    """

    responses_us: list[int]
    waits_us: list[int]
    failed: int
    begin_s: float
    end_s: float
    cpu_s: float


class ThreadResult:
    """Response and waiting times measured by one thread."""

    def __init__(self) -> None:
        self.responses_us: list[int] = []
        self.waits_us: list[int] = []
        self.failed = 0


def request_once(port: int, request: bytes) -> int:
    """Send one request; return its waiting time at the server in ns. Raises OSError, also for a wrong answer."""
    with socket.socket() as connection:
        connection.settimeout(TIMEOUT_S)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        connection.connect(("127.0.0.1", port))
        connection.send(request)
        answer = b""
        while len(answer) < ANSWER_BYTES:
            part = connection.recv(ANSWER_BYTES - len(answer))
            if not part:
                raise ConnectionError("The server closed the connection without an answer.")
            answer += part
    if answer[-REQUEST_BYTES:] != request:
        raise ConnectionError("The answer does not match the request.")
    return int.from_bytes(answer[:WAIT_BYTES])


def run_thread(port: int, requests: int, request: bytes, result: ThreadResult) -> None:
    """Send requests one after the other and append their times to the result."""
    for _ in range(requests):
        begin_ns = time.monotonic_ns()
        try:
            wait_ns = request_once(port, request)
        except OSError:
            result.failed += 1
            continue
        result.responses_us.append((time.monotonic_ns() - begin_ns) // 1000)
        result.waits_us.append(wait_ns // 1000)


def _end_with_parent() -> None:
    os.read(0, 1)
    os._exit(1)


def main() -> None:
    """Start the client's threads on the first byte of stdin, and write their result to a file."""
    config = msgspec.json.decode(sys.argv[1], type=Config)
    os.sched_setaffinity(0, config.cpus)
    random_ = random.Random(config.seed)  # noqa: S311 - no secret
    results = [ThreadResult() for _ in range(config.threads)]
    threads = [
        threading.Thread(
            target=run_thread,
            args=(config.port, config.requests, random_.randbytes(REQUEST_BYTES), result),
            daemon=True,
        )
        for result in results
    ]
    os.write(1, b" ")
    if not os.read(0, 1):
        return
    threading.Thread(target=_end_with_parent, daemon=True).start()
    begin_s = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    client_result = ClientResult(
        responses_us=[value for result in results for value in result.responses_us],
        waits_us=[value for result in results for value in result.waits_us],
        failed=sum(result.failed for result in results),
        begin_s=begin_s,
        end_s=time.monotonic(),
        cpu_s=time.process_time(),
    )
    Path(config.output).write_bytes(msgspec.json.encode(client_result))


if __name__ == "__main__":
    main()
