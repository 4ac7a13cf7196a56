"""What it costs that packets are handled far from the process that reads them, and what it costs to steer them.

All constants are estimates; where they decide about RFS, its effect is measured afterwards and the measurement counts.

- Jang, Jin and Kim measured up to 27 % more CPU time where the process shares no cache with the CPU that handles its
  packets: distance 6 here. With 0.8 ns of CPU time per received byte (one CPU receives 10 Gbit/s), that is 0.036 ns per
  byte and unit of distance, which is used for every class: same core 0 or 1, L2 2, L3 4, NUMA node 6, remote 10.
- Header, sk_buff and socket of a packet are about 16 cache lines, whatever its size: 1 KiB in addition to its bytes.
- RFS puts each packet into the other CPU's backlog, and interrupts that CPU (IPI) once per polled batch: 2 µs for a
  batch of about 16 packets and 25 ns for each packet, 150 ns in all.
- A flow that changes its queue may be reordered once, which costs the processing of a window again: 0.2 ms.
"""

from msgspec import Struct

NS_PER_BYTE_AND_DISTANCE = 0.036
_PACKET_OVERHEAD_BYTES = 1024.0
_RFS_NS_PER_PACKET = 150.0
REORDERING_NS = 200_000.0
SOFTIRQ_S_PER_BYTE = 0.8e-9
"""CPU time to receive a byte where it is not known from the softirq time of the CPU that does it."""
_USUAL_FRAME_BYTES = 1448.0


class Costs(Struct, frozen=True):
    """Costs at the mean size of a node's received packets. frame_bytes: that size."""

    frame_bytes: float = _USUAL_FRAME_BYTES

    def distance_ns(self, bytes_per_s: float, distance: float) -> float:
        """Return the CPU time in ns per second that this traffic costs more than at distance 0."""
        touched = bytes_per_s * (1.0 + _PACKET_OVERHEAD_BYTES / self.frame_bytes)
        return touched * distance * NS_PER_BYTE_AND_DISTANCE

    def rfs_ns(self, bytes_per_s: float) -> float:
        """Return the CPU time in ns per second that RFS costs for this traffic."""
        return bytes_per_s / self.frame_bytes * _RFS_NS_PER_PACKET


class Choice(Struct, frozen=True):
    """Costs in ns of CPU time per second of a process's packets as they are, if the process moved to their best CPU,
    if their interrupt moved to the process, and if its flows were steered. None where that is not possible.
    """

    stay: float
    process: float | None
    interrupt: float | None
    flows: float

    def __str__(self) -> str:
        """Return the costs for a sentence, the least first."""
        named = {
            "as it is": self.stay,
            "if the process moved": self.process,
            "if the interrupt moved": self.interrupt,
            "if its flows are steered": self.flows,
        }
        known = sorted((cost, name) for name, cost in named.items() if cost is not None)
        return ", ".join(f"{cost / 1e6:.2f} ms/s {name}" for cost, name in known)
