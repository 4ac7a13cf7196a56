"""A process of a job whose peer is in another network namespace, as if on another machine. Run it in one of its own.

python -m tests.agent.remote_peer PORT

Prints ``ready`` once messages come from 10.77.0.2, 20 a second, which it does not read; then it computes.
"""

import os
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

HERE, PEER = "10.77.0.1", "10.77.0.2"


def main() -> None:
    port = sys.argv[1]
    if sys.argv[2:]:
        send(int(port))
        return
    run = ["unshare", "--net", sys.executable, "-m", "tests.agent.remote_peer", port, "peer"]
    with subprocess.Popen(run, stdin=subprocess.PIPE) as peer:
        own = Path("/proc/self/ns/net").readlink()
        while Path(f"/proc/{peer.pid}/ns/net").readlink() == own:  # until it has its own
            os.sched_yield()
        for command in (
            f"ip link add veth0 type veth peer name veth1 netns {peer.pid}",
            f"ip addr add {HERE}/24 dev veth0",
            "ip link set veth0 up",
            f"nsenter --net=/proc/{peer.pid}/ns/net ip addr add {PEER}/24 dev veth1",
            f"nsenter --net=/proc/{peer.pid}/ns/net ip link set veth1 up",
        ):
            subprocess.run(command.split(), check=True)
        with socket.create_server((HERE, int(port))) as server:
            assert peer.stdin is not None
            peer.stdin.write(b"\n")
            peer.stdin.flush()
            connection, _ = server.accept()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while connection:  # computes, so that it has time slices
            sum(range(20_000))
            time.sleep(0.002)


def send(port: int) -> None:
    """Send messages until the other process ends."""
    sys.stdin.readline()
    with suppress(OSError), socket.create_connection((HERE, port)) as connection:
        while True:
            connection.sendall(b"message")
            time.sleep(0.05)


if __name__ == "__main__":
    main()
