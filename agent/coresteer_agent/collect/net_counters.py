"""Parses counters by name: of the network stack from /proc/net/snmp and netstat, of memory from /proc/vmstat.

Kernel: net/ipv4/proc.c, mm/vmstat.c.
"""

from coresteer_agent.collect.errors import ParseError
from coresteer_core.metrics import COUNTER_SOURCES

PATHS = tuple(dict.fromkeys(source.path for source in COUNTER_SOURCES.values()))
"""The files that hold a counter."""


class NetCountersParser:
    """Parses those counters of one file that coresteer_core.metrics.COUNTER_SOURCES declares."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._tables: dict[str, list[tuple[str, bytes]]] = {}
        self._lines: list[tuple[str, bytes]] = []
        for field, source in COUNTER_SOURCES.items():
            if source.path == path and not source.table:
                self._lines.append((field, source.column.encode()))
            elif source.path == path:
                self._tables.setdefault(source.table, []).append((field, source.column.encode()))
        self._places: dict[str, tuple[bytes, list[tuple[str, int]]]] = {}

    def parse(self, data: bytes | bytearray) -> dict[str, int]:
        """Return totals since boot by counter name, without the tables and columns that this kernel does not have.

        Raises ParseError when the file has none of the tables, or a table's values are missing, cut or do not fit its
        header; without tables when a counter's line is cut.
        """
        text = bytes(data)
        found = self._parse_lines(text)
        tables = 0
        for table in self._tables:
            prefix = f"{table}: ".encode()
            start = 0 if text.startswith(prefix) else text.find(b"\n" + prefix) + 1
            if not text.startswith(prefix, start):
                continue
            tables += 1
            line = text.count(b"\n", 0, start) + 1
            end = text.find(b"\n", start)
            after = text.find(b"\n", end + 1)
            if min(end, after) < 0 or not text.startswith(prefix, end + 1):
                raise ParseError(self._path, line, f"The values of the {table} counters are missing or cut.")
            values = text[end + 1 : after].split()
            try:
                for field, place in self._places_of(table, text[start:end]):
                    found[field] = int(values[place])
            except (IndexError, ValueError):
                raise ParseError(self._path, line + 1, f"A {table} counter is missing or not a number.") from None
        if self._tables and not tables:
            raise ParseError(self._path, None, f"It has none of the tables {', '.join(self._tables)}.")
        return found

    def _parse_lines(self, text: bytes) -> dict[str, int]:
        found: dict[str, int] = {}
        for field, name in self._lines:
            start = 0 if text.startswith(name + b" ") else text.find(b"\n" + name + b" ") + 1
            if not text.startswith(name + b" ", start):
                continue
            end = text.find(b"\n", start)
            value = text[start + len(name) + 1 : end]
            if end < 0 or not value.isdigit():
                line = text.count(b"\n", 0, start) + 1
                raise ParseError(self._path, line, f"The counter {name.decode()} is cut or not a number.")
            found[field] = int(value)
        return found

    def _places_of(self, table: str, header: bytes) -> list[tuple[str, int]]:
        """Return counter names with their column in a table; cached, because headers do not change."""
        known, places = self._places.get(table, (b"", []))
        if header != known:
            names = header.split()
            places = [(field, names.index(name)) for field, name in self._tables[table] if name in names]
            self._places[table] = header, places
        return places
