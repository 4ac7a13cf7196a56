"""Loads eBPF programs through bpf(2). A program is a table of instructions, so no compiler and no library is needed.

Nothing is pinned: programs, maps and links end with close(), or with this process, however that ends.
"""

import ctypes
import errno
import logging
import os
import platform
import struct
from collections.abc import Iterable
from enum import IntEnum
from typing import TypeAlias

_log = logging.getLogger(__name__)

_CALLS = {"x86_64": 321, "aarch64": 280, "riscv64": 280, "ppc64le": 361}
"""The number of bpf(2)."""
_ATTRIBUTE_BYTES = 144
_LOG_BYTES = 64 * 1024
ARRAY, HASH, LRU_HASH = 2, 1, 9
"""Types of maps (enum bpf_map_type)."""


class Command(IntEnum):
    """What bpf(2) does (enum bpf_cmd of include/uapi/linux/bpf.h)."""

    MAP_CREATE = 0
    MAP_LOOKUP_ELEM = 1
    MAP_UPDATE_ELEM = 2
    MAP_DELETE_ELEM = 3
    PROG_LOAD = 5
    PROG_GET_FD_BY_ID = 13
    OBJ_GET_INFO_BY_FD = 15
    RAW_TRACEPOINT_OPEN = 17
    MAP_LOOKUP_BATCH = 24
    LINK_CREATE = 28


class Op(IntEnum):
    """Opcodes (Documentation/bpf/standardization/instruction-set.rst). VALUE and jumps take the immediate value."""

    LOAD_16 = 0x69
    LOAD_32 = 0x61
    LOAD_64 = 0x79
    LOAD_ADDRESS = 0x18
    STORE_32 = 0x63
    STORE_64 = 0x7B
    STORE_VALUE_32 = 0x62
    STORE_VALUE_64 = 0x7A
    ATOMIC_ADD_64 = 0xDB
    MOVE = 0xBF
    MOVE_VALUE = 0xB7
    ADD_VALUE = 0x07
    SUBTRACT = 0x1F
    AND_VALUE = 0x57
    OR_VALUE = 0x47
    SHIFT_LEFT_VALUE = 0x67
    SHIFT_RIGHT_VALUE = 0x77
    SHIFT_RIGHT_SIGNED_VALUE = 0xC7
    TO_BIG_ENDIAN = 0xDC
    JUMP = 0x05
    JUMP_IF_EQUAL = 0x15
    JUMP_UNLESS_EQUAL = 0x55
    JUMP_IF_BELOW = 0xA5
    JUMP_UNLESS_ABOVE = 0xB5
    JUMP_UNLESS_POSITIVE = 0xD5
    CALL = 0x85
    EXIT = 0x95


class Helper(IntEnum):
    """Functions of the kernel that a program calls (include/uapi/linux/bpf.h)."""

    MAP_LOOKUP_ELEM = 1
    MAP_UPDATE_ELEM = 2
    KTIME_GET_NS = 5
    GET_CURRENT_PID_TGID = 14
    SOCK_OPS_CB_FLAGS_SET = 59
    LOAD_HDR_OPT = 142
    STORE_HDR_OPT = 143
    RESERVE_HDR_OPT = 144


Step: TypeAlias = tuple[int, int, int, int | str, int]
"""An instruction: opcode, destination and source register, offset or the label to jump to, immediate value."""


class BpfRefusedError(Exception):
    """Raised if the kernel does not allow an eBPF program; the message is the reason."""


class BpfObjects:
    """Creates maps, programs and links, and holds their descriptors until close(). Its methods raise OSError."""

    def __init__(self) -> None:
        self._fds: list[int] = []

    def open(self, command: Command, attribute: bytes) -> int:
        """Return the descriptor that a command of bpf(2) creates."""
        self._fds.append(bpf(command, bpf_attribute(attribute)))
        return self._fds[-1]

    def create_map(self, kind: int, key_bytes: int, value_bytes: int, entries: int) -> int:
        """Return the descriptor of a new map."""
        return self.open(Command.MAP_CREATE, struct.pack("=IIIII", kind, key_bytes, value_bytes, entries, 0))

    def load(self, kind: int, attach_kind: int, program: bytes, type_id: int = 0) -> int:
        """Return the descriptor of a program that the kernel has verified.

        kind, attach_kind: its types (enum bpf_prog_type and bpf_attach_type). type_id: BTF type that it attaches to.
        """
        code, licence = ctypes.create_string_buffer(program), ctypes.create_string_buffer(b"Dual MIT/GPL")
        log = ctypes.create_string_buffer(_LOG_BYTES)
        # prog_type, insn_cnt, insns, license, log_level, log_size, log_buf, kern_version, prog_flags, name[16],
        # ifindex, expected_attach_type, btf_fd … line_info_cnt, attach_btf_id
        attribute = struct.pack(
            "=IIQQIIQII16sII8I",
            kind,
            len(program) // 8,
            ctypes.addressof(code),
            ctypes.addressof(licence),
            1,
            _LOG_BYTES,
            ctypes.addressof(log),
            0,
            0,
            b"coresteer",
            0,
            attach_kind,
            *[0] * 8,
        )
        attribute = attribute.ljust(108, b"\0") + struct.pack("=I", type_id)
        try:
            return self.open(Command.PROG_LOAD, attribute)
        except OSError:
            messages = log.value.decode("ascii", "replace").strip().split("\n")
            _log.debug("The eBPF verifier rejects a program: %s", "\n".join(messages))
            raise

    def close(self) -> None:
        """Close all descriptors, which detaches and unloads what they stand for."""
        while self._fds:
            os.close(self._fds.pop())


def assemble(steps: Iterable[Step | str]) -> bytes:
    """Return the bytecode of a program. A string among its instructions is a label of the next one."""
    labels: dict[str, int] = {}
    instructions: list[Step] = []
    for step in steps:
        if isinstance(step, str):
            labels[step] = len(instructions)
        else:
            instructions.append(step)
    code = bytearray()
    for number, (opcode, target, source, offset, value) in enumerate(instructions):
        jump = labels[offset] - number - 1 if isinstance(offset, str) else offset
        code += struct.pack("=BBhi", opcode, source << 4 | target, jump, value)
    return bytes(code)


def call(helper: Helper) -> Step:
    """Return the instruction that calls a helper: arguments in registers 1 to 5, the result in 0."""
    return Op.CALL, 0, 0, 0, helper


def load_map(register: int, descriptor: int) -> tuple[Step, Step]:
    """Return the instruction, of twice the length, that loads a map's address."""
    return (Op.LOAD_ADDRESS, register, 1, 0, descriptor), (0, 0, 0, 0, 0)


def load_array(register: int, descriptor: int) -> tuple[Step, Step]:
    """Return the instruction, of twice the length, that loads the address of an array's first value."""
    return (Op.LOAD_ADDRESS, register, 2, 0, descriptor), (0, 0, 0, 0, 0)


def read_entry(descriptor: int, key: bytes, size: int) -> bytes | None:
    """Return the value of a map's entry, None if it has no such entry. Raises OSError."""
    value = ctypes.create_string_buffer(size)
    try:
        _entry(Command.MAP_LOOKUP_ELEM, descriptor, key, value)
    except FileNotFoundError:
        return None
    return value.raw


def write_entry(descriptor: int, key: bytes, value: bytes) -> None:
    """Create or replace an entry of a map. Raises OSError."""
    _entry(Command.MAP_UPDATE_ELEM, descriptor, key, ctypes.create_string_buffer(value, len(value)))


def delete_entry(descriptor: int, key: bytes) -> None:
    """Delete an entry of a map. Raises OSError."""
    _entry(Command.MAP_DELETE_ELEM, descriptor, key, None)


def _entry(command: Command, descriptor: int, key: bytes, value: "ctypes.Array[ctypes.c_char] | None") -> None:
    of = ctypes.create_string_buffer(key, len(key))
    address = 0 if value is None else ctypes.addressof(value)
    bpf(command, bpf_attribute(struct.pack("=IIQQQ", descriptor, 0, ctypes.addressof(of), address, 0)))


def bpf_attribute(fields: bytes) -> "ctypes.Array[ctypes.c_char]":
    """Return the union bpf_attr with these fields first and zeros after them."""
    return ctypes.create_string_buffer(fields, _ATTRIBUTE_BYTES)


def bpf(command: IntEnum, attribute: "ctypes.Array[ctypes.c_char]") -> int:
    """Return the result of bpf(2). Raises OSError with the command's name."""
    number = _CALLS.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, f"the system call number of bpf(2) on {platform.machine()} is not known")
    found: int = _libc.syscall(number, command, attribute, len(attribute))
    if found < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), f"BPF_{command.name}")
    return found


_libc = ctypes.CDLL(None, use_errno=True)
