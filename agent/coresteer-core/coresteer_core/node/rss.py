"""Which receive queue and which RPS CPU a flow's packets go to, as NICs and the kernel compute it.

The hash is Toeplitz's as Microsoft publishes it for receive-side scaling ("RSS Hashing Types", "Verifying the RSS
Hash Calculation"); RPS is net/core/dev.c get_rps_cpu().
"""

from array import array
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

_LONGEST = 36
"""Bytes that are hashed at most: two IPv6 addresses and two ports."""
_WORD = 4


class Toeplitz:
    """The hash under one key, by a table a byte: 0.8 µs for an IPv4 flow, 36 KiB.

    The key has 40 bytes, some NICs have 52. Raises ValueError for one of fewer than 40.
    """

    def __init__(self, key: bytes) -> None:
        if len(key) < _LONGEST + _WORD:
            raise ValueError(f"The RSS key has {len(key)} bytes; at least {_LONGEST + _WORD} are needed.")
        self.key = key
        bits = int.from_bytes(key[: _LONGEST + _WORD], "big")
        self._tables = [_byte_table(bits, position) for position in range(_LONGEST)]

    def hash(self, data: bytes) -> int:
        """The 32-bit hash of source address, destination address and, where the NIC takes them, both ports.

        All in network order, as the packet has them: of a received packet the source is the peer. At most 36 bytes.
        """
        found = 0
        for table, byte in zip(self._tables, data, strict=False):
            found ^= table[byte]
        return found


def _byte_table(key_bits: int, position: int) -> "array[int]":
    """What each value of one input byte adds to the hash: the key from each of its set bits on, 32 bits wide."""
    table = array("I", bytes(4 * 256))
    first = 8 * (_LONGEST + _WORD) - 32 - 8 * position
    for value in range(1, 256):
        lowest = value & -value
        window = key_bits >> (first - 8 + lowest.bit_length()) & 0xFFFF_FFFF
        table[value] = table[value ^ lowest] ^ window
    return table


def indirect(flow_hash: int, table: Sequence[T]) -> T:
    """The entry of a NIC's indirection table for a hash."""
    return table[flow_hash % len(table)]


def scale(flow_hash: int, choices: Sequence[T]) -> T:
    """The entry that the kernel's reciprocal_scale() picks, as RPS does among the online CPUs of a queue's mask."""
    return choices[flow_hash * len(choices) >> 32]
