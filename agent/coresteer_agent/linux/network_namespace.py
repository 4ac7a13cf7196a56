"""Sockets in the network namespace of another process (setns(2))."""

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import TypeVar

T = TypeVar("T")

_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


def network_namespace(pid: int) -> int | None:
    """Return the inode that identifies a process's network namespace; None if it has ended or may not be read."""
    try:
        return Path(f"/proc/{pid}/ns/net").stat().st_ino
    except OSError:
        return None


def open_in_namespace(pid: int, make: Callable[[], T]) -> T:
    """Return what make() opens in a process's network namespace, where a socket stays. Raises OSError.

    A thread that ends then enters the namespace, so that the others remain in theirs.
    """
    made: list[T] = []
    errors: list[OSError] = []

    def enter_and_make() -> None:
        try:
            with Path(f"/proc/{pid}/ns/net").open() as namespace:
                if _libc.setns(namespace.fileno(), _CLONE_NEWNET) < 0:
                    number = ctypes.get_errno()
                    raise OSError(number, os.strerror(number))
            made.append(make())
        except OSError as error:
            errors.append(error)

    thread = Thread(target=enter_and_make, name="network namespace")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return made[0]
