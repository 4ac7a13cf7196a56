"""A receiving program that prints which CPU and which NAPI handled its packets, and on which CPU it read them.

Runs in a guest; standard library only. SO_INCOMING_CPU (net/core/sock.c) is the CPU that did the protocol work of a
socket's last packet, SO_INCOMING_NAPI_ID identifies the queue that was polled for it.
"""

import argparse
import ctypes
import json
import os
import selectors
import socket
import time
from collections import Counter
from contextlib import suppress

_SO_INCOMING_CPU, _SO_INCOMING_NAPI_ID = 49, 56


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--every", type=float, default=1.0, help="seconds between two lines of output")
    parser.add_argument("--life", type=float, default=0.0, help="seconds until another process takes over; 0: never")
    parser.add_argument("--udp-from", default="", help="receive UDP from this address, on connected sockets")
    parser.add_argument("--flows", type=int, default=1, help="UDP sockets; the first one's peer has the source port")
    parser.add_argument("--source-port", type=int, default=0)
    args = parser.parse_args()
    end = time.monotonic() + args.seconds
    if args.life:
        print("ready", flush=True)
        while os.fork():
            os.wait()
            if time.monotonic() >= end:
                return
        end = min(end, time.monotonic() + args.life)
    receive(args, end)


def receive(args: argparse.Namespace, end: float) -> None:
    """Receive until a time and print what was received."""
    cpu_now = ctypes.CDLL(None).sched_getcpu
    ready = selectors.DefaultSelector()
    listener = None if args.udp_from else socket.create_server(("", args.port), backlog=1024)
    for receiving in [listener] if listener is not None else connected(args):
        ready.register(receiving, selectors.EVENT_READ)
    received: Counter[tuple[int, int, int]] = Counter()
    if not args.life:
        print("ready", flush=True)
    due = time.monotonic() + args.every
    while (now := time.monotonic()) < end:
        for key, _ in ready.select(max(min(end, due) - now, 0)):
            if key.fileobj is listener and listener is not None:
                ready.register(listener.accept()[0], selectors.EVENT_READ)
                continue
            connection = key.fileobj
            assert isinstance(connection, socket.socket)
            data = b""
            with suppress(ConnectionError):  # its sender was killed
                data = connection.recv(256 * 1024)
            if not data:
                ready.unregister(connection)
                connection.close()
                continue
            protocol, napi = (
                connection.getsockopt(socket.SOL_SOCKET, option) for option in (_SO_INCOMING_CPU, _SO_INCOMING_NAPI_ID)
            )
            received[protocol, cpu_now(), napi] += len(data)
        if time.monotonic() >= due:
            due += args.every
            cells = [[*where, count] for where, count in sorted(received.items())]
            print(json.dumps({"time_s": time.monotonic(), "received": cells}), flush=True)
            received.clear()


def connected(args: argparse.Namespace) -> list[socket.socket]:
    """Return a UDP socket for each flow: the kernel stores the CPU and steers (RFS) for connected ones only."""
    made = []
    for flow in range(args.flows):
        one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind(("", args.port))
        one.connect((args.udp_from, args.source_port + flow))
        made.append(one)
    return made


if __name__ == "__main__":
    main()
