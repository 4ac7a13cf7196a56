"""flow-steering in force in a guest: RFS brings protocol work to the process, and nothing of it remains afterwards.

Too slow for CI beside other work: `.venv/bin/pytest tests/lab/try_steering.py`.
"""

from collections.abc import Callable

from tests.lab.fleet import Backend
from tests.lab.nics import enforced
from tests.lab.rig import Guest
from tests.lab.steering.mixes import Consumer, Mix, traffic
from tests.lab.steering.readings import Cell, cells, changed, napi_irqs, read_once
from tests.support.polling import poll

SECONDS = 120
LINES = 5
"""Seconds of the consumer's output for one share."""
MIX = Mix("six streams of one process", (Consumer(9101, "10.1.0.1", 6, 3000),))
SPEC: dict[str, object] = {"type": "flow-steering", "min_bytes_per_s": 20_000, "rfs": "on"}
ENTRIES = "/proc/sys/net/core/rps_sock_flow_entries"


def received(guest: Guest) -> list[Cell]:
    """Return what the process receives in some seconds from now on."""
    since_s = max((cell.at_s for cell in cells(guest, MIX)), default=0.0)

    def later() -> list[Cell]:
        return [cell for cell in cells(guest, MIX) if cell.at_s > since_s]

    return poll(later, lambda found: len({cell.at_s for cell in found}) > LINES)


def share(found: list[Cell], near: Callable[[Cell], bool]) -> float:
    """Return the share of the bytes for which something is true."""
    return sum(cell.bytes for cell in found if near(cell)) / sum(cell.bytes for cell in found)


def processed_where_read(cell: Cell) -> bool:
    return cell.protocol_cpu == cell.task_cpu


def test_packets_are_brought_to_their_process_and_all_settings_are_restored(
    two_socket: Guest, host: Backend, agent: int
) -> None:
    originals = read_once(two_socket)
    with traffic(two_socket, MIX, SECONDS):
        before = received(two_socket)
        irqs, cpus = napi_irqs(two_socket), read_once(two_socket).irq_cpus
        with enforced(host, "packets to processes", SPEC):
            poll(lambda: two_socket.read(ENTRIES), lambda entries: entries != "0")
            poll(
                lambda: share(received(two_socket), processed_where_read),
                lambda near: near > max(0.5, share(before, processed_where_read)),
            )
            assert any(key.endswith("rps_flow_cnt") for key in changed(originals, read_once(two_socket)))
        poll(lambda: changed(originals, read_once(two_socket)), lambda left: not left)
    assert share(before, lambda cell: cpus[irqs[cell.napi]] == cell.protocol_cpu) > 0.9, "they are polled there"
