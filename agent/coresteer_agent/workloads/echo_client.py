"""Client of one service class: threads that each ask the echo server again and again, on a new connection each time.

    python -m coresteer_agent.workloads.echo_client ORDERS     (JSON; stdin: starts with a byte, ends when it is closed)

Writes a byte when it is ready, and in the end Seen into a file.
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
"""SO_LINGER: the client's end leaves no TIME_WAIT behind, of which there would be tens of thousands."""


class Orders(Struct):
    """What to do. requests: of each thread; output: the file for Seen."""

    port: int
    threads: int
    requests: int
    seed: int
    cpus: list[int]
    output: str


class Seen(Struct):
    """responses_us, waits_us: of each request that was answered, from connect to answer and from accept until a CPU
    worked on it. begin_s, end_s: CLOCK_MONOTONIC. cpu_s: this process's own.
    """

    responses_us: list[int]
    waits_us: list[int]
    failed: int
    begin_s: float
    end_s: float
    cpu_s: float


class Tally:
    """What one thread saw."""

    def __init__(self) -> None:
        self.responses_us: list[int] = []
        self.waits_us: list[int] = []
        self.failed = 0


def ask(port: int, request: bytes) -> int:
    """One request. Returns how long it waited at the server, in ns. Raises OSError, also for a wrong answer."""
    with socket.socket() as connection:
        connection.settimeout(TIMEOUT_S)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        connection.connect(("127.0.0.1", port))
        connection.send(request)
        answer = b""
        while len(answer) < ANSWER_BYTES:
            part = connection.recv(ANSWER_BYTES - len(answer))
            if not part:
                raise ConnectionError("The server ended the connection without an answer.")
            answer += part
    if answer[-REQUEST_BYTES:] != request:
        raise ConnectionError("The answer is not that to the request.")
    return int.from_bytes(answer[:WAIT_BYTES])


def run_thread(port: int, requests: int, request: bytes, tally: Tally) -> None:
    """One request after the other."""
    for _ in range(requests):
        begin_ns = time.monotonic_ns()
        try:
            wait_ns = ask(port, request)
        except OSError:
            tally.failed += 1
            continue
        tally.responses_us.append((time.monotonic_ns() - begin_ns) // 1000)
        tally.waits_us.append(wait_ns // 1000)


def _end_with_parent() -> None:
    os.read(0, 1)
    os._exit(1)


def main() -> None:
    """Make the threads, wait for the start, and tell what they saw."""
    orders = msgspec.json.decode(sys.argv[1], type=Orders)
    os.sched_setaffinity(0, orders.cpus)
    random_ = random.Random(orders.seed)  # noqa: S311 - no secret
    tallies = [Tally() for _ in range(orders.threads)]
    threads = [
        threading.Thread(
            target=run_thread, args=(orders.port, orders.requests, random_.randbytes(REQUEST_BYTES), tally), daemon=True
        )
        for tally in tallies
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
    seen = Seen(
        responses_us=[value for tally in tallies for value in tally.responses_us],
        waits_us=[value for tally in tallies for value in tally.waits_us],
        failed=sum(tally.failed for tally in tallies),
        begin_s=begin_s,
        end_s=time.monotonic(),
        cpu_s=time.process_time(),
    )
    Path(orders.output).write_bytes(msgspec.json.encode(seen))


if __name__ == "__main__":
    main()
