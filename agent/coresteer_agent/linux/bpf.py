"""Counts bytes that each process sent and received over TCP and UDP, by two eBPF programs.

Two small eBPF programs on the tracepoints sock_send_length and sock_recv_length (Linux 6.3, net/socket.c) add up what
each system call moved, 180 ns a call. They are put together here by hand and loaded by bpf(2), so that no compiler
and no library is needed; they end with this process.
"""

import ctypes
import errno
import logging
import os
import platform
import struct
from pathlib import Path

from coresteer_agent.linux import btf

_log = logging.getLogger(__name__)

_CALLS = {"x86_64": 321, "aarch64": 280, "riscv64": 280, "ppc64le": 361}
"""The number of bpf(2)."""
_MAP_CREATE, _PROG_LOAD, _RAW_TRACEPOINT_OPEN, _MAP_LOOKUP_BATCH = 0, 5, 17, 24
_LRU_HASH = 9
_TRACING, _RAW_TP = 26, 23
_PROCESSES = 4096
"""Pairs of process and protocol that are counted; of more, those that were silent for longest are dropped."""
_ATTRIBUTE_BYTES = 144
_KEY, _VALUE = struct.Struct("=II"), struct.Struct("=QQ")
_LOG_BYTES = 64 * 1024
_MSG_PEEK = 2
INIT_PID_NAMESPACE = 0xEFFF_FFFC
"""PROC_PID_INIT_INO of include/linux/proc_ns.h: only there a process has the number that the programs see."""
TCP, UDP = 6, 17
_FAMILIES = (2, 10)

_TRACEPOINTS = ("sock_recv_length", "sock_send_length")
_FAMILY, _PROTOCOL = "sock_common.skc_family", "sock.sk_protocol"


class BpfRefusedError(Exception):
    """Raised if the kernel does not allow the eBPF programs; the message is the reason."""


class ByteCounters:
    """Counts each process's TCP and UDP bytes from its creation on. Raises BpfRefusedError."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._fds: list[int] = []
        try:
            if (root / "proc/self/ns/pid").stat().st_ino != INIT_PID_NAMESPACE:
                raise BpfRefusedError("this agent runs in a PID namespace of its own")
            typedefs = [f"btf_trace_{name}" for name in _TRACEPOINTS]
            types = btf.find_types(root / btf.PATH, typedefs, [_FAMILY, _PROTOCOL])
            self._map = self._open(_MAP_CREATE, struct.pack("=IIIII", _LRU_HASH, _KEY.size, _VALUE.size, _PROCESSES, 0))
            for side, typedef in enumerate(typedefs):
                program = assemble_program(self._map, side, types.offsets[_FAMILY], types.offsets[_PROTOCOL])
                loaded = self._load(program, types.typedefs[typedef])
                self._open(_RAW_TRACEPOINT_OPEN, struct.pack("=QI", 0, loaded))
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
            attribute = ctypes.create_string_buffer(
                struct.pack(
                    "=QQQQIIQQ",
                    0 if first else ctypes.addressof(place),
                    ctypes.addressof(place),
                    ctypes.addressof(keys),
                    ctypes.addressof(values),
                    _PROCESSES,
                    self._map,
                    0,
                    0,
                ),
                _ATTRIBUTE_BYTES,
            )
            failed = 0
            try:
                _bpf(_MAP_LOOKUP_BATCH, attribute)
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
        while self._fds:
            os.close(self._fds.pop())

    def _open(self, command: int, attribute: bytes) -> int:
        self._fds.append(_bpf(command, ctypes.create_string_buffer(attribute, _ATTRIBUTE_BYTES)))
        return self._fds[-1]

    def _load(self, program: bytes, type_id: int) -> int:
        code, licence = ctypes.create_string_buffer(program), ctypes.create_string_buffer(b"Dual MIT/GPL")
        log = ctypes.create_string_buffer(_LOG_BYTES)
        # prog_type, insn_cnt, insns, license, log_level, log_size, log_buf, kern_version, prog_flags, name[16],
        # ifindex, expected_attach_type, btf_fd … line_info_cnt, attach_btf_id
        attribute = struct.pack(
            "=IIQQIIQII16sII8I",
            _TRACING,
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
            _RAW_TP,
            *[0] * 8,
        )
        attribute = attribute.ljust(108, b"\0") + struct.pack("=I", type_id)
        try:
            return self._open(_PROG_LOAD, attribute)
        except OSError:
            messages = log.value.decode("ascii", "replace").strip().splitlines()
            _log.debug("The eBPF verifier rejects the program that counts bytes: %s", "\n".join(messages))
            raise


def assemble_program(counters: int, side: int, family_at: int, protocol_at: int) -> bytes:
    """Return the bytecode of the eBPF program that counts one direction. side: 0 for received, 1 for sent.

    It adds the bytes of a system call to its process's entry. counters: the map's descriptor; family_at and
    protocol_at: where struct sock has them.
    """
    return b"".join(_resolve(_program(counters, side, family_at, protocol_at)))


_Step = tuple[int, int, int, int | str, int]
"""An instruction: opcode, destination and source register, offset or the label to jump to, immediate value."""


def _program(counters: int, side: int, family_at: int, protocol_at: int) -> list[_Step | str]:
    key, value = -8, -24
    return [
        (0x79, 2, 1, 0, 0),  # r2 = the socket
        (0x79, 7, 1, 8, 0),  # r7 = what the call returned, an int
        (0x79, 3, 1, 16, 0),  # r3 = its flags
        (0x67, 7, 0, 0, 32),
        (0xC7, 7, 0, 0, 32),
        (0xD5, 7, 0, "end", 0),  # an error, or nothing
        (0x57, 3, 0, 0, 0 if side else _MSG_PEEK),
        (0x55, 3, 0, "end", 0),  # it only looked
        (0x69, 3, 2, family_at, 0),
        (0x15, 3, 0, "internet", _FAMILIES[0]),
        (0x55, 3, 0, "end", _FAMILIES[1]),
        "internet",
        (0x69, 8, 2, protocol_at, 0),
        (0x15, 8, 0, "counted", TCP),
        (0x55, 8, 0, "end", UDP),
        "counted",
        (0x85, 0, 0, 0, 14),  # bpf_get_current_pid_tgid: the process is the upper half
        (0x77, 0, 0, 0, 32),
        (0x63, 10, 8, key, 0),
        (0x63, 10, 0, key + 4, 0),
        (0x18, 1, 1, 0, counters),
        (0x00, 0, 0, 0, 0),
        (0xBF, 2, 10, 0, 0),
        (0x07, 2, 0, 0, key),
        (0x85, 0, 0, 0, 1),  # bpf_map_lookup_elem
        (0x55, 0, 0, "add", 0),
        (0x7A, 10, 0, value, 0),
        (0x7A, 10, 0, value + 8, 0),
        (0x7B, 10, 7, value + 8 * side, 0),
        (0x18, 1, 1, 0, counters),
        (0x00, 0, 0, 0, 0),
        (0xBF, 2, 10, 0, 0),
        (0x07, 2, 0, 0, key),
        (0xBF, 3, 10, 0, 0),
        (0x07, 3, 0, 0, value),
        (0xB7, 4, 0, 0, 1),  # BPF_NOEXIST: of two threads' first calls at once, one is not counted
        (0x85, 0, 0, 0, 2),  # bpf_map_update_elem
        (0x05, 0, 0, "end", 0),
        "add",
        (0xDB, 0, 7, 8 * side, 0),  # atomically
        "end",
        (0xB7, 0, 0, 0, 0),
        (0x95, 0, 0, 0, 0),
    ]


def _resolve(steps: list[_Step | str]) -> list[bytes]:
    labels: dict[str, int] = {}
    count = 0
    for step in steps:
        if isinstance(step, str):
            labels[step] = count
        else:
            count += 1
    code: list[bytes] = []
    for step in steps:
        if not isinstance(step, str):
            opcode, target, source, offset, value = step
            jump = labels[offset] - len(code) - 1 if isinstance(offset, str) else offset
            code.append(struct.pack("=BBhi", opcode, source << 4 | target, jump, value))
    return code


def _bpf(command: int, attribute: "ctypes.Array[ctypes.c_char]") -> int:
    number = _CALLS.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, f"the system call number of bpf(2) on {platform.machine()} is not known")
    found: int = _libc.syscall(number, command, attribute, len(attribute))
    if found < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return found


_libc = ctypes.CDLL(None, use_errno=True)
