"""Memory of cgroups, also by NUMA node: memory.numa_stat (Documentation/admin-guide/cgroup-v2.rst)."""

import re
import sys
from pathlib import Path

from coresteer_agent.collect.cgroups import VERSION_2
from coresteer_agent.collect.errors import ParseError
from coresteer_agent.collect.files import parse_cpu_number, read_bytes
from coresteer_agent.collect.process_identity import parse_cgroups
from coresteer_agent.collect.rows import parse_rows, split_lines, value_or_none

LEAST_SHARE = 0.9
"""Of a process's memory, what its cgroup must count as anonymous; also how far the counts of both must agree."""
_SIZES = re.compile(rb"^(RssAnon|RssFile|RssShmem|HugetlbPages):\s+(\d{1,15}) kB$", re.MULTILINE)
_KIB = 1024


def parse_numa_stat(text: bytes, path: str) -> dict[str, dict[int, int]]:
    """Parse a cgroup's memory.numa_stat, ``anon N0=4096 N1=0``, into bytes by node by name.

    Raises ParseError where no line can be parsed.
    """

    def parse(row: bytes, line: int) -> tuple[str, dict[int, int]]:
        name, *fields = row.split()
        if not fields:
            raise ParseError(path, line, "The line has no sizes.")
        sizes = {}
        for field in fields:
            node, equals, size = field.partition(b"=")
            if node[:1] != b"N" or not equals or not size.isdigit() or len(size) > 15:
                raise ParseError(path, line, f"“{field[:40].decode('ascii', 'replace')}” is not a node and a size.")
            sizes[parse_cpu_number(node[1:], path, line)] = int(size)
        return name.decode("ascii", "replace"), sizes

    lines, cut = split_lines(text)
    return dict(parse_rows(path, lines, parse, cut=cut))


def read_only_process_memory(root: Path, group: str, pid: int) -> dict[int, int] | None:
    """Return anonymous memory by NUMA node of a process that is the only one of its cgroup, without walking its pages.

    None unless the cgroup's count is the process's memory: pages charged elsewhere or left behind by an earlier
    process make the two differ, and huge, file and shared pages are not in it. group: its path.
    """
    if not group.strip("/"):
        return None
    folder = next((f"{each}{group}" for each in VERSION_2 if read_bytes(root, f"{each}{group}/memory.numa_stat")), None)
    if folder is None or (read_bytes(root, f"{folder}/cgroup.procs") or b"").split() != [str(pid).encode()]:
        return None
    if b"nr_descendants 0" not in (read_bytes(root, f"{folder}/cgroup.stat") or b"").split(b"\n"):
        return None
    path = f"{folder}/memory.numa_stat"
    sizes = (value_or_none(parse_numa_stat, read_bytes(root, path) or b"", path) or {}).get("anon", {})
    status = _SIZES.findall(read_bytes(root, f"proc/{pid}/status") or b"")
    its = {name: int(size) * _KIB for name, size in status}
    counted, anon, total = sum(sizes.values()), its.get(b"RssAnon", 0), sum(its.values())
    agree = min(counted, anon) >= LEAST_SHARE * max(counted, anon, total)
    return sizes if agree and counted else None


def read_headroom(root: Path) -> int:
    """Return how many bytes this process's cgroups may still use within their memory.max; sys.maxsize without one."""
    own = parse_cgroups((read_bytes(root, "proc/self/cgroup") or b"").decode("utf-8", "replace")).unified or "/"
    found = [sys.maxsize]
    for folder in [f"{mount}{group}" for mount in VERSION_2 for group in (own, *Path(own).parents)]:
        most, used = ((read_bytes(root, f"{folder}/memory.{name}") or b"").strip() for name in ("max", "current"))
        if most.isdigit() and used.isdigit():
            found.append(max(0, int(most) - int(used)))
    return min(found)
