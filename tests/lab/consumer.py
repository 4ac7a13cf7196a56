"""A receiving program that prints on which CPU its packets were handled and on which it read them.

Runs in a guest; standard library only. SO_INCOMING_CPU (net/core/sock.c) is the CPU that handled a
socket's last packet.
"""

import argparse
import ctypes
import json
import selectors
import socket
import time
from collections import Counter

_SO_INCOMING_CPU = 49


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--every", type=float, default=1.0, help="seconds between two lines of output")
    args = parser.parse_args()
    cpu_now = ctypes.CDLL(None).sched_getcpu
    ready = selectors.DefaultSelector()
    listener = socket.create_server(("", args.port))
    ready.register(listener, selectors.EVENT_READ)
    received: Counter[tuple[int, int]] = Counter()
    print("ready", flush=True)
    end, due = time.monotonic() + args.seconds, time.monotonic() + args.every
    while (now := time.monotonic()) < end:
        for key, _ in ready.select(min(end, due) - now):
            if key.fileobj is listener:
                ready.register(listener.accept()[0], selectors.EVENT_READ)
                continue
            connection = key.fileobj
            assert isinstance(connection, socket.socket)
            data = connection.recv(256 * 1024)
            if not data:
                ready.unregister(connection)
                connection.close()
                continue
            received[connection.getsockopt(socket.SOL_SOCKET, _SO_INCOMING_CPU), cpu_now()] += len(data)
        if time.monotonic() >= due:
            due += args.every
            cells = [[softirq, task, count] for (softirq, task), count in sorted(received.items())]
            print(json.dumps({"time_s": time.monotonic(), "received": cells}), flush=True)
            received.clear()


if __name__ == "__main__":
    main()
