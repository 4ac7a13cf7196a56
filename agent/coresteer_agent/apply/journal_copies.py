"""The journal's file and its copy: lines with checksums, and which of the two is whole after a crash or damage.

A line is the CRC-32 of its text and of all lines before it, in hexadecimal, a space and the text. The file is written
and on disk before its copy is; so whatever crash there was, one of them ends with a whole line, and the file is the
longer one. Anything else is damage.
"""

import errno
import logging
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from zlib import crc32

from msgspec import Struct

from coresteer_agent.linux.atomic_file import sync_folder
from coresteer_agent.state_upgrade import upgrade_journal

log = logging.getLogger("coresteer.journal")


class DamagedError(Exception):
    """Raised if neither the file nor its copy is whole; readable: what the longer one still contains."""

    def __init__(self, readable: "Content") -> None:
        super().__init__(readable)
        self.readable = readable


class Content(Struct, frozen=True):
    """The valid lines of a file from its beginning: their texts, the bytes that they take and their checksum.

    whole: nothing follows them. A journal of an earlier format has texts, but no data.
    """

    lines: list[bytes]
    data: bytes
    checksum: int
    whole: bool

    def continues(self, other: "Content") -> bool:
        """Return whether this has all lines of the other one, and more."""
        return len(self.data) > len(other.data) > 0 and self.data.startswith(other.data)


def parse_lines(data: bytes, checksum: int = 0) -> Content:
    """Return the valid lines at the beginning of data, which follow lines with this checksum."""
    lines = []
    start = 0
    while (end := data.find(b"\n", start)) >= 0:
        text = data[start + 9 : end]
        found = crc32(text, checksum)
        if data[start : start + 9] != b"%08x " % found:
            break
        lines.append(text)
        checksum, start = found, end + 1
    return Content(lines, data[:start], checksum, start == len(data) > 0)


def format_lines(texts: Iterable[bytes], checksum: int = 0) -> tuple[bytes, int]:
    """Return texts as lines that follow lines with this checksum, and the checksum after them."""
    lines = []
    for text in texts:
        checksum = crc32(text, checksum)
        lines.append(b"%08x %b\n" % (checksum, text))
    return b"".join(lines), checksum


class Copies:
    """The two files of a journal: path and a copy beside it, open for appending. The caller holds a lock."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.copy_path = path.with_suffix(".copy.jsonl")
        self._fds = [-1, -1]
        self._size = 0
        self._checksum = 0

    def close(self) -> None:
        """Close both files."""
        for number, fd in enumerate(self._fds):
            if fd >= 0:
                os.close(fd)
            self._fds[number] = -1

    def read(self) -> Content | None:
        """Return what the journal contains, from whichever copy has it; None without either.

        Raises DamagedError, and OSError.
        """
        data, copied = _read(self.path), _read(self.copy_path)
        if data is None and copied is None:
            return None
        if data is not None and (older := upgrade_journal(data)) is not None:
            return Content(older, b"", 0, whole=True)
        file, copy = parse_lines(data or b""), parse_lines(copied or b"")
        if file.whole:
            best, usable = (copy, copy.whole) if copy.continues(file) else (file, True)
        else:
            best, usable = (file, copy.whole) if file.continues(copy) else (copy, copy.whole)
        if not usable:
            raise DamagedError(max(file, copy, key=lambda each: len(each.lines)))
        return best

    def appended(self) -> list[bytes] | None:
        """Return the texts that other processes appended; None if the file is another one now, or truncated."""
        status = self.path.stat()
        if not self._is_open(0, status):
            return None
        if status.st_size == self._size:
            return []
        return self._follow(parse_lines(os.pread(self._fds[0], status.st_size, self._size), self._checksum))

    def continued(self, content: Content) -> list[bytes] | None:
        """Return the texts of content after those known already; None if it begins otherwise."""
        if not self._size or parse_lines(content.data[: self._size]).checksum != self._checksum:
            return None
        return self._follow(parse_lines(content.data[self._size :], self._checksum))

    def truncated(self) -> bool:
        """Return whether the open file is gone or shorter than it was, which no process of ours does."""
        if self._fds[0] < 0:
            return False
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return True
        return os.fstat(self._fds[0]).st_ino == status.st_ino and status.st_size < self._size

    def open(self, content: Content) -> None:
        """Open both files for appending after this content, and replace one that does not have it. Raises OSError."""
        self.close()
        self._size, self._checksum = len(content.data), content.checksum
        for number, path in enumerate((self.path, self.copy_path)):
            found = _read(path)
            if found is None or not found.startswith(content.data):
                if number == 0 or found is None or not content.data.startswith(found):
                    log.warning("The journal's file %s is damaged or missing; its copy replaces it.", path)
                self._fds[number] = _replace(path, content.data)
            else:
                self._fds[number] = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
                self._cut(number)

    def append(self, texts: Iterable[bytes]) -> int:
        """Append lines to both files; they are on disk (fsync) on return. Return their bytes. Raises OSError."""
        lines, checksum = format_lines(texts, self._checksum)
        self._make_copy_match()
        self._cut(0)
        try:
            for fd in self._fds:
                if os.write(fd, lines) < len(lines):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(fd)
        except OSError:
            for number in (0, 1):
                with suppress(OSError):  # else a torn line remains, which is ignored
                    self._cut(number)
            raise
        self._size += len(lines)
        self._checksum = checksum
        return len(lines)

    def replace(self, texts: Iterable[bytes]) -> None:
        """Replace each file atomically by these lines; they are on disk on return. Raises OSError."""
        data, checksum = format_lines(texts)
        fd = _replace(self.path, data)
        self.close()
        self._fds[0], self._size, self._checksum = fd, len(data), checksum
        self._fds[1] = _replace(self.copy_path, data)

    def _is_open(self, number: int, status: os.stat_result) -> bool:
        fd = self._fds[number]
        return fd >= 0 and os.fstat(fd).st_ino == status.st_ino and status.st_size >= self._size

    def _follow(self, content: Content) -> list[bytes]:
        self._size += len(content.data)
        self._checksum = content.checksum
        return content.lines

    def _cut(self, number: int) -> None:
        """Remove what a crash before an fsync left: nothing was written to the kernel because of it."""
        if os.fstat(self._fds[number]).st_size > self._size:
            os.ftruncate(self._fds[number], self._size)

    def _make_copy_match(self) -> None:
        """Replace a copy that a crash of another process left behind, or that is gone."""
        with suppress(FileNotFoundError):
            if self._is_open(1, self.copy_path.stat()):
                self._cut(1)
                return
        content = parse_lines(os.pread(self._fds[0], self._size, 0))
        if len(content.data) != self._size:
            raise OSError(errno.EIO, "it is damaged")
        fd = _replace(self.copy_path, content.data)
        if self._fds[1] >= 0:
            os.close(self._fds[1])
        self._fds[1] = fd


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _replace(path: Path, data: bytes) -> int:
    """Replace a file atomically and return its descriptor for appending; it is on disk (fsync). Raises OSError."""
    new = path.with_suffix(".new")
    fd = os.open(new, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        with open(fd, "wb", closefd=False) as file:
            file.write(data)
        os.fsync(fd)
        new.replace(path)
        sync_folder(path.parent)
    except OSError:
        os.close(fd)
        with suppress(OSError):  # it may have taken the last blocks of the disk
            new.unlink(missing_ok=True)
        raise
    return fd
