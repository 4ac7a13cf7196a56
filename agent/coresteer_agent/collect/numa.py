"""Memory of NUMA nodes (kernel: drivers/base/node.c, Documentation/admin-guide/mm/numaperf.rst, numastat.rst)."""

from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from coresteer_agent.collect.errors import ParseError
from coresteer_agent.collect.files import DIGITS, list_numbered, read_bytes, read_non_negative
from coresteer_agent.collect.rows import parse_rows, split_lines, value_or_none
from coresteer_core.node.numa import NodeMemory

_NODES = "sys/devices/system/node"
_MEMINFO = {"MemTotal": "total_bytes", "MemFree": "free_bytes", "FilePages": "file_bytes", "AnonPages": "anon_bytes"}
_KIB, _MIB = 1024, 1 << 20
_PERFORMANCE = {
    "bandwidth_bytes_per_s": ("read_bandwidth", _MIB),
    "write_bandwidth_bytes_per_s": ("write_bandwidth", _MIB),
    "latency_ns": ("read_latency", 1),
    "write_latency_ns": ("write_latency", 1),
}
"""Fields of NodeMemory: file of the access class, and its unit (MiB/s and ns)."""


class Allocations(Struct, frozen=True):
    """Pages allocated on a node since boot, by CPUs of the node and of other nodes."""

    local: int
    remote: int


def parse_meminfo(text: bytes, path: str) -> dict[str, int]:
    """Parse ``Node 0 MemTotal: 1024 kB`` lines into the fields of NodeMemory.

    Raises ParseError where no line can be parsed.
    """

    def parse(row: bytes, line: int) -> tuple[str, int] | None:
        words = row.split()
        if len(words) < 4 or words[0] != b"Node":
            raise ParseError(path, line, "The line does not have the form “Node 0 MemTotal: 1024 kB”.")
        name = _MEMINFO.get(words[2].rstrip(b":").decode("ascii", "replace"))
        if name is None:
            return None
        if not words[3].isdigit() or len(words[3]) > 15:
            raise ParseError(path, line, f"“{words[3][:40].decode('ascii', 'replace')}” is not a number.")
        return name, int(words[3]) * _KIB

    lines, cut = split_lines(text)
    return dict(parse_rows(path, lines, parse, cut=cut))


def parse_numastat(text: bytes, path: str) -> Allocations:
    """Parse a node's numastat. Raises ParseError where local_node or other_node is absent."""
    values = {}
    for line in text.split(b"\n"):
        name, _, value = line.partition(b" ")
        if value.strip().isdigit() and len(value.strip()) <= DIGITS:
            values[name] = int(value)
    try:
        return Allocations(values[b"local_node"], values[b"other_node"])
    except KeyError as error:
        raise ParseError(path, None, f"It has no {error.args[0].decode()}.") from None


def read_node_memory(root: Path) -> list[NodeMemory]:
    """Return the memory of every NUMA node, without rates."""
    found = []
    for node in list_numbered(root, _NODES, "node"):
        path = f"{_NODES}/node{node}/meminfo"
        text = read_bytes(root, path)
        sizes = {} if text is None else value_or_none(parse_meminfo, text, path) or {}
        found.append(replace(read_performance(root, node), **sizes))
    return found


def read_performance(root: Path, node: int) -> NodeMemory:
    """Return bandwidth and latency of a node's memory from the firmware (HMAT), for its nearest CPUs; 0 is unknown."""
    found: dict[str, float | None] = {}
    for field, (name, unit) in _PERFORMANCE.items():
        value = read_non_negative(root, f"{_NODES}/node{node}/access0/initiators/{name}")
        found[field] = float(value * unit) if value else None
    return replace(NodeMemory(node), **found)


def read_allocations(root: Path) -> dict[int, Allocations]:
    """Return the allocations of every NUMA node that counts them."""
    found = {}
    for node in list_numbered(root, _NODES, "node"):
        path = f"{_NODES}/node{node}/numastat"
        text = read_bytes(root, path)
        if text is not None and (counts := value_or_none(parse_numastat, text, path)) is not None:
            found[node] = counts
    return found
