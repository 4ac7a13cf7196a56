"""/proc/net/snmp: TCP segments sent and sent again, both address families together (kernel: net/ipv4/proc.c)."""

from coresteer_agent.collect.errors import ParseError
from coresteer_core.node.derive import TcpCounts

PATH = "proc/net/snmp"


def parse_snmp(text: bytes) -> TcpCounts:
    """Totals since boot. Raises ParseError when the Tcp lines are missing, cut or do not fit each other."""
    start = text.find(b"Tcp: ")
    line = text.count(b"\n", 0, max(start, 0)) + 1
    if start < 0:
        raise ParseError(PATH, None, "There is no line that begins with “Tcp:”.")
    rows = text[start:].split(b"\n", 2)
    if len(rows) < 3 or not rows[1].startswith(b"Tcp: "):
        raise ParseError(PATH, line, "The values of the Tcp counters are missing or cut.")
    values = dict(zip(rows[0].split(), rows[1].split(), strict=False))
    try:
        return TcpCounts(int(values[b"OutSegs"]), int(values[b"RetransSegs"]))
    except (KeyError, ValueError):
        raise ParseError(PATH, line + 1, "OutSegs or RetransSegs is missing or not a number.") from None
