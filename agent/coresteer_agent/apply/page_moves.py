"""Moves a process's own pages between NUMA nodes in steps (/proc/PID/pagemap, move_pages(2))."""

import errno
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from coresteer_agent.collect.files import read_bytes, read_file
from coresteer_agent.collect.numa_maps import NumaMaps, parse_numa_maps
from coresteer_agent.linux.move_pages import NOT_STORED, move_pages

_CALL_PAGES = 4096
"""Pages of one system call."""
_RETRY_PAGES = 64
"""Pages of one system call where the kernel ended a larger one early."""
_PAGEMAP_BYTES = 8
_MAX_MAPPING_BYTES = 1 << 40
"""A larger mapping is reserved address space; to look for its pages would take minutes."""
_PAGE = os.sysconf("SC_PAGE_SIZE")
STEP_CALLS = max(1, (256 << 20) // (_CALL_PAGES * _PAGE))
"""System calls between two pauses, for 256 MiB: some tenths of a second."""


def own_pages(root: Path, pid: int, maps: NumaMaps) -> Iterator[tuple[int, list[int]]]:
    """Yield addresses of present pages that only this process maps, at most 4096 at a time. Raises OSError.

    Before them comes the size of each, in pages of the kernel's usual size.
    """
    starts = frozenset(maps.starts)
    with (root / f"proc/{pid}/pagemap").open("rb", buffering=0) as pagemap:
        for begin, end in _mappings(root, pid):
            if begin not in starts or end - begin > _MAX_MAPPING_BYTES:
                continue
            # up to Linux 6.6 the kernel moves a page of hugetlbfs only by its first address (add_page_for_migration)
            size = max(1, maps.large_pages.get(begin, _PAGE) // _PAGE)
            for address in range(begin, end, max(_CALL_PAGES, size) * _PAGE):
                length = min(_CALL_PAGES, (end - address) // _PAGE)
                pagemap.seek(address // _PAGE * _PAGEMAP_BYTES)
                entries = pagemap.read(length * _PAGEMAP_BYTES)
                # bit 63 of each little-endian entry: the page is present
                present = entries[7 :: size * _PAGEMAP_BYTES]
                yield size, [address + at * size * _PAGE for at, byte in enumerate(present) if byte & 0x80]


def move_to_shares(root: Path, pid: int, shares: dict[int, float]) -> Iterator[Counter[int]]:
    """Move a process's own pages until they have these shares by node. Yields the failures of each step by errno.

    A page stays where it is while its node has not too many. Raises OSError or ParseError.
    """
    path = f"proc/{pid}/numa_maps"
    maps = parse_numa_maps(read_file(root, path), path)
    surplus = _surplus({node: size // _PAGE for node, size in maps.bytes_by_node.items()}, shares)
    calls = own_pages(root, pid, maps)
    while _most_missing(surplus) is not None and (step := _next_step(calls)):
        failed: Counter[int] = Counter()
        for size, addresses in step:
            failed.update(_move_surplus(pid, size, addresses, surplus))
        yield failed


def _next_step(calls: Iterator[tuple[int, list[int]]]) -> list[tuple[int, list[int]]]:
    """Return the next calls until they cover as many pages as STEP_CALLS full ones."""
    step, pages = list[tuple[int, list[int]]](), 0
    while pages < STEP_CALLS * _CALL_PAGES and (call := next(calls, None)) is not None:
        step.append(call)
        pages += max(call[0], _CALL_PAGES)
    return step


def _move_surplus(pid: int, size: int, addresses: list[int], surplus: dict[int, int]) -> list[int]:
    """Move pages from nodes that have too many; return the errno of each failure. Updates surplus.

    size: of each, in the unit of surplus. A page moves only if that leaves the nodes nearer to their shares.
    """
    moving: list[int] = []
    origins: list[int] = []
    targets: list[int] = []
    where = move_pages(pid, addresses, None) if addresses else []
    for address, node in zip(addresses, where, strict=True):
        too_many = surplus.get(node, 0)
        target = _most_missing(surplus) if too_many > 0 else None
        if target is not None and too_many - surplus[target] > size:
            surplus[node] -= size
            surplus[target] += size
            moving.append(address)
            origins.append(node)
            targets.append(target)
    status = move_pages(pid, moving, targets) if moving else []
    if NOT_STORED in status:
        status = _move_in_parts(pid, moving, targets)
    for origin, target, reached in zip(origins, targets, status, strict=True):
        if reached != target:  # another page moves instead
            surplus[origin] += size
            surplus[target] -= size
    return [-code for code in status if code < 0]


def _move_in_parts(pid: int, addresses: list[int], targets: list[int]) -> list[int]:
    """Move pages of which the kernel cannot move some, so that these do not keep the others; return as move_pages()."""
    status: list[int] = []
    for begin in range(0, len(addresses), _RETRY_PAGES):
        pages, nodes = addresses[begin : begin + _RETRY_PAGES], targets[begin : begin + _RETRY_PAGES]
        found = move_pages(pid, pages, nodes)
        if NOT_STORED in found:
            now = move_pages(pid, pages, None)
            found = [at if code == NOT_STORED else code for code, at in zip(found, now, strict=True)]
        status += found
    return status


def _surplus(now: dict[int, int], shares: dict[int, float]) -> dict[int, int]:
    """Return by node how many pages it has too many; negative where some are missing."""
    total = sum(now.values())
    nodes = now.keys() | shares.keys()
    return {node: now.get(node, 0) - round(shares.get(node, 0.0) * total) for node in nodes}


def _most_missing(surplus: dict[int, int]) -> int | None:
    node = min(surplus, key=lambda each: surplus[each], default=None)
    return node if node is not None and surplus[node] < 0 else None


def _mappings(root: Path, pid: int) -> Iterator[tuple[int, int]]:
    for line in filter(None, (read_bytes(root, f"proc/{pid}/maps") or b"").split(b"\n")):
        begin, _, end = line.partition(b" ")[0].partition(b"-")
        try:
            yield int(begin, 16), int(end, 16)
        except ValueError:
            raise OSError(errno.EIO, f"/proc/{pid}/maps cannot be parsed") from None
