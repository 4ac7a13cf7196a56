"""Parses /proc/stat: time of each online CPU by kind (kernel: fs/proc/stat.c)."""

from coresteer_agent.collect.errors import ParseError
from coresteer_agent.collect.files import parse_cpu_number
from coresteer_agent.collect.rows import parse_rows, split_lines
from coresteer_core.node.derive import CpuTimes

PATH = "proc/stat"

_FIELDS = 8
"""user nice system idle iowait irq softirq steal; guest times, which follow, are included in user and nice."""
_REST = b"\nintr "
"""Begins the line after those of the CPUs, which is long on large machines."""


def parse_stat(text: bytes) -> dict[int, CpuTimes]:
    """Parse each CPU's time by kind, in ticks since boot; steal is 0 on kernels before 2.6.11.

    Raises ParseError when there is no line of a CPU.
    """
    end = text.find(_REST)
    if end < 0:  # in a captured tree without it
        end = text.find(b"\n", text.rfind(b"\ncpu") + 1)
    lines, cut = split_lines(text if end < 0 else text[: end + 1])
    first = int(text.startswith(b"cpu "))  # the sum over all CPUs
    times = dict(parse_rows(PATH, lines[first:], _parse_times, first=first + 1, cut=cut))
    if not times:
        raise ParseError(PATH, 1, "There is no line for any CPU.")
    return times


def _parse_times(text: bytes, line: int) -> tuple[int, CpuTimes]:
    name, *fields = text.split(None, _FIELDS + 1)
    if not name.startswith(b"cpu"):
        raise ParseError(PATH, line, "The line does not begin with the name of a CPU.")
    cpu = parse_cpu_number(name[3:], PATH, line)
    values = tuple(map(int, fields[:_FIELDS]))
    if len(values) < _FIELDS - 1:
        raise ParseError(PATH, line, f"The line has {len(values)} times; at least 7 were expected.")
    return cpu, values if len(values) == _FIELDS else (*values, 0)
