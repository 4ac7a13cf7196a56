"""Whether flows land where the agent says. Runs in a guest: one flow at a time, against the counts of /proc/interrupts.

serve ADDRESS FLOWS starts the client (this module again) in the peer's namespace and prints, as JSON, of each flow
what was predicted (queue, irq, cpu, how) and which interrupt of the netdev grew most.
"""

import json
import socket
import subprocess
import sys
import time
from pathlib import Path

from tests.lab.machines import PEER

from coresteer_agent.collect.addresses import Addresses
from coresteer_agent.collect.flows import FlowReader
from coresteer_agent.collect.inventory import InventoryReader
from coresteer_agent.collect.landings import Landings
from coresteer_agent.collect.tcp_sockets import TcpSockets
from coresteer_core.settings import IrqAffinity

ROOT = Path("/")
_PORT = 9100
_PACKETS = 60
_GAP_S = 0.003


def main() -> None:
    if sys.argv[1] == "client":
        client(sys.argv[2], int(sys.argv[3]))
    else:
        print(json.dumps(serve(sys.argv[2], int(sys.argv[3]))))


def client(address: str, flows: int) -> None:
    """Opens the flows one after the other; each sends packets so far apart that NAPI does not go over to polling."""
    for _ in range(flows):
        with socket.create_connection((address, _PORT), 10) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.recv(1)
            for _ in range(_PACKETS):
                connection.send(b"packet")
                time.sleep(_GAP_S)
            connection.shutdown(socket.SHUT_WR)
            connection.recv(1)


def serve(address: str, flows: int) -> dict[str, object]:
    listener = socket.create_server((address, _PORT))
    reader = InventoryReader(ROOT)
    inventory = reader.read()
    netdev = next(n for n in inventory.netdevs if n.name == "eth0")
    irqs = [irq.irq for irq in inventory.irqs if irq.netdev == netdev.name]
    sockets, tasks = TcpSockets(), FlowReader(ROOT)
    sockets.read()
    tasks.read(inventory)
    command = ["ip", "netns", "exec", PEER, sys.executable, "-m", __spec__.name if __spec__ else __name__]
    process = subprocess.Popen([*command, "client", address, str(flows)])
    found = []
    for _ in range(flows):
        connection, peer = listener.accept()
        before = counts()
        connection.send(b"!")
        while connection.recv(4096):
            pass
        after = counts()
        reader.reread(IrqAffinity(irq) for irq in irqs)  # an effective affinity is known from the first interrupt on
        landings = Landings(reader.read(), Addresses())
        [(tcp, flow)] = [(tcp, flow) for tcp, flow, *_ in sockets.read()[0] if flow.ports[:2] == port_bytes(peer[1])]
        place = landings.place(tcp, flow)
        grown = {irq: [new - old for new, old in zip(after[irq], before[irq], strict=True)] for irq in irqs}
        busiest = max(irqs, key=lambda irq: sum(grown[irq]))
        cpu = max(range(len(grown[busiest])), key=lambda number: grown[busiest][number])
        found.append(
            {
                "predicted": [place.irq, place.cpu],
                "how": place.how,
                "grown": [busiest, cpu],
                "counts": sorted([sum(grown[i]), i] for i in irqs)[-3:],
            }
        )
        connection.close()
    process.wait(10)
    told = [task for task in tasks.read(reader.read()) if task.name.startswith("python")]
    return {"flows": found, "landings": sum(len(task.landings) for task in told), "irqs": len(irqs)}


def counts() -> dict[int, list[int]]:
    """By interrupt and CPU."""
    rows = [line.split() for line in Path("/proc/interrupts").read_text().splitlines()]
    cpus = len(rows[0])
    return {int(row[0][:-1]): list(map(int, row[1 : cpus + 1])) for row in rows[1:] if row[0][:-1].isdecimal()}


def port_bytes(port: int) -> bytes:
    return port.to_bytes(2, "big")


if __name__ == "__main__":
    main()
