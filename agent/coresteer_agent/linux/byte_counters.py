"""Counts bytes that each process sent and received over TCP and UDP, by two eBPF programs.

Two small programs on the tracepoints sock_send_length and sock_recv_length (Linux 6.3, net/socket.c) add up what each
system call moved, 180 ns a call. They end with this process.
"""

import ctypes
import errno
import struct
from pathlib import Path

from coresteer_agent.linux import btf
from coresteer_agent.linux.bpf import (
    LRU_HASH,
    BpfObjects,
    BpfRefusedError,
    Command,
    Helper,
    Op,
    Step,
    assemble,
    bpf,
    bpf_attribute,
    call,
    load_map,
)

_TRACING, _RAW_TP = 26, 23
_PROCESSES = 4096
"""Pairs of process and protocol that are counted; of more, those that were silent for longest are dropped."""
_KEY, _VALUE = struct.Struct("=II"), struct.Struct("=QQ")
_BATCH = struct.Struct("=QQQQIIQQ")
_MSG_PEEK = 2
INIT_PID_NAMESPACE = 0xEFFF_FFFC
"""PROC_PID_INIT_INO of include/linux/proc_ns.h: only there a process has the number that the programs see."""
TCP, UDP = 6, 17
_FAMILIES = (2, 10)

_TRACEPOINTS = ("sock_recv_length", "sock_send_length")
_FAMILY, _PROTOCOL = "sock_common.skc_family", "sock.sk_protocol"


class ByteCounters:
    """Counts each process's TCP and UDP bytes from its creation on. Raises BpfRefusedError."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._objects = BpfObjects()
        try:
            if (root / "proc/self/ns/pid").stat().st_ino != INIT_PID_NAMESPACE:
                raise BpfRefusedError("this agent runs in a PID namespace of its own")
            typedefs = [f"btf_trace_{name}" for name in _TRACEPOINTS]
            types = btf.find_types(root / btf.PATH, typedefs, [_FAMILY, _PROTOCOL])
            self._map = self._objects.create_map(LRU_HASH, _KEY.size, _VALUE.size, _PROCESSES)
            for side, typedef in enumerate(typedefs):
                program = assemble_program(self._map, side, types.offsets[_FAMILY], types.offsets[_PROTOCOL])
                loaded = self._objects.load(_TRACING, _RAW_TP, program, types.typedefs[typedef])
                self._objects.open(Command.RAW_TRACEPOINT_OPEN, struct.pack("=QI", 0, loaded))
        except (OSError, btf.BtfError) as error:
            self.close()
            raise BpfRefusedError(str(error)) from error
        except BpfRefusedError:
            self.close()
            raise

    def read(self) -> dict[tuple[int, int], tuple[int, int]]:
        """Return bytes received and sent so far, by PID and protocol (6 is TCP, 17 UDP). Raises OSError."""
        keys = ctypes.create_string_buffer(_PROCESSES * _KEY.size)
        values = ctypes.create_string_buffer(_PROCESSES * _VALUE.size)
        place = ctypes.create_string_buffer(8)
        found: dict[tuple[int, int], tuple[int, int]] = {}
        first = True
        while True:
            attribute = bpf_attribute(
                _BATCH.pack(
                    0 if first else ctypes.addressof(place),
                    ctypes.addressof(place),
                    ctypes.addressof(keys),
                    ctypes.addressof(values),
                    _PROCESSES,
                    self._map,
                    0,
                    0,
                )
            )
            failed = 0
            try:
                bpf(Command.MAP_LOOKUP_BATCH, attribute)
            except OSError as error:
                if error.errno != errno.ENOENT:  # which says that this was the rest
                    raise
                failed = errno.ENOENT
            count = int(struct.unpack_from("=I", attribute, 32)[0])
            for key, value in zip(
                _KEY.iter_unpack(keys.raw[: count * _KEY.size]),
                _VALUE.iter_unpack(values.raw[: count * _VALUE.size]),
                strict=True,
            ):
                found[key[1], key[0]] = (value[0], value[1])
            if failed:
                return found
            first = False

    def close(self) -> None:
        """Unload the eBPF programs and stop counting."""
        self._objects.close()


def assemble_program(counters: int, side: int, family_at: int, protocol_at: int) -> bytes:
    """Return the bytecode of the eBPF program that counts one direction. side: 0 for received, 1 for sent.

    It adds the bytes of a system call to its process's entry. counters: the map's descriptor; family_at and
    protocol_at: where struct sock has them.
    """
    return assemble(_program(counters, side, family_at, protocol_at))


def _program(counters: int, side: int, family_at: int, protocol_at: int) -> list[Step | str]:
    key, value = -8, -24
    return [
        (Op.LOAD_64, 2, 1, 0, 0),  # r2 = the socket
        (Op.LOAD_64, 7, 1, 8, 0),  # r7 = what the call returned, an int
        (Op.LOAD_64, 3, 1, 16, 0),  # r3 = its flags
        (Op.SHIFT_LEFT_VALUE, 7, 0, 0, 32),
        (Op.SHIFT_RIGHT_SIGNED_VALUE, 7, 0, 0, 32),
        (Op.JUMP_UNLESS_POSITIVE, 7, 0, "end", 0),  # an error, or nothing
        (Op.AND_VALUE, 3, 0, 0, 0 if side else _MSG_PEEK),
        (Op.JUMP_UNLESS_EQUAL, 3, 0, "end", 0),  # it only looked
        (Op.LOAD_16, 3, 2, family_at, 0),
        (Op.JUMP_IF_EQUAL, 3, 0, "internet", _FAMILIES[0]),
        (Op.JUMP_UNLESS_EQUAL, 3, 0, "end", _FAMILIES[1]),
        "internet",
        (Op.LOAD_16, 8, 2, protocol_at, 0),
        (Op.JUMP_IF_EQUAL, 8, 0, "counted", TCP),
        (Op.JUMP_UNLESS_EQUAL, 8, 0, "end", UDP),
        "counted",
        call(Helper.GET_CURRENT_PID_TGID),  # the process is the upper half
        (Op.SHIFT_RIGHT_VALUE, 0, 0, 0, 32),
        (Op.STORE_32, 10, 8, key, 0),
        (Op.STORE_32, 10, 0, key + 4, 0),
        *load_map(1, counters),
        (Op.MOVE, 2, 10, 0, 0),
        (Op.ADD_VALUE, 2, 0, 0, key),
        call(Helper.MAP_LOOKUP_ELEM),
        (Op.JUMP_UNLESS_EQUAL, 0, 0, "add", 0),
        (Op.STORE_VALUE_64, 10, 0, value, 0),
        (Op.STORE_VALUE_64, 10, 0, value + 8, 0),
        (Op.STORE_64, 10, 7, value + 8 * side, 0),
        *load_map(1, counters),
        (Op.MOVE, 2, 10, 0, 0),
        (Op.ADD_VALUE, 2, 0, 0, key),
        (Op.MOVE, 3, 10, 0, 0),
        (Op.ADD_VALUE, 3, 0, 0, value),
        (Op.MOVE_VALUE, 4, 0, 0, 1),  # BPF_NOEXIST: of two threads' first calls at once, one is not counted
        call(Helper.MAP_UPDATE_ELEM),
        (Op.JUMP, 0, 0, "end", 0),
        "add",
        (Op.ATOMIC_ADD_64, 0, 7, 8 * side, 0),
        "end",
        (Op.MOVE_VALUE, 0, 0, 0, 0),
        (Op.EXIT, 0, 0, 0, 0),
    ]
