"""Reads /proc/irq: requested and effective affinity of interrupts, and whether they can be moved.

Kernel: kernel/irq/proc.c.
"""

import errno
import logging
import os
import stat
from pathlib import Path

from msgspec import Struct

from coresteer_agent.collect.files import list_numbered, read_bytes, read_cpus_as_list, read_non_negative, real_path

_log = logging.getLogger(__name__)

IRQ_FOLDER = "proc/irq"
_FIXED = (b"IRQD_AFFINITY_MANAGED", b"IRQD_NO_BALANCING", b"IRQD_PER_CPU")
_NO_WRITE_BIT = (
    "Its smp_affinity_list is read-only: the kernel spreads this interrupt itself (a managed interrupt), "
    "or its controller can deliver it to one CPU only."
)
_IS_FIXED = (
    "The kernel keeps the affinity of this interrupt to itself: it spreads it over the CPUs (a managed interrupt), "
    "or binds it to one of them."
)


class Movability(Struct, frozen=True):
    """Whether an interrupt's affinity can be set; None if unknown. reason: a sentence if it cannot."""

    movable: bool | None
    reason: str | None = None


class Affinity(Struct, frozen=True):
    """Affinity of an interrupt as CPU lists: smp_affinity_list, and effective_affinity_list (None before its setup)."""

    requested: str | None
    effective: str | None


def irq_numbers(root: Path) -> list[int]:
    """Return the numbers of all interrupts that have a folder in /proc/irq."""
    return list_numbered(root, IRQ_FOLDER, "")


def read_affinity(root: Path, irq: int) -> Affinity:
    """Read the requested and the effective affinity of an interrupt."""
    return Affinity(
        read_cpus_as_list(root, f"{IRQ_FOLDER}/{irq}/smp_affinity_list") or None,
        read_cpus_as_list(root, f"{IRQ_FOLDER}/{irq}/effective_affinity_list") or None,
    )


def read_numa_node(root: Path, irq: int) -> int | None:
    """Read the NUMA node of an interrupt's device; None if unknown."""
    return read_non_negative(root, f"{IRQ_FOLDER}/{irq}/node")


def read_movable(root: Path, irq: int) -> Movability:
    """Determine whether an interrupt's affinity can be set, without changing it.

    1. Since Linux 6.x the file has no write permission where the affinity cannot be set.
    2. debugfs, where it is mounted and readable, names interrupts that stay where they are. It does
       not name all of them, so it never means yes.
    3. As root on the running kernel: a text that cannot be parsed is written. write_irq_affinity()
       checks the permission before it parses, so EIO or EPERM means no, EINVAL means yes.
    """
    path = real_path(root, f"{IRQ_FOLDER}/{irq}/smp_affinity_list")
    if path is None:
        return Movability(None)
    try:
        if not path.stat().st_mode & stat.S_IWUSR:
            return Movability(False, _NO_WRITE_BIT)
    except OSError:  # the interrupt has disappeared
        return Movability(None)
    state = read_bytes(root, f"sys/kernel/debug/irq/irqs/{irq}") or b""
    if any(flag in state for flag in _FIXED):
        return Movability(False, _IS_FIXED)
    if os.geteuid() == 0 and is_running_kernel(root):
        return _probe(path)
    return Movability(None)


def is_running_kernel(root: Path) -> bool:
    """Return whether the /proc below root is the running kernel's and not that of a captured tree."""
    return root == Path("/") and any(
        line.split()[1:3] == [b"/proc", b"proc"] for line in (read_bytes(root, "proc/self/mounts") or b"").split(b"\n")
    )


def _probe(path: Path) -> Movability:
    """Write “x”, which is no CPU list, so that the error shows whether the affinity can be set."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except OSError as error:
        _log.debug("It is not known whether %s can be written: %s.", path, error.strerror)
        return Movability(None)
    try:
        os.write(fd, b"x")
    except OSError as error:
        if error.errno == errno.EINVAL:
            return Movability(True)
        if error.errno in (errno.EIO, errno.EPERM):
            return Movability(False, _IS_FIXED)
        _log.debug("It is not known whether %s can be written: %s.", path, error.strerror)
        return Movability(None)
    finally:
        os.close(fd)
    return Movability(None)
