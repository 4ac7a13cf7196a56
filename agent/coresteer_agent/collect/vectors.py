"""Reads how many interrupt vectors of each CPU are free (x86; kernel: kernel/irq/matrix.c irq_matrix_debug_show()).

Only a kernel with CONFIG_GENERIC_IRQ_DEBUGFS shows it, to root, where debugfs is mounted.
"""

from pathlib import Path

from coresteer_agent.collect.files import parse_cpu_number, read_bytes
from coresteer_agent.collect.rows import parse_rows, split_lines, value_or_none
from coresteer_core.node.inventory import FreeVectors

PATH = "sys/kernel/debug/irq/domains/VECTOR"
_HEADER = b" | CPU "


def parse_free_vectors(text: bytes) -> list[FreeVectors]:
    """Parse the number of free vectors of the CPUs that are online. Empty without the table of CPUs."""
    lines, cut = split_lines(text)
    first = next((number for number, line in enumerate(lines, 1) if line.startswith(_HEADER)), len(lines))
    return list(parse_rows(PATH, lines[first:], _parse_cpu, first=first + 1, cut=cut))


def _parse_cpu(text: bytes, line: int) -> FreeVectors | None:
    fields = text.split()
    return FreeVectors(parse_cpu_number(fields[0], PATH, line), int(fields[1][:9])) if fields else None


def read_free_vectors(root: Path) -> list[FreeVectors]:
    """Read the number of free vectors of each CPU below root; empty where the kernel does not show them."""
    return value_or_none(parse_free_vectors, read_bytes(root, PATH) or b"") or []
