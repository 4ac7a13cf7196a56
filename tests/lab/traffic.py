"""Traffic between the lab's own guests and namespaces, counted and bounded. Runs in a guest; standard library only.

serve: discards UDP and TCP and answers requests until its timeout. flood: UDP from many source ports. stream: TCP.
request: one byte there and back, again and again. Each prints its result as one line of JSON.
"""

import argparse
import json
import selectors
import socket
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from functools import partial

PORT = 9000
"""UDP and TCP to here are discarded; requests go to the next port."""
_BATCH = 32


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("what", choices=["serve", "flood", "stream", "request"])
    parser.add_argument("--to", default="", help="address")
    parser.add_argument("--flows", type=int, default=1, help="source ports of a flood, connections of a stream")
    parser.add_argument("--count", type=int, default=10_000, help="packets, MiB or requests at most")
    parser.add_argument("--rate", type=int, default=2_000, help="packets a second of a flood")
    parser.add_argument("--port", type=int, default=PORT, help="of a stream or a flood")
    parser.add_argument("--source-port", type=int, default=0, help="of a flood's first flow; 0 is any")
    parser.add_argument("--kib-per-s", type=int, default=0, help="of a stream, all its flows together; 0 is no limit")
    parser.add_argument("--size", type=int, default=64, help="bytes of a packet")
    parser.add_argument("--chunk", type=int, default=64 << 10, help="bytes that a stream sends on one flow at a time")
    parser.add_argument("--life", type=float, default=0.0, help="seconds until a stream's flows are replaced; 0: never")
    parser.add_argument("--pause-ms", type=float, default=0.0, help="between two requests")
    parser.add_argument("--seconds", type=float, default=10, help="how long at most")
    parser.add_argument("--after", type=float, default=0.0, help="seconds from which on requests are measured")
    args = parser.parse_args()
    print(json.dumps({"serve": serve, "flood": flood, "stream": stream, "request": request}[args.what](args)))


def serve(args: argparse.Namespace) -> dict[str, int]:
    """Receive and answer on every address."""
    counted = {"packets": 0, "bytes": 0, "requests": 0}
    ready = selectors.DefaultSelector()
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.bind(("", PORT))
    datagrams.setblocking(False)
    ready.register(datagrams, selectors.EVENT_READ, partial(_count, datagrams, counted))
    for port, take in ((PORT, _discard), (PORT + 1, _echo)):
        listener = socket.create_server(("", port))
        ready.register(listener, selectors.EVENT_READ, partial(_accept, listener, ready, counted, take))
    print("ready", flush=True)
    end = time.monotonic() + args.seconds
    while (left := end - time.monotonic()) > 0:
        for key, _ in ready.select(left):
            key.data()
    return counted


_Take = Callable[[socket.socket, dict[str, int]], bool]


def _count(datagrams: socket.socket, counted: dict[str, int]) -> None:
    for _ in range(_BATCH):
        try:
            counted["bytes"] += len(datagrams.recv(2048))
        except BlockingIOError:
            return
        counted["packets"] += 1


def _accept(listener: socket.socket, ready: selectors.BaseSelector, counted: dict[str, int], take: _Take) -> None:
    connection, _ = listener.accept()

    def work() -> None:
        goes_on = False
        with suppress(ConnectionError):  # who is killed resets it
            goes_on = take(connection, counted)
        if not goes_on:
            ready.unregister(connection)
            connection.close()

    ready.register(connection, selectors.EVENT_READ, work)


def _discard(connection: socket.socket, counted: dict[str, int]) -> bool:
    data = connection.recv(256 * 1024)
    counted["bytes"] += len(data)
    return bool(data)


def _echo(connection: socket.socket, counted: dict[str, int]) -> bool:
    data = connection.recv(2048)
    if data:
        connection.sendall(data)
        counted["requests"] += 1
    return bool(data)


def flood(args: argparse.Namespace) -> dict[str, float]:
    """Send UDP from one source port per flow, in turn, at a constant rate."""
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(args.flows)]
    for flow, one in enumerate(sockets):
        if args.source_port:
            one.bind(("", args.source_port + flow))
        one.connect((args.to, args.port))
    data, sent, refused = bytes(args.size), 0, 0
    start = time.monotonic()
    while sent < args.count and (elapsed := time.monotonic() - start) < args.seconds:
        due = min(int(elapsed * args.rate), args.count)
        if due <= sent:
            time.sleep(1 / args.rate)
        while sent < due:
            try:
                sockets[sent % args.flows].send(data)
            except OSError:
                refused += 1  # nobody listens yet, or a queue is full
            sent += 1
    return {"packets": sent, "refused": refused, "seconds": time.monotonic() - start}


def stream(args: argparse.Namespace) -> dict[str, float]:
    """Send TCP at maximum speed or at a constant rate."""
    limit, sent, start = args.count << 20, 0, time.monotonic()
    data, end = bytes(args.chunk), start + args.seconds
    while sent < limit and time.monotonic() < end:
        flows_end = min(end, time.monotonic() + args.life) if args.life else end
        with suppress(ConnectionError) if args.life else nullcontext():  # the receiver is replaced as well
            connections = [socket.create_connection((args.to, args.port), 10) for _ in range(args.flows)]
            while sent < limit and (now := time.monotonic()) < flows_end:
                if args.kib_per_s and (ahead_s := sent / (args.kib_per_s << 10) - (now - start)) > 0:
                    time.sleep(ahead_s)
                for connection in connections:
                    connection.sendall(data)
                    sent += len(data)
    return {"bytes": sent, "seconds": time.monotonic() - start}


def request(args: argparse.Namespace) -> dict[str, float]:
    """Send requests one after the other, on each connection in turn; report median and 99th percentile.

    Those of the first seconds (after) do not count.
    """
    connections = [socket.create_connection((args.to, PORT + 1), 10) for _ in range(args.flows)]
    took: list[float] = []
    sent, start = 0, time.monotonic()
    while sent < args.count and time.monotonic() - start < args.seconds:
        connection = connections[sent % args.flows]
        asked = time.monotonic()
        connection.sendall(b"?")
        connection.recv(1)
        sent += 1
        if asked - start >= args.after:
            took.append(time.monotonic() - asked)
        time.sleep(args.pause_ms / 1000)
    took.sort()
    p50_us, p99_us = (took[int(len(took) * share)] * 1e6 if took else 0.0 for share in (0.5, 0.99))
    return {"requests": len(took), "p50_us": p50_us, "p99_us": p99_us}


if __name__ == "__main__":
    main()
