"""Reading kernel files below a root directory.

A captured tree is data of unknown origin: of it only regular files of a sane size are read, and what a link
leads out of it to is as if absent. The running machine's own files are opened directly.
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
from coresteer_core.cpuset import MAX_CPUS, CpuListError, format_cpu_list, parse_cpu_list, parse_cpu_mask

T = TypeVar("T")

_CHUNK = 64 * 1024
_PAGE = 4096
_MACHINE = Path("/")
MAX_CAPTURED_BYTES = 16 * 1024 * 1024
_MAX_NUMBER = 1 << 32


class Asked(Struct):
    """The paths below the root that were asked for, whether they are there or not.

    found: only where they are and of which kind; read: files; listed: folders.
    """

    found: set[str] = set()
    read: set[str] = set()
    listed: set[str] = set()


_asked: ContextVar[Asked | None] = ContextVar("asked", default=None)


@contextmanager
def watched() -> Iterator[Asked]:
    """What this thread asks for meanwhile through this module, which is all that collectors read below a root."""
    asked = Asked()
    token = _asked.set(asked)
    try:
        yield asked
    finally:
        _asked.reset(token)


def open_file(root: Path, path: str) -> int:
    """A descriptor to read a file with. Raises OSError, also for what a captured tree should not hold."""
    if (asked := _asked.get()) is not None:
        asked.read.add(path)
    name = f"{root}/{path}"
    if root == _MACHINE:
        return os.open(name, os.O_RDONLY | os.O_CLOEXEC)
    place = os.open(name, os.O_PATH | os.O_CLOEXEC)  # which neither waits for a FIFO nor wakes a device
    try:
        found = os.fstat(place)
        where = os.readlink(f"/proc/self/fd/{place}")  # noqa: PTH115 - hundreds of times a second; a Path costs more
        if not _holds(root, where):
            raise FileNotFoundError(errno.ENOENT, "It leads out of the tree", path)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "It is not a regular file", path)
        if found.st_size > MAX_CAPTURED_BYTES:
            raise OSError(errno.EFBIG, "It is larger than any kernel file", path)
        return os.open(f"/proc/self/fd/{place}", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    finally:
        os.close(place)


def real_path(root: Path, path: str) -> Path | None:
    """Where a file or folder really is, all links followed; None where it is absent or not below root."""
    if (asked := _asked.get()) is not None:
        asked.found.add(path)
    try:
        found = os.path.realpath(f"{root}/{path}", strict=True)
    except OSError:
        return None
    return Path(found) if _holds(root, found) else None


def _holds(root: Path, name: str) -> bool:
    top = _real_root(root)
    return name == top or name.startswith(top.rstrip("/") + "/")


@lru_cache(maxsize=8)
def _real_root(root: Path) -> str:
    return os.path.realpath(root)


def cpu_number(text: bytes | bytearray, path: str, line: int | None, base: int = 10) -> int:
    """A CPU's number. Raises ParseError for one that Linux cannot have: columns are made as long as it says."""
    try:
        cpu = int(text, base) if text.isalnum() else -1
    except ValueError:
        cpu = -1
    if not 0 <= cpu < MAX_CPUS:
        shown = text[:40].decode("ascii", "replace")
        raise ParseError(path, line, f"“{shown}” is not the number of a CPU (0 to {MAX_CPUS - 1}).")
    return cpu


def read_bytes(root: Path, path: str) -> bytes | None:
    """The contents of a file, None where it is absent or the kernel has no value to tell.

    Drivers answer a read with EINVAL, EOPNOTSUPP or ENODEV where an attribute does not apply (the
    speed of a link that is down), so every refusal to read means: not known. An empty file says nothing either.
    """
    try:
        return read_file(root, path) or None
    except OSError:
        return None


def read_file(root: Path, path: str) -> bytes:
    """The contents of a file. Raises OSError with the kernel's number."""
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
    """The same, stripped; bytes that are not ASCII become question marks."""
    data = read_bytes(root, path)
    return None if data is None else data.decode("ascii", "replace").strip()


def read_int(root: Path, path: str) -> int | None:
    """A file that holds one number of at most 32 bits, also a negative one. Raises ParseError for anything else."""
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


def read_natural(root: Path, path: str) -> int | None:
    """A number where the kernel writes -1 for “not known”."""
    number = read_int(root, path)
    return None if number is None or number < 0 else number


def read_cpus(root: Path, path: str) -> frozenset[int] | None:
    """A CPU list file."""
    return _cpus(root, path, parse_cpu_list)


def read_mask(root: Path, path: str) -> frozenset[int] | None:
    """A CPU mask file in hexadecimal."""
    return _cpus(root, path, parse_cpu_mask)


def read_cpus_as_list(root: Path, path: str) -> str | None:
    """A CPU list file in its shortest spelling."""
    return _cpus(root, path, _shortest_list)


def read_mask_as_list(root: Path, path: str) -> str | None:
    """A hexadecimal CPU mask file as a CPU list."""
    return _cpus(root, path, _mask_as_list)


def _cpus(root: Path, path: str, parse: Callable[[str], T]) -> T | None:
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
    """What a folder holds, sorted; nothing where there is no such folder."""
    if (asked := _asked.get()) is not None:
        asked.listed.add(path)
    folder = f"{root}/{path}"
    if root != _MACHINE:
        if (place := real_path(root, path)) is None:
            return []
        folder = str(place)
    try:
        return sorted(entry.name for entry in os.scandir(folder))
    except OSError:
        return []


def numbered(root: Path, path: str, prefix: str) -> list[int]:
    """The numbers below 10^9 of a folder's entries named prefix and number (cpu0, node3), ascending."""
    number = re.compile(rf"{prefix}(\d{{1,9}})\Z", re.ASCII)
    return sorted(int(found[1]) for name in names(root, path) if (found := number.match(name)))


class HotFile:
    """A file read again and again through one descriptor, about ten times cheaper than opening it each time.

    Two buffers take turns: a large machine's /proc/interrupts has a MiB, and reading it into new memory each time
    would keep a third and a fourth one resident.
    """

    def __init__(self, root: Path, path: str) -> None:
        self.path = path
        self._root = root
        self._limit = sys.maxsize if root == _MACHINE else MAX_CAPTURED_BYTES
        self._fd: int | None = None
        self._next, self._last = bytearray(), bytearray()
        self._beyond = bytearray(_PAGE)

    def read(self) -> bytearray | None:
        """The contents now, which hold until the read after the next; None where the file is absent or empty."""
        try:
            if self._fd is None:
                self._fd = open_file(self._root, self.path)
            self._read(self._fd, self._next)
        except OSError:
            self.close()  # a module that was unloaded comes back under the same name: open it anew next time
            return None
        if not self._next:
            return None  # and the contents of before still hold
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
                    raise OSError(errno.EFBIG, "It grew larger than any kernel file", self.path)
                buffer += self._beyond[: offset - len(buffer)]
        del buffer[offset:]

    def close(self) -> None:
        """Let the descriptor go."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
