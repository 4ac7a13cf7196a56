"""Finds the heaviest receiving flows of each process, with what a flow rule or an RSS table needs to steer them."""

from socket import AF_INET, AF_INET6, inet_ntop

from msgspec import Struct

from coresteer_agent.collect.tcp_sockets import Flow, TcpSocket
from coresteer_agent.observe.rx_placement import RxPlacements, RxTarget
from coresteer_core.node.tasks import MAX_HEAVY_FLOWS, HeavyFlow

MAX_FLOWS_OF_TASK = 16
"""Maximum number of reported flows of one process."""
_LEAST_BYTES_PER_S = 1000
"""A flow that receives less is not worth a rule."""


class _Flow(Struct):
    received: int
    tcp: TcpSocket
    flow: Flow
    target: RxTarget


class HeavyFlows:
    """The heaviest receiving TCP flows in one interval of elapsed_s seconds.

    least: received bytes up to which a flow is not heavy. UDP is not included: nothing counts the bytes of one socket.
    """

    def __init__(self, placements: RxPlacements, elapsed_s: float) -> None:
        self._placements = placements
        self._elapsed_s = elapsed_s
        self.least = int(_LEAST_BYTES_PER_S * elapsed_s)
        self._by_pid: dict[int, list[_Flow]] = {}
        self._left = MAX_HEAVY_FLOWS

    def add(self, pid: int, received: int, tcp: TcpSocket, flow: Flow, target: RxTarget) -> None:
        """Add a flow of a process that received more than `least` bytes. target: where."""
        self._by_pid.setdefault(pid, []).append(_Flow(received, tcp, flow, target))

    def take(self, pid: int) -> list[HeavyFlow]:
        """Return the heaviest flows of a process, at most MAX_HEAVY_FLOWS over all calls."""
        heaviest = sorted(self._by_pid.get(pid, ()), key=lambda one: -one.received)
        taken = heaviest[: min(MAX_FLOWS_OF_TASK, self._left)]
        self._left -= len(taken)
        return [self._reported(one) for one in taken]

    def _reported(self, one: _Flow) -> HeavyFlow:
        flow, target = one.flow, one.target
        return HeavyFlow(
            protocol="tcp",
            local=_address(flow.local),
            local_port=flow.port,
            peer=_address(flow.peer),
            peer_port=int.from_bytes(flow.ports[:2], "big"),
            netdev=target.netdev,
            queue=target.queue,
            cpu=target.cpu,
            rss_entry=self._placements.rss_entry(one.tcp, flow),
            rx_bytes_per_s=one.received / self._elapsed_s,
        )


def _address(packed: bytes) -> str:
    return inet_ntop(AF_INET if len(packed) == 4 else AF_INET6, packed)
