"""Moves a process's own pages between NUMA nodes in steps (/proc/PID/pagemap, move_pages(2))."""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from coresteer_agent.collect.files import read_bytes, read_file
from coresteer_agent.collect.numa_maps import parse_numa_maps
from coresteer_agent.linux.move_pages import move_pages

_STEP_PAGES = 4096
"""Pages of one call: 16 MiB, some milliseconds."""
_PAGEMAP_BYTES = 8
_MAX_MAPPING_BYTES = 1 << 40
"""A larger mapping is reserved address space; to look for its pages would take minutes."""
_PAGE = os.sysconf("SC_PAGE_SIZE")


def own_pages(root: Path, pid: int) -> Iterator[list[int]]:
    """Yield addresses of present pages that only this process maps, in steps. Raises OSError or ParseError."""
    path = f"proc/{pid}/numa_maps"
    starts = set(parse_numa_maps(read_file(root, path), path).starts)
    with (root / f"proc/{pid}/pagemap").open("rb", buffering=0) as pagemap:
        for begin, end in _mappings(root, pid):
            if begin not in starts or end - begin > _MAX_MAPPING_BYTES:
                continue
            for address in range(begin, end, _STEP_PAGES * _PAGE):
                length = min(_STEP_PAGES, (end - address) // _PAGE)
                pagemap.seek(address // _PAGE * _PAGEMAP_BYTES)
                entries = pagemap.read(length * _PAGEMAP_BYTES)
                # bit 63 of each little-endian entry: the page is present
                present = [address + at * _PAGE for at, byte in enumerate(entries[7::8]) if byte & 0x80]
                if present:
                    yield present


def move_to_shares(root: Path, pid: int, shares: dict[int, float]) -> Counter[int]:
    """Move a process's own pages until they have these shares by node. Returns failures by errno.

    A page stays where it is while its node has not too many. Raises OSError or ParseError.
    """
    steps = list(own_pages(root, pid))
    where = [move_pages(pid, step, None) for step in steps]
    now = Counter(node for nodes in where for node in nodes if node >= 0)
    surplus = _surplus(now, shares)
    failed: Counter[int] = Counter()
    for addresses, nodes in zip(steps, where, strict=True):
        moving: list[int] = []
        targets: list[int] = []
        for address, node in zip(addresses, nodes, strict=True):
            if node >= 0 and surplus.get(node, 0) > 0 and (target := _most_missing(surplus)) is not None:
                surplus[node] -= 1
                surplus[target] += 1
                moving.append(address)
                targets.append(target)
        if moving:
            status = move_pages(pid, moving, targets)
            failed.update(-code for code in status if code < 0)
    return failed


def _surplus(now: Counter[int], shares: dict[int, float]) -> dict[int, int]:
    """Return by node how many pages it has too many; negative where some are missing."""
    total = sum(now.values())
    nodes = now.keys() | shares.keys()
    return {node: now.get(node, 0) - round(shares.get(node, 0.0) * total) for node in nodes}


def _most_missing(surplus: dict[int, int]) -> int | None:
    node = min(surplus, key=lambda each: surplus[each])
    return node if surplus[node] < 0 else None


def _mappings(root: Path, pid: int) -> Iterator[tuple[int, int]]:
    for line in (read_bytes(root, f"proc/{pid}/maps") or b"").splitlines():
        begin, _, end = line.partition(b" ")[0].partition(b"-")
        yield int(begin, 16), int(end, 16)
