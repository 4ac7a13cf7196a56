"""Connect standard input and output to a port of this machine; QEMU runs it for each connection of a guest."""

import os
import select
import socket
import sys


def main() -> None:
    """Forward until either side ends."""
    with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as backend:
        ways = {0: backend.fileno(), backend.fileno(): 1}
        while True:
            for source in select.select(list(ways), [], [])[0]:
                data = os.read(source, 65536)
                if not data:
                    return
                view = memoryview(data)
                while view:
                    view = view[os.write(ways[source], view) :]


if __name__ == "__main__":
    main()
