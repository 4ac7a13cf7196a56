"""Parsing and formatting of CPU lists (``0-3,8``) and CPU masks (kernel: lib/bitmap-str.c)."""

import re
from collections.abc import Iterable
from functools import lru_cache

MAX_CPUS = 8192
"""The largest NR_CPUS a kernel can be configured with; a list that names more is an error or an attack."""

_RANGE = re.compile(r"(\d{1,5})(?:-(\d{1,5})(?::(\d{1,5})/(\d{1,5}))?)?\Z", re.ASCII)
_HEX = re.compile(r"[0-9a-fA-F]+\Z")


class CpuListError(ValueError):
    """A text that is not a CPU list; the message is a sentence for the person who entered it."""


def parse_cpu_list(text: str) -> frozenset[int]:
    """Return the CPU numbers in a CPU list as the kernel prints it; none for an empty text.

    Accepts every form that the kernel prints or reads: ``3``, ``0-3,8``, strided groups ``0-15:2/4``.
    Raises CpuListError for anything else, with the part that is wrong.
    """
    return _parsed(text)


@lru_cache(maxsize=1024)  # a node repeats the same few texts
def _parsed(text: str) -> frozenset[int]:
    text = text.strip()
    if not text:
        return frozenset()
    cpus: set[int] = set()
    for part in text.split(","):
        match = _RANGE.match(part.strip())
        if match is None:
            raise CpuListError(f"“{part.strip()[:40]}” is not a CPU or a range of CPUs; write for example 0-3,8.")
        first = int(match[1])
        last = int(match[2]) if match[2] is not None else first
        if last < first:
            raise CpuListError(f"The range {first}-{last} runs backwards; write {last}-{first}.")
        if last >= MAX_CPUS:
            raise CpuListError(f"CPU {last} is beyond the largest number Linux can have ({MAX_CPUS - 1}).")
        if match[3] is None:
            cpus.update(range(first, last + 1))
            continue
        used, group = int(match[3]), int(match[4])
        if not 0 < used <= group:
            raise CpuListError(f"The stride {used}/{group} in “{part.strip()}” must use 1 to {group} of each group.")
        cpus.update(cpu for cpu in range(first, last + 1) if (cpu - first) % group < used)
    return frozenset(cpus)


def format_cpu_list(cpus: Iterable[int]) -> str:
    """Return the shortest CPU list of a set of CPUs: ``{0, 1, 2, 8}`` is ``0-2,8``."""
    ranges: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if ranges and cpu == ranges[-1][1] + 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    return ",".join(f"{first}" if first == last else f"{first}-{last}" for first, last in ranges)


def parse_cpu_mask(text: str) -> frozenset[int]:
    """Return the CPU numbers in a hexadecimal CPU mask, ``00000000,0000000f`` (rps_cpus). Raises CpuListError."""
    digits = text.strip().replace(",", "")
    if not digits:
        return frozenset()
    if _HEX.match(digits) is None:  # int() alone would also take -1, 0x1 and 1_0
        raise CpuListError(f"“{text.strip()[:40]}” is not a hexadecimal CPU mask.")
    mask = int(digits, 16)
    if mask.bit_length() > MAX_CPUS:
        raise CpuListError(f"The mask names CPUs beyond the largest number Linux can have ({MAX_CPUS - 1}).")
    return frozenset(cpu for cpu in range(mask.bit_length()) if mask >> cpu & 1)


def format_cpu_mask(cpus: Iterable[int]) -> str:
    """Return the hexadecimal mask of a set of CPUs, in groups of 32 CPUs: ``{0, 1, 32}`` is ``1,00000003``."""
    mask = sum(1 << cpu for cpu in set(cpus))
    groups = []
    while mask >> 32:
        groups.append(f"{mask & 0xFFFF_FFFF:08x}")
        mask >>= 32
    return ",".join([f"{mask:x}", *reversed(groups)])
