"""Parses /proc/stat: time of each online CPU by kind (kernel: fs/proc/stat.c)."""

from coresteer_agent.collect.errors import ParseError
from coresteer_agent.collect.files import parse_cpu_number
from coresteer_core.node.derive import CpuTimes

PATH = "proc/stat"

_FIELDS = 8
"""user nice system idle iowait irq softirq steal; guest times, which follow, are included in user and nice."""


def parse_stat(text: bytes) -> dict[int, CpuTimes]:
    """Parse each CPU's time by kind, in ticks since boot; steal is 0 on kernels before 2.6.11.

    Raises ParseError when a CPU's line is cut or invalid, or when there is none.
    """
    times: dict[int, CpuTimes] = {}
    position = 0
    line = 0
    while text.startswith(b"cpu", position):
        line += 1
        end = text.find(b"\n", position)
        if end < 0:
            raise ParseError(PATH, line, "The text ends in the middle of a line.")
        name, _, rest = text[position + 3 : end].partition(b" ")
        fields = rest.split()
        position = end + 1
        if not name:
            continue  # the sum over all CPUs
        cpu = parse_cpu_number(name, PATH, line)
        try:
            values = [int(field) for field in fields[:_FIELDS]]
        except ValueError:
            raise ParseError(PATH, line, "A time is not a number.") from None
        if len(values) < _FIELDS - 1:
            raise ParseError(PATH, line, f"The line has {len(values)} times; at least 7 were expected.")
        times[cpu] = tuple(values) if len(values) == _FIELDS else (*values, 0)
    if not times:
        raise ParseError(PATH, 1, "There is no line for any CPU.")
    return times
