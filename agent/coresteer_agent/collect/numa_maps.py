"""Memory of a process by NUMA node: /proc/PID/numa_maps (kernel: fs/proc/task_mmu.c, numa(7)).

A read walks the page tables of the process: about 10 ms per GiB of 4 KiB pages.
"""

from typing import NamedTuple

from msgspec import Struct

from coresteer_agent.collect.errors import ParseError
from coresteer_agent.collect.files import parse_cpu_number
from coresteer_agent.collect.rows import parse_rows, split_lines

_DEFAULT = "default"
_DOMINANT = 0.5
_ADDRESS_DIGITS = 16
_PAGE_BYTES = 4096


class NumaMaps(Struct, frozen=True):
    """bytes_by_node: pages that only this process maps. shared_bytes: all others.

    mempolicy: of most of its memory, None for the kernel's default. starts: addresses of mappings with own pages.
    large_pages: by address, the page size in bytes of those whose pages are larger than 4 KiB, as with hugetlbfs.
    """

    bytes_by_node: dict[int, int]
    shared_bytes: int
    mempolicy: str | None
    starts: list[int] = []
    large_pages: dict[int, int] = {}


class _Mapping(NamedTuple):
    start: int
    policy: bytes
    pages: dict[int, int]
    page_bytes: int
    is_shared: bool


def parse_numa_maps(text: bytes, path: str) -> NumaMaps:
    """Parse a numa_maps file. Raises ParseError where no line has its format.

    Names of files are skipped: they may contain anything but spaces and newlines, which the kernel escapes.
    """
    own: dict[int, int] = {}
    by_policy: dict[str, int] = {}
    shared, starts, large_pages = 0, list[int](), dict[int, int]()

    def parse(row: bytes, line: int) -> _Mapping:
        fields = row.split()
        if len(fields) < 2:
            raise ParseError(path, line, "The line has no memory policy.")
        if len(fields[0]) > _ADDRESS_DIGITS:
            raise ParseError(path, line, "The line does not begin with an address.")
        return _Mapping(int(fields[0], 16), fields[1], *_pages(fields[2:], path, line))

    lines, cut = split_lines(text)
    for start, mempolicy, pages, page_bytes, is_shared in parse_rows(path, lines, parse, cut=cut):
        total = sum(pages.values()) * page_bytes
        if not total:
            continue
        policy = mempolicy.decode("ascii", "replace")
        by_policy[policy] = by_policy.get(policy, 0) + total
        if is_shared:
            shared += total
            continue
        starts.append(start)
        if page_bytes > _PAGE_BYTES:
            large_pages[start] = page_bytes
        for node, count in pages.items():
            own[node] = own.get(node, 0) + count * page_bytes
    most = max(by_policy, key=lambda policy: by_policy[policy], default=_DEFAULT)
    dominant = by_policy.get(most, 0) > _DOMINANT * sum(by_policy.values())
    return NumaMaps(own, shared, most if dominant and most != _DEFAULT else None, starts, large_pages)


def _pages(fields: list[bytes], path: str, line: int) -> tuple[dict[int, int], int, bool]:
    """Return the pages by node, the size of a page in bytes, and whether another process maps one of them."""
    pages: dict[int, int] = {}
    page_bytes, shared = _PAGE_BYTES, False
    for field in fields:
        name, _, value = field.partition(b"=")
        if name[:1] == b"N" and name[1:].isdigit() and value.isdigit() and len(value) <= 15:
            pages[parse_cpu_number(name[1:], path, line)] = int(value)
        elif name == b"kernelpagesize_kB" and value.isdigit() and len(value) <= 9:
            page_bytes = int(value) * 1024
        elif name == b"mapmax":
            shared = True
    return pages, page_bytes, shared
