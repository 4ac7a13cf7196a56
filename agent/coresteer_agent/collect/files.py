"""Functions that read kernel files below a root directory.

A captured tree is untrusted: only regular files of at most 16 MiB are read, and links that lead out of it are
treated as absent. The running machine's own files are opened directly.
"""

import errno
import os
import re
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from coresteer_agent.collect.errors import ParseError
from coresteer_agent.collect.rows import value_or_none
from coresteer_core.cpuset import MAX_CPUS, CpuListError, format_cpu_list, parse_cpu_list, parse_cpu_mask

T = TypeVar("T")

_CHUNK = 64 * 1024
_PAGE = 4096
_MACHINE = Path("/")
MAX_CAPTURED_BYTES = 16 * 1024 * 1024
_MAX_NUMBER = 1 << 32
DIGITS = 20
"""Of the largest number of 64 bits."""


class RequestedPaths(Struct):
    """Paths below the root directory that collectors requested, whether they exist or not.

    found: only resolved; read: files; listed: folders.
    """

    found: set[str] = set()
    read: set[str] = set()
    listed: set[str] = set()


_requested: ContextVar[RequestedPaths | None] = ContextVar("requested", default=None)


@contextmanager
def record_requested_paths() -> Iterator[RequestedPaths]:
    """Record the paths that this thread requests within the context, i.e. all that collectors read below a root."""
    requested = RequestedPaths()
    token = _requested.set(requested)
    try:
        yield requested
    finally:
        _requested.reset(token)


def open_file(root: Path, path: str) -> int:
    """Open a file for reading. Raises OSError, also for files that a captured tree must not contain."""
    if (requested := _requested.get()) is not None:
        requested.read.add(path)
    top = str(root)  # hundreds of times a second, and a Path costs more to compare than the kernel needs to open
    name = f"{top}/{path}"
    if top == "/":
        return os.open(name, os.O_RDONLY | os.O_CLOEXEC)
    place = os.open(name, os.O_PATH | os.O_CLOEXEC)  # which neither blocks on a FIFO nor opens a device
    try:
        found = os.fstat(place)
        where = os.readlink(f"/proc/self/fd/{place}")  # noqa: PTH115 - a Path costs more
        if not _holds(top, where):
            raise FileNotFoundError(errno.ENOENT, "The link leads out of the captured tree", path)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "Not a regular file", path)
        if found.st_size > MAX_CAPTURED_BYTES:
            raise OSError(errno.EFBIG, "The file is larger than any kernel file", path)
        return os.open(f"/proc/self/fd/{place}", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    finally:
        os.close(place)


def real_path(root: Path, path: str) -> Path | None:
    """Return a path with all links resolved; None if it does not exist or is not below root."""
    if (requested := _requested.get()) is not None:
        requested.found.add(path)
    try:
        found = os.path.realpath(f"{root}/{path}", strict=True)
    except OSError:
        return None
    return Path(found) if _holds(str(root), found) else None


def _holds(root: str, name: str) -> bool:
    top = _real_root(root)
    return name == top or name.startswith(top.rstrip("/") + "/")


@lru_cache(maxsize=8)
def _real_root(root: str) -> str:
    return os.path.realpath(root)


def parse_cpu_number(text: bytes | bytearray, path: str, line: int | None, base: int = 10) -> int:
    """Parse a CPU number. Raises ParseError for one of MAX_CPUS or more."""
    try:
        cpu = int(text, base) if text.isalnum() else -1
    except ValueError:
        cpu = -1
    if not 0 <= cpu < MAX_CPUS:
        shown = text[:40].decode("ascii", "replace")
        raise ParseError(path, line, f"“{shown}” is not the number of a CPU (0 to {MAX_CPUS - 1}).")
    return cpu


def read_bytes(root: Path, path: str) -> bytes | None:
    """Return the contents of a file; None if it does not exist, is empty or cannot be read.

    Drivers answer a read with EINVAL, EOPNOTSUPP or ENODEV where an attribute does not apply (the speed of a link that
    is down), so every error means that the value is unknown.
    """
    try:
        return read_file(root, path) or None
    except OSError:
        return None


def read_file(root: Path, path: str) -> bytes:
    """Return the contents of a file. Raises OSError with the kernel's errno."""
    fd = open_file(root, path)
    try:
        data = chunk = os.read(fd, _CHUNK)
        while chunk:
            # seq_file returns a page or so at a time, and only an empty read is the end
            if chunk := os.read(fd, _CHUNK):
                data += chunk
    finally:
        os.close(fd)
    return data


def read_text(root: Path, path: str) -> str | None:
    """Return the stripped text of a file, None as in read_bytes(); non-ASCII bytes become question marks."""
    data = read_bytes(root, path)
    return None if data is None else data.decode("ascii", "replace").strip()


def read_int(root: Path, path: str) -> int | None:
    """Read a file that contains one signed 32-bit number, None as in read_bytes() or if it cannot be parsed."""
    return value_or_none(_int, root, path)


def _int(root: Path, path: str) -> int | None:
    text = read_text(root, path)
    if not text:
        return None
    try:
        number = int(text)
    except ValueError:
        number = _MAX_NUMBER
    if not -_MAX_NUMBER <= number < _MAX_NUMBER:
        raise ParseError(path, 1, f"“{text[:40]}” is not a whole number.")
    return number


def read_non_negative(root: Path, path: str) -> int | None:
    """Read a file that contains one number; None also for -1, the kernel's “unknown”."""
    number = read_int(root, path)
    return None if number is None or number < 0 else number


def read_cpus(root: Path, path: str) -> frozenset[int] | None:
    """Read a file that contains a CPU list; None as in read_int()."""
    return _cpus(root, path, parse_cpu_list)


def read_mask(root: Path, path: str) -> frozenset[int] | None:
    """Read a file that contains a hexadecimal CPU mask; None as in read_int()."""
    return _cpus(root, path, parse_cpu_mask)


def read_cpus_as_list(root: Path, path: str) -> str | None:
    """Read a file that contains a CPU list and return the shortest equal one; None as in read_int()."""
    return _cpus(root, path, _shortest_list)


def require_cpu_list(root: Path, path: str) -> str | None:
    """Return the CPU list of a file as read_cpus_as_list() does, but raise ParseError for an invalid one.

    For lists that forbid something, where nothing read would mean that nothing is forbidden.
    """
    return _parse_cpus(root, path, _shortest_list)


def read_mask_as_list(root: Path, path: str) -> str | None:
    """Read a file that contains a hexadecimal CPU mask and return a CPU list; None as in read_int()."""
    return _cpus(root, path, _mask_as_list)


def _cpus(root: Path, path: str, parse: Callable[[str], T]) -> T | None:
    return value_or_none(_parse_cpus, root, path, parse)


def _parse_cpus(root: Path, path: str, parse: Callable[[str], T]) -> T | None:
    data = read_bytes(root, path)
    if data is None:
        return None
    text = data.decode("ascii", "replace").strip("\0 \n\t")
    try:
        # "(null)" is how the kernel prints a mask that was never allocated: no CPU
        return parse("" if text == "(null)" else text)
    except CpuListError as error:
        raise ParseError(path, 1, str(error)) from None


# many interrupts and queues share few texts, and on a large machine each costs more to parse than to read
@lru_cache(maxsize=512)
def _shortest_list(text: str) -> str:
    return format_cpu_list(parse_cpu_list(text))


@lru_cache(maxsize=512)
def _mask_as_list(text: str) -> str:
    return format_cpu_list(parse_cpu_mask(text))


def names(root: Path, path: str) -> list[str]:
    """Return the sorted names of a folder's entries; empty if it does not exist."""
    if (requested := _requested.get()) is not None:
        requested.listed.add(path)
    folder = f"{root}/{path}"
    if root != _MACHINE:
        if (place := real_path(root, path)) is None:
            return []
        folder = str(place)
    try:
        return sorted(entry.name for entry in os.scandir(folder))
    except OSError:
        return []


def list_numbered(root: Path, path: str, prefix: str) -> list[int]:
    """Return the numbers N (below 10^9) of a folder's entries named prefixN, such as cpu0 or node3, ascending."""
    number = re.compile(rf"{prefix}(\d{{1,9}})\Z", re.ASCII)
    return sorted(int(found[1]) for name in names(root, path) if (found := number.match(name)))


class HotFile:
    """Reads a file repeatedly through one descriptor, ten times faster than opening it for each read.

    Two buffers alternate: a large machine's /proc/interrupts has 1 MiB, and new memory for each read would keep two
    more buffers resident.
    """

    def __init__(self, root: Path, path: str) -> None:
        self.path = path
        self._root = root
        self._limit = sys.maxsize if root == _MACHINE else MAX_CAPTURED_BYTES
        self._fd: int | None = None
        self._next, self._last = bytearray(), bytearray()
        self._beyond = bytearray(_PAGE)

    def read(self) -> bytearray | None:
        """Return the file's contents, valid until the read after the next; None if it is absent or empty."""
        try:
            if self._fd is None:
                self._fd = open_file(self._root, self.path)
            self._read(self._fd, self._next)
        except OSError:
            self.close()  # a reloaded module has a new file of the same name: open it again at the next read
            return None
        if not self._next:
            return None  # the previous contents stay valid
        self._next, self._last = self._last, self._next
        return self._last

    def _read(self, fd: int, buffer: bytearray) -> None:
        offset = 0
        while True:
            with memoryview(buffer) as whole, whole[offset:] as rest:
                count = os.preadv(fd, [rest, self._beyond], offset)
            if not count:
                break
            offset += count
            if offset > len(buffer):
                if offset > self._limit:
                    raise OSError(errno.EFBIG, "The file has become larger than any kernel file", self.path)
                buffer += self._beyond[: offset - len(buffer)]
        del buffer[offset:]

    def close(self) -> None:
        """Close the file's descriptor."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
