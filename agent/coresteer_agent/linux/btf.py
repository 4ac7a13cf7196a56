"""Looks up types in the kernel's type information (/sys/kernel/btf/vmlinux; Documentation/bpf/btf.rst).

The file has about 5 MiB and 100,000 types, so it is read in pieces that are discarded, once, in 0.1 s.
"""

import os
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct

PATH = "sys/kernel/btf/vmlinux"

_HEADER = struct.Struct("=HBBIIIII")
_MAGIC = 0xEB9F
_TYPE = struct.Struct("=III")
_MEMBER = struct.Struct("=III")
_CHUNK = 256 * 1024
_STRUCT, _TYPEDEF = 4, 8
_FIXED_BYTES = {1: 4, 3: 12, 14: 4, 17: 4}
"""After the common part, by kind: INT, ARRAY, VAR, DECL_TAG."""
_BYTES_EACH = {4: 12, 5: 12, 6: 8, 13: 8, 15: 12, 19: 12}
"""The same for each of its parts: STRUCT, UNION, ENUM, FUNC_PROTO, DATASEC, ENUM64."""


class BtfError(ValueError):
    """Raised for type information that is invalid or lacks the requested types."""


class KernelTypes(Struct, frozen=True):
    """Types found in BTF. typedefs: type ids. offsets: of members in bytes, by ``struct.member``."""

    typedefs: dict[str, int]
    offsets: dict[str, int]


class _File:
    """A file that is read in pieces."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def read(self, offset: int, size: int) -> bytes:
        found = bytearray()
        while len(found) < size and (part := os.pread(self._fd, size - len(found), offset + len(found))):
            found += part
        return bytes(found)

    def close(self) -> None:
        os.close(self._fd)


def find_types(path: Path, typedefs: list[str], members: list[str]) -> KernelTypes:
    """Look up typedefs by name and members by ``struct.member`` in BTF. Raises OSError; BtfError if one is missing."""
    file = _File(path)
    try:
        header = file.read(0, _HEADER.size)
        if len(header) < _HEADER.size or _HEADER.unpack(header)[0] != _MAGIC:
            raise BtfError("The kernel's type information does not start with a BTF header.")
        _, _, _, length, type_offset, type_bytes, string_offset, string_bytes = _HEADER.unpack(header)
        names = {*typedefs, *(word for member in members for word in member.split("."))}
        where = _find_names(file, length + string_offset, string_bytes, names)
        types = _types(file, length + type_offset, type_bytes, {where[name.split(".")[0]] for name in members})
        return _choose(types, where, typedefs, members)
    except struct.error:
        raise BtfError("The kernel's type information (BTF) is incomplete.") from None
    finally:
        file.close()


def _find_names(file: _File, start: int, size: int, names: set[str]) -> dict[str, int]:
    """Return the offset of each name in the string section."""
    found: dict[str, int] = {}
    overlap = max(map(len, names)) + 2
    for begin in range(0, size, _CHUNK):
        chunk = file.read(start + begin, min(_CHUNK + overlap, size - begin))
        for name in names - found.keys():
            place = chunk.find(b"\0" + name.encode() + b"\0")
            if place >= 0:
                found[name] = begin + place + 1
    if missing := names - found.keys():
        raise BtfError(f"The kernel's type information does not know {', '.join(sorted(missing))}.")
    return found


def _choose(
    types: Iterable[tuple[int, int, int, bytes]], where: dict[str, int], typedefs: list[str], members: list[str]
) -> KernelTypes:
    typedefs_at = {where[name]: name for name in typedefs}
    members_at = {(where[s], where[m]): f"{s}.{m}" for s, m in (name.split(".") for name in members)}
    found = KernelTypes({}, {})
    for number, kind, name, parts in types:
        if kind == _TYPEDEF and name in typedefs_at:
            found.typedefs.setdefault(typedefs_at[name], number)
        for member, _, offset in _MEMBER.iter_unpack(parts):
            if (path := members_at.get((name, member))) is not None:
                found.offsets[path] = (offset & 0xFF_FFFF) // 8  # above are the bits of a bit field
    if missing := (set(typedefs) - found.typedefs.keys()) | (set(members) - found.offsets.keys()):
        raise BtfError(f"The kernel's type information does not know {', '.join(sorted(missing))}.")
    return found


def _types(file: _File, start: int, size: int, structs: set[int]) -> Iterator[tuple[int, int, int, bytes]]:
    """Yield id, kind and name of each type, with the members of the structs with these names."""
    data, base, position, number = b"", 0, 0, 0
    while base + position < size:
        if position + _TYPE.size > len(data):
            base += position
            data, position = file.read(start + base, min(_CHUNK, size - base)), 0
        name, info, _ = _TYPE.unpack_from(data, position)
        kind = info >> 24 & 0x1F
        extra = _FIXED_BYTES.get(kind, 0) + _BYTES_EACH.get(kind, 0) * (info & 0xFFFF)
        number += 1
        parts = b""
        if kind == _STRUCT and name in structs:
            parts = file.read(start + base + position + _TYPE.size, extra)
        if kind in (_STRUCT, _TYPEDEF):
            yield number, kind, name, parts
        position += _TYPE.size + extra
        if position > len(data):
            base += position
            data, position = file.read(start + base, min(_CHUNK, max(size - base, 0))), 0
