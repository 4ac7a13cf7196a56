"""Parses /proc/net/softnet_stat: packets processed by each CPU (kernel: net/core/net-procfs.c softnet_seq_show())."""

from collections.abc import Iterable

from coresteer_agent.collect.errors import ParseError
from coresteer_agent.collect.files import parse_cpu_number
from coresteer_core.node.derive import SoftnetCounts

PATH = "proc/net/softnet_stat"

_CPU_FIELD = 12


def parse_softnet(text: bytes, online: Iterable[int]) -> dict[int, SoftnetCounts]:
    """Parse processed, dropped and time_squeeze by CPU; all are 32-bit counters that wrap.

    Lines are of the online CPUs in ascending order. Since 5.14 a line names its CPU in the 13th
    column; before, the n-th line is the n-th CPU of online. Raises ParseError for a line that is cut.
    """
    counts: dict[int, SoftnetCounts] = {}
    order = sorted(online)
    lines = text.split(b"\n")
    if lines.pop():
        raise ParseError(PATH, len(lines) + 1, "The text ends in the middle of a line.")
    for index, line in enumerate(lines):
        fields = line.split()
        try:
            named = len(fields) > _CPU_FIELD
            cpu = parse_cpu_number(fields[_CPU_FIELD], PATH, index + 1, base=16) if named else order[index]
            counts[cpu] = (int(fields[0], 16), int(fields[1], 16), int(fields[2], 16))
        except ParseError:
            raise
        except ValueError:
            raise ParseError(PATH, index + 1, "A counter is not a hexadecimal number.") from None
        except IndexError:
            what = "has fewer than 3 counters" if len(fields) < 3 else "stands for no online CPU"
            raise ParseError(PATH, index + 1, f"The line {what}.") from None
    return counts
