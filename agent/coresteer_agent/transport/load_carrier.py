"""What carries TS and ENP of nodes between agents, for the policy ``coscheduling``: a datagram or the messages.

Either way they are 8 bytes, TS in seconds and ENP as floats in network order.
"""

import math
import struct
from collections.abc import Set
from typing import Protocol

from msgspec import Struct

from coresteer_core.policies.coscheduling.load import PeerLoad

_LOAD = struct.Struct("!ff")
LOAD_BYTES = _LOAD.size
_MAX_TS_S = 100.0
_MAX_ENP = 65_536.0


class Heard(Struct, frozen=True):
    """The load of a node and when it arrived."""

    load: PeerLoad
    heard_s: float


class LoadCarrier(Protocol):
    """Sends this node's load to its peers and keeps theirs."""

    def exchange(self, load: PeerLoad | None, peers: Set[bytes], now_s: float) -> dict[bytes, Heard]:
        """Send this node's load to peers, at most 64 of them, and return the latest load of each.

        peers: addresses, 4 or 16 bytes in network order, with which a process of the job is connected now. load: None
        while it is unknown. now_s: monotonic time.
        """

    def close(self) -> None:
        """Send nothing any more."""


def encode_load(load: PeerLoad) -> bytes:
    """Return a load as 8 bytes, which are not all zero."""
    return _LOAD.pack(load.ts_s, load.enp)


def decode_load(data: bytes) -> PeerLoad | None:
    """Return the load in 8 bytes; None for figures that no agent sends."""
    ts_s, enp = _LOAD.unpack(data)
    if not (math.isfinite(ts_s) and math.isfinite(enp)):
        return None
    return PeerLoad(ts_s, enp) if 0 < ts_s <= _MAX_TS_S and 0 <= enp <= _MAX_ENP else None
