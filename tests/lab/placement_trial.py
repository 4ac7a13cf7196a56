"""Compare predicted RX placements with /proc/interrupts, one flow at a time. Runs in a guest.

serve ADDRESS FLOWS starts the client (this module again) in the peer's namespace and prints, as JSON, of each flow
what was predicted (queue, irq, cpu, how) and which interrupt of the netdev grew most.
"""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.lab.machines import PEER

from coresteer_agent.collect.tcp_sockets import TcpSockets
from coresteer_agent.linux.addresses import Addresses
from coresteer_agent.observe.inventory import InventoryReader
from coresteer_agent.observe.rx_placement import RxPlacements
from coresteer_core.settings import IrqAffinity

ROOT = Path("/")
_PORT = 9100
_PACKETS = 60
_GAP_S = 0.003


def main() -> None:
    if sys.argv[1] == "client":
        client(sys.argv[2], int(sys.argv[3]))
    else:
        with sent_by_the_first_queue():
            print(json.dumps(serve(sys.argv[2], int(sys.argv[3]))))


def client(address: str, flows: int) -> None:
    """Open flows one after the other; the packets are so far apart that NAPI does not switch to polling."""
    for _ in range(flows):
        with socket.create_connection((address, _PORT), 10) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.recv(1)
            for _ in range(_PACKETS):
                connection.send(b"packet")
                time.sleep(_GAP_S)
            connection.shutdown(socket.SHUT_WR)
            connection.recv(1)


@contextmanager
def sent_by_the_first_queue() -> Iterator[None]:
    """Send from the first queue, so that interrupts of other queues are for received packets."""
    files = list(ROOT.glob("sys/class/net/eth0/queues/tx-*/xps_cpus"))
    before = [file.read_text() for file in files]
    try:
        for file in files:
            file.write_text("ff" if file.parent.name == "tx-0" else "0")
        yield
    finally:
        for file, text in zip(files, before, strict=True):
            file.write_text(text)


def serve(address: str, flows: int) -> dict[str, object]:
    listener = socket.create_server((address, _PORT))
    reader = InventoryReader(ROOT)
    inventory = reader.read()
    netdev = next(n for n in inventory.netdevs if n.name == "eth0")
    irqs = [irq.irq for irq in inventory.irqs if irq.netdev == netdev.name]
    sockets = TcpSockets()
    sockets.read()
    command = ["ip", "netns", "exec", PEER, sys.executable, "-m", __spec__.name if __spec__ else __name__]
    process = subprocess.Popen([*command, "client", address, str(flows)])
    found = []
    first = next(queue.irq for queue in netdev.queues if queue.name == "rx-0" and queue.irq is not None)
    for _ in range(flows):
        connection, peer = listener.accept()
        before = counts()
        connection.send(b"!")
        while connection.recv(4096):
            pass
        after = counts()
        reader.reread(IrqAffinity(irq) for irq in irqs)  # an effective affinity is known from the first interrupt on
        placements = RxPlacements(reader.read(), Addresses())
        [(tcp, flow)] = [(tcp, flow) for tcp, flow, *_ in sockets.read()[0] if flow.ports[:2] == port_bytes(peer[1])]
        target = placements.target(tcp, flow)
        grown = {irq: [new - old for new, old in zip(after[irq], before[irq], strict=True)] for irq in irqs}
        others = max((irq for irq in irqs if irq != first), key=lambda irq: sum(grown[irq]))
        busiest = others if sum(grown[others]) > _PACKETS // 2 else first
        cpu = max(range(len(grown[busiest])), key=lambda number: grown[busiest][number])
        found.append({"predicted": [target.irq, target.cpu], "how": target.how, "grown": [busiest, cpu]})
        connection.close()
    process.wait(10)
    return {"flows": found}


def counts() -> dict[int, list[int]]:
    """Return the counts by interrupt and CPU."""
    rows = [line.split() for line in Path("/proc/interrupts").read_text().splitlines()]
    cpus = len(rows[0])
    return {int(row[0][:-1]): list(map(int, row[1 : cpus + 1])) for row in rows[1:] if row[0][:-1].isdecimal()}


def port_bytes(port: int) -> bytes:
    return port.to_bytes(2, "big")


if __name__ == "__main__":
    main()
