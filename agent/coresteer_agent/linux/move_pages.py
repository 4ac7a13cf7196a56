"""``move_pages(2)``: query and set the NUMA node of a process's pages (kernel: mm/migrate.c)."""

import ctypes
import errno
import os
import platform
from collections.abc import Sequence

_NUMBERS = {"x86_64": 279, "aarch64": 239, "ppc64le": 301, "riscv64": 239, "s390x": 310}
_MPOL_MF_MOVE = 2


NOT_STORED = -errno.EAGAIN
"""Status of a page that the kernel left open: it ends a call after a page that it cannot move, such as a pinned one."""


def move_pages(pid: int, addresses: Sequence[int], nodes: Sequence[int] | None) -> list[int]:
    """Return the node of each page, or a negative errno; with nodes, move each to its node first. Raises OSError.

    A page whose status is NOT_STORED may have moved or not.
    """
    number = _NUMBERS.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, f"move_pages is not known for {platform.machine()}")
    count = len(addresses)
    pages = (ctypes.c_void_p * count)(*addresses)
    targets = None if nodes is None else (ctypes.c_int * count)(*nodes)
    status = (ctypes.c_int * count)(*[NOT_STORED] * count)
    libc = ctypes.CDLL(None, use_errno=True)
    result = libc.syscall(
        ctypes.c_long(number), ctypes.c_int(pid), ctypes.c_ulong(count), pages, targets, status,
        ctypes.c_int(_MPOL_MF_MOVE),
    )  # fmt: skip
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return list(status)
