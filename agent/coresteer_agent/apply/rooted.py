"""Reads and writes files below a root directory without following symbolic links out of it."""

import errno
import os
import posixpath
import stat
from pathlib import Path


class ReadOnlyModeError(Exception):
    """Raised for a file without write permission; on procfs the kernel rejects every write to it."""


def read_text(root: Path, path: str, limit: int = 4096) -> str:
    """Return the stripped text of a file below root. limit: of its size in bytes. Raises OSError."""
    fd = _open(root, path, os.O_RDONLY)
    try:
        return os.read(fd, limit).decode("ascii", "replace").strip()
    finally:
        os.close(fd)


def write_text(root: Path, path: str, text: str) -> None:
    """Write text to a file below root in one write(2). Raises OSError with the kernel's errno, or ReadOnlyModeError."""
    fd = _open(root, path, os.O_PATH)
    try:
        mode = os.fstat(fd).st_mode
    finally:
        os.close(fd)
    if not mode & 0o222:
        raise ReadOnlyModeError(path)
    fd = _open(root, path, os.O_WRONLY | os.O_TRUNC)
    try:
        os.write(fd, text.encode("ascii"))
    finally:
        os.close(fd)


def netdev_folder(root: Path, name: str) -> str:
    """Return the path below root of a netdev's folder, the target of its link in /sys/class/net. Raises OSError."""
    top = "sys/class/net"
    folder = _open(root, top, os.O_PATH | os.O_DIRECTORY)
    try:
        if name in ("", ".", "..") or "/" in name:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        if not stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            return f"{top}/{name}"
        return posixpath.normpath(f"{top}/{os.readlink(name, dir_fd=folder)}")
    finally:
        os.close(folder)


def exists(root: Path, path: str) -> bool:
    """Return whether a file exists below root. Raises OSError if that cannot be determined."""
    try:
        os.close(_open(root, path, os.O_PATH))
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def inode(root: Path, path: str) -> int:
    """Return the inode number of a file or folder below root. Raises OSError."""
    fd = _open(root, path, os.O_PATH)
    try:
        return os.fstat(fd).st_ino
    finally:
        os.close(fd)


def folders(root: Path, path: str) -> list[str]:
    """Return the sorted names of the subfolders of a folder below root. Raises OSError."""
    fd = _open(root, path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with os.scandir(fd) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    finally:
        os.close(fd)


def _open(root: Path, path: str, flags: int) -> int:
    """Open a path component by component without following links, because a captured tree is untrusted."""
    *folders, name = path.split("/")
    if any(part in ("", ".", "..") for part in (*folders, name)):
        raise FileNotFoundError(path)
    folder = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in folders:
            below = os.open(part, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            os.close(folder)
            folder = below
        return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    finally:
        os.close(folder)
