"""A flow between two network namespaces over a veth, seen from one of them. Runs in a namespace of its own, as root.

Prints where the flow lands while RPS of the veth is CPU 0, then 1.
"""

import os
import socket
import subprocess
import sys
from pathlib import Path

from tests.support.polling import poll

from coresteer_agent.observe.flows import FlowReader
from coresteer_agent.observe.inventory import InventoryReader
from coresteer_core.node.tasks import RxPlacement

ROOT = Path("/")
_PEER = "import socket\nc = socket.create_connection(('10.77.0.1', 9))\nwhile c.recv(64): pass"


def main() -> None:
    subprocess.run(["mount", "-t", "sysfs", "sysfs", "/sys"], check=True)  # which shows this namespace's netdevs
    peer = subprocess.Popen(["unshare", "--net", "cat"], stdin=subprocess.PIPE)
    try:
        trial(peer.pid)
    finally:
        peer.communicate()


def trial(peer: int) -> None:
    here = Path("/proc/self/ns/net").readlink()
    while Path(f"/proc/{peer}/ns/net").readlink() == here:  # until the other program has its own
        os.sched_yield()
    inside = ["nsenter", f"--net=/proc/{peer}/ns/net"]
    for command in (
        ["ip", "link", "add", "veth0", "type", "veth", "peer", "name", "veth1", "netns", str(peer)],
        ["ip", "addr", "add", "10.77.0.1/24", "dev", "veth0"],
        ["ip", "link", "set", "veth0", "up"],
        [*inside, "ip", "addr", "add", "10.77.0.2/24", "dev", "veth1"],
        [*inside, "ip", "link", "set", "veth1", "up"],
    ):
        subprocess.run(command, check=True)
    server = socket.create_server(("10.77.0.1", 9))
    reader = FlowReader(ROOT)
    reader.read(InventoryReader(ROOT).read())
    client = subprocess.Popen([*inside, sys.executable, "-c", _PEER])
    connection, _ = server.accept()
    for cpu in (0, 1):
        Path("/sys/class/net/veth0/queues/rx-0/rps_cpus").write_text(f"{1 << cpu:x}")
        rx_placement = placement_on(cpu, reader, connection)
        sys.stdout.write(f"{rx_placement.netdev} {rx_placement.queue} {rx_placement.cpu} {rx_placement.how}\n")
    connection.close()
    client.communicate()


def placement_on(cpu: int, reader: FlowReader, connection: socket.socket) -> RxPlacement:
    """Return this process's RX placement once it is on a CPU; the search for its socket is spread over some rounds."""
    inventory = InventoryReader(ROOT).read()

    def rx_placement() -> RxPlacement | None:
        connection.send(b"x")
        mine = [task for task in reader.read(inventory) if task.pid == os.getpid() and task.rx_placements]
        return mine[0].rx_placements[0] if mine else None

    return poll(rx_placement, lambda found: found.cpu == cpu)


if __name__ == "__main__":
    main()
