"""Carries 8 bytes on the messages of chosen TCP ports, in a TCP option that an eBPF program writes and reads.

The option is experimental (kind 253, RFC 6994) and has 12 bytes, so that it fits beside time stamps and a block of
SACK. The kernel writes its own options first: where they leave no room, the segment goes without ours. Segments
without data never have it. A receiver without this program ignores the option, as every TCP does (RFC 9293).

The program (``sock_ops``, Linux 5.10) is attached to a cgroup of version 2 by a link that ends with this process. It
sees the connections that sockets of this cgroup's processes establish from then on, in all network namespaces.
"""

import os
import struct
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from coresteer_agent.linux.bpf import (
    ARRAY,
    HASH,
    BpfObjects,
    BpfRefusedError,
    Command,
    Helper,
    Op,
    Step,
    assemble,
    call,
    delete_entry,
    load_array,
    load_map,
    read_entry,
    write_entry,
)

VALUE_BYTES = 8
MAX_ADDRESSES = 64
_KIND, _EXPERIMENT = 253, 0xC05E
"""The number of the experiment (ExID) is not registered."""
_OPTION_BYTES = 4 + VALUE_BYTES
_ADDRESS_BYTES = 16
_MAPPED = bytes(10) + b"\xff\xff"
_TIMED = struct.Struct("=8sQ")
"""Of both maps: a value; until when it is written, or when it was received, in monotonic nanoseconds."""
_FIRST = struct.pack("=I", 0)

_SOCK_OPS, _CGROUP_SOCK_OPS = 13, 3  # bpf_prog_type and bpf_attach_type
# struct bpf_sock_ops: where its fields are
_OPERATION, _ARGUMENT, _FAMILY, _REMOTE_4, _REMOTE_6 = 0, 4, 20, 24, 32
_REMOTE_PORT, _LOCAL_PORT, _FLAGS, _SEGMENT_BYTES = 64, 68, 84, 208
# its operations
_CONNECTED, _ACCEPTED, _PARSE, _RESERVE, _WRITE = 4, 5, 13, 14, 15
_WANTED = 1 << 5 | 1 << 6
"""BPF_SOCK_OPS_PARSE_UNKNOWN_HDR_OPT_CB_FLAG and BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG."""
_CURRENT_MSS = 1
_INET6 = 10

_CONTEXT = 6
"""The register that has the context; 10 has the end of the stack."""
_OPTION, _VALUE, _KEY = -12, -8, -32
"""On the stack: the option, the value at its end, and the address of the other host."""


class TcpOption:
    """Writes a value into the messages of chosen TCP ports, and keeps those of other hosts. Raises BpfRefusedError.

    ports: at either end of a connection. cgroup: the folder of one of version 2; the root's has all processes.
    """

    def __init__(self, ports: Sequence[range], cgroup: Path) -> None:
        self._objects = BpfObjects()
        self._followed: set[bytes] = set()
        try:
            self._own = self._objects.create_map(ARRAY, len(_FIRST), _TIMED.size, 1)
            self._received = self._objects.create_map(HASH, _ADDRESS_BYTES, _TIMED.size, MAX_ADDRESSES)
            code = assemble_program(self._own, self._received, ports)
            program = self._objects.load(_SOCK_OPS, _CGROUP_SOCK_OPS, code)
            folder = os.open(cgroup, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                self._objects.open(Command.LINK_CREATE, struct.pack("=IIII", program, folder, _CGROUP_SOCK_OPS, 0))
            finally:
                os.close(folder)
        except OSError as error:
            self.close()
            raise BpfRefusedError(str(error)) from error

    def write(self, value: bytes | None, until_s: float = 0.0) -> None:
        """Write 8 bytes, not all zero, into every message until a monotonic time; None: no more. Raises OSError."""
        write_entry(self._own, _FIRST, _TIMED.pack(value or bytes(VALUE_BYTES), int(until_s * 1e9)))

    def follow(self, addresses: Iterable[bytes]) -> None:
        """Replace the hosts whose values are kept, by address (4 or 16 bytes), at most 64. Raises OSError."""
        wanted = {_key(address) for address in addresses}
        for key in self._followed - wanted:
            delete_entry(self._received, key)
            self._followed.remove(key)
        for key in sorted(wanted - self._followed)[: MAX_ADDRESSES - len(self._followed)]:
            write_entry(self._received, key, bytes(_TIMED.size))
            self._followed.add(key)

    def read(self, address: bytes) -> tuple[bytes, float] | None:
        """Return the last value of a host and its monotonic time of arrival; None before the first. Raises OSError."""
        found = read_entry(self._received, _key(address), _TIMED.size)
        value, received_ns = _TIMED.unpack(found or bytes(_TIMED.size))
        return (value, received_ns / 1e9) if received_ns else None

    def close(self) -> None:
        """Detach and unload the program; connections go on without the option."""
        self._objects.close()


def _key(address: bytes) -> bytes:
    return _MAPPED + address if len(address) == 4 else address


def assemble_program(own: int, received: int, ports: Sequence[range]) -> bytes:
    """Return the bytecode of the program. own, received: descriptors of the maps of this host's and others' values."""
    return assemble(
        [
            (Op.MOVE, _CONTEXT, 1, 0, 0),
            (Op.LOAD_32, 7, _CONTEXT, _OPERATION, 0),
            (Op.LOAD_32, 2, _CONTEXT, _LOCAL_PORT, 0),
            *_jump_to_port("local", ports),
            (Op.LOAD_32, 2, _CONTEXT, _REMOTE_PORT, 0),
            (Op.TO_BIG_ENDIAN, 2, 0, 0, 32),
            *_jump_to_port("remote", ports),
            (Op.JUMP, 0, 0, "end", 0),
            "chosen port",
            (Op.JUMP_IF_EQUAL, 7, 0, "parse", _PARSE),
            (Op.JUMP_IF_EQUAL, 7, 0, "reserve", _RESERVE),
            (Op.JUMP_IF_EQUAL, 7, 0, "write", _WRITE),
            (Op.JUMP_IF_EQUAL, 7, 0, "established", _CONNECTED),
            (Op.JUMP_UNLESS_EQUAL, 7, 0, "end", _ACCEPTED),
            "established",
            (Op.LOAD_32, 2, _CONTEXT, _FLAGS, 0),
            (Op.OR_VALUE, 2, 0, 0, _WANTED),
            (Op.MOVE, 1, _CONTEXT, 0, 0),
            call(Helper.SOCK_OPS_CB_FLAGS_SET),
            (Op.JUMP, 0, 0, "end", 0),
            "reserve",
            *_reserve(own),
            (Op.JUMP, 0, 0, "end", 0),
            "write",
            *_write(own),
            (Op.JUMP, 0, 0, "end", 0),
            "parse",
            *_parse(received),
            "end",
            (Op.MOVE_VALUE, 0, 0, 0, 1),
            (Op.EXIT, 0, 0, 0, 0),
        ]
    )


def _reserve(own: int) -> list[Step | str]:
    """Return instructions that reserve room in a segment with data, while there is a value."""
    return [
        (Op.LOAD_32, 2, _CONTEXT, _ARGUMENT, 0),
        (Op.JUMP_IF_EQUAL, 2, 0, "room", _CURRENT_MSS),  # always, as a value can appear before the segment is written
        (Op.LOAD_32, 2, _CONTEXT, _SEGMENT_BYTES, 0),
        (Op.JUMP_IF_EQUAL, 2, 0, "end", 0),
        *load_array(8, own),
        (Op.LOAD_64, 2, 8, 0, 0),
        (Op.JUMP_IF_EQUAL, 2, 0, "end", 0),
        call(Helper.KTIME_GET_NS),
        (Op.LOAD_64, 2, 8, VALUE_BYTES, 0),
        (Op.SUBTRACT, 2, 0, 0, 0),
        (Op.JUMP_UNLESS_POSITIVE, 2, 0, "end", 0),  # the agent has stopped measuring
        "room",
        (Op.MOVE, 1, _CONTEXT, 0, 0),
        (Op.MOVE_VALUE, 2, 0, 0, _OPTION_BYTES),
        (Op.MOVE_VALUE, 3, 0, 0, 0),
        call(Helper.RESERVE_HDR_OPT),
    ]


def _write(own: int) -> list[Step | str]:
    """Return instructions that write the option into a segment with room for it."""
    return [
        *load_array(2, own),
        (Op.LOAD_64, 2, 2, 0, 0),
        (Op.JUMP_IF_EQUAL, 2, 0, "end", 0),
        (Op.STORE_VALUE_32, 10, 0, _OPTION, _head(_OPTION_BYTES)),
        (Op.STORE_64, 10, 2, _VALUE, 0),
        *_pass_option(),
        call(Helper.STORE_HDR_OPT),
    ]


def _parse(received: int) -> list[Step | str]:
    """Return instructions that keep the option of a segment from a host that is followed."""
    return [
        (Op.STORE_VALUE_32, 10, 0, _OPTION, _head(4)),  # what to search: kind and experiment
        (Op.STORE_VALUE_64, 10, 0, _VALUE, 0),
        *_pass_option(),
        call(Helper.LOAD_HDR_OPT),
        (Op.JUMP_UNLESS_EQUAL, 0, 0, "end", _OPTION_BYTES),
        (Op.LOAD_32, 2, _CONTEXT, _FAMILY, 0),
        (Op.JUMP_IF_EQUAL, 2, 0, "IPv6", _INET6),
        (Op.STORE_VALUE_64, 10, 0, _KEY, 0),
        (Op.STORE_VALUE_32, 10, 0, _KEY + 8, _signed(_MAPPED[8:])),
        (Op.LOAD_32, 2, _CONTEXT, _REMOTE_4, 0),
        (Op.STORE_32, 10, 2, _KEY + 12, 0),
        (Op.JUMP, 0, 0, "keep", 0),
        "IPv6",
        *_copy_words(_REMOTE_6, _KEY),
        "keep",
        *load_map(1, received),
        (Op.MOVE, 2, 10, 0, 0),
        (Op.ADD_VALUE, 2, 0, 0, _KEY),
        call(Helper.MAP_LOOKUP_ELEM),
        (Op.JUMP_IF_EQUAL, 0, 0, "end", 0),
        (Op.MOVE, 8, 0, 0, 0),
        (Op.LOAD_64, 2, 10, _VALUE, 0),
        (Op.STORE_64, 8, 2, 0, 0),
        call(Helper.KTIME_GET_NS),
        (Op.STORE_64, 8, 0, VALUE_BYTES, 0),
    ]


def _jump_to_port(side: str, ports: Sequence[range]) -> list[Step | str]:
    """Return instructions that jump if the port in register 2 is a chosen one."""
    steps: list[Step | str] = []
    for number, each in enumerate(ports):
        after = f"{side} {number}"
        steps += [
            (Op.JUMP_IF_BELOW, 2, 0, after, each.start),
            (Op.JUMP_UNLESS_ABOVE, 2, 0, "chosen port", each[-1]),
            after,
        ]
    return steps


def _pass_option() -> list[Step]:
    """Return instructions that pass the option on the stack to a helper."""
    return [
        (Op.MOVE, 1, _CONTEXT, 0, 0),
        (Op.MOVE, 2, 10, 0, 0),
        (Op.ADD_VALUE, 2, 0, 0, _OPTION),
        (Op.MOVE_VALUE, 3, 0, 0, _OPTION_BYTES),
        (Op.MOVE_VALUE, 4, 0, 0, 0),
    ]


def _copy_words(start: int, stack: int) -> list[Step]:
    """Return instructions that copy 16 bytes of the context to the stack; only words of it may be read."""
    steps: list[Step] = []
    for at in range(0, _ADDRESS_BYTES, 4):
        steps += [(Op.LOAD_32, 2, _CONTEXT, start + at, 0), (Op.STORE_32, 10, 2, stack + at, 0)]
    return steps


def _head(length: int) -> int:
    """Return the first four bytes of the option as an immediate value."""
    return _signed(struct.pack("!BBH", _KIND, length, _EXPERIMENT))


def _signed(word: bytes) -> int:
    return int.from_bytes(word, sys.byteorder, signed=True)
