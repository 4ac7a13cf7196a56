"""Parses /proc/net/softnet_stat: packets processed by each CPU (kernel: net/core/net-procfs.c softnet_seq_show())."""

from collections.abc import Iterable

from coresteer_agent.collect.errors import ParseError
from coresteer_agent.collect.files import parse_cpu_number
from coresteer_agent.collect.rows import parse_rows, split_lines
from coresteer_core.node.derive import SoftnetCounts

PATH = "proc/net/softnet_stat"

_CPU_FIELD = 12


def parse_softnet(text: bytes, online: Iterable[int]) -> dict[int, SoftnetCounts]:
    """Parse processed, dropped and time_squeeze by CPU; all are 32-bit counters that wrap.

    Lines are of the online CPUs in ascending order. Since 5.14 a line names its CPU in the 13th
    column; before, the n-th line is the n-th CPU of online. Raises ParseError where there are not as many lines as
    CPUs, because then none can be told.
    """
    order = sorted(online)
    lines, cut = split_lines(text)

    def parse(row: bytes, line: int) -> tuple[int, SoftnetCounts]:
        fields = row.split()
        if len(fields) < 3:
            raise ParseError(PATH, line, "The line has fewer than 3 counters.")
        if len(fields) > _CPU_FIELD:
            cpu = parse_cpu_number(fields[_CPU_FIELD], PATH, line, base=16)
        elif len(lines) != len(order):
            raise ParseError(PATH, line, f"There are {len(lines)} lines for {len(order)} online CPUs.")
        else:
            cpu = order[line - 1]
        return cpu, (int(fields[0], 16), int(fields[1], 16), int(fields[2], 16))

    counts = dict(parse_rows(PATH, lines, parse, cut=cut))
    if not counts:
        raise ParseError(PATH, 1, "There is no line that can be assigned to a CPU.")
    return counts
