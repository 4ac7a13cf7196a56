"""Parsing and formatting of CPU lists (``0-3,8``) and CPU masks (kernel: lib/bitmap-str.c)."""

import re
from collections.abc import Iterable, Sequence

MAX_CPUS = 8192
"""The largest NR_CPUS a kernel can be configured with; a list that names more is an error or an attack."""
_MOST_CACHED = 2**19
"""CPUs and characters; a CPU of a set takes up to 100 bytes."""

_RANGE = re.compile(r"(\d{1,5})(?:-(\d{1,5})(?::(\d{1,5})/(\d{1,5}))?)?\Z", re.ASCII)
_HEX = re.compile(r"[0-9a-fA-F]+\Z")


class CpuListError(ValueError):
    """A text that is not a CPU list; the message is a sentence for the person who entered it."""


def parse_cpu_list(text: str) -> frozenset[int]:
    """Return the CPU numbers in a CPU list as the kernel prints it; none for an empty text.

    Accepts every form that the kernel prints or reads: ``3``, ``0-3,8``, strided groups ``0-15:2/4``.
    Raises CpuListError for anything else, with the part that is wrong, and for ranges that together name more than
    MAX_CPUS CPUs, since a CPU that is named again costs as much as another one.
    """
    return _parsed[text]


def check_cpu_list(text: str) -> int:
    """Return how many CPUs the ranges of a CPU list name together, without expanding it. Raises CpuListError."""
    return sum(last - first + 1 for first, last, _, _ in _ranges(text))


def shortest_cpu_list(text: str) -> str:
    """Return the shortest CPU list of the CPUs in another one. Raises CpuListError."""
    ranges = _ranges(text)
    if any(used < group for _, _, used, group in ranges):
        return format_cpu_list(_expanded(ranges))
    merged: list[list[int]] = []
    for first, last, _, _ in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1][1] = max(last, merged[-1][1])
        else:
            merged.append([first, last])
    return _joined(merged)


class _Cache(dict[str, frozenset[int]]):
    """The CPUs of texts: a node repeats the same few, but peers choose them, so their memory is bounded."""

    def __init__(self) -> None:
        super().__init__()
        self._used = 0

    def __missing__(self, text: str) -> frozenset[int]:
        cpus = _expanded(_ranges(text))
        self._used += (size := len(text) + len(cpus))
        if self._used > _MOST_CACHED:
            self.clear()
            self._used = size
        self[text] = cpus
        return cpus


_parsed = _Cache()


def _expanded(ranges: Iterable[tuple[int, int, int, int]]) -> frozenset[int]:
    cpus: set[int] = set()
    for first, last, used, group in ranges:
        if used == group:
            cpus.update(range(first, last + 1))
        else:
            cpus.update(cpu for cpu in range(first, last + 1) if (cpu - first) % group < used)
    return frozenset(cpus)


def _ranges(text: str) -> list[tuple[int, int, int, int]]:
    """Return the ranges of a CPU list: first, last, and how many CPUs of each group of how many."""
    text = text.strip()
    if not text:
        return []
    ranges: list[tuple[int, int, int, int]] = []
    left = MAX_CPUS
    for part in text.split(","):
        match = _RANGE.match(part.strip())
        if match is None:
            raise CpuListError(f"“{part.strip()[:40]}” is not a CPU or a range of CPUs; write for example 0-3,8.")
        one, to, some, of = match.groups()
        first = int(one)
        last = first if to is None else int(to)
        if last < first:
            raise CpuListError(f"The range {first}-{last} runs backwards; write {last}-{first}.")
        if last >= MAX_CPUS:
            raise CpuListError(f"CPU {last} is beyond the largest number Linux can have ({MAX_CPUS - 1}).")
        used, group = (1, 1) if some is None else (int(some), int(of))
        if not 0 < used <= group:
            raise CpuListError(f"The stride {used}/{group} in “{part.strip()}” must use 1 to {group} of each group.")
        left -= last - first + 1
        if left < 0:
            raise CpuListError(f"The ranges contain more than {MAX_CPUS} CPUs together; write each CPU once.")
        ranges.append((first, last, used, group))
    return ranges


def format_cpu_list(cpus: Iterable[int]) -> str:
    """Return the shortest CPU list of a set of CPUs: ``{0, 1, 2, 8}`` is ``0-2,8``."""
    ranges: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if ranges and cpu == ranges[-1][1] + 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    return _joined(ranges)


def _joined(ranges: Iterable[Sequence[int]]) -> str:
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
