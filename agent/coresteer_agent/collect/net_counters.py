"""Parses counters by name: of the network stack from /proc/net/snmp and netstat, of memory from /proc/vmstat.

Kernel: net/ipv4/proc.c, mm/vmstat.c.
"""

from typing import NamedTuple

from coresteer_agent.collect.errors import ParseError
from coresteer_agent.collect.rows import parse_rows
from coresteer_core.metrics import COUNTER_SOURCES

PATHS = tuple(dict.fromkeys(source.path for source in COUNTER_SOURCES.values() if source.path))
"""The files that hold a counter."""


class _Place(NamedTuple):
    """Where a table or counter begins in the text. name: of the table, or of the field of a counter."""

    name: str
    prefix: bytes
    start: int


def _find(text: bytes, prefix: bytes, name: str) -> _Place | None:
    """Return the first line that begins with a prefix; None without one."""
    start = 0 if text.startswith(prefix) else text.find(b"\n" + prefix) + 1
    return _Place(name, prefix, start) if text.startswith(prefix, start) else None


def _value(text: bytes, row: _Place) -> int:
    """Return the counter of a line."""
    return int(text[row.start + len(row.prefix) : text.index(b"\n", row.start)])


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

        A table or line that is cut or invalid is dropped. Raises ParseError when all are, or when the file has none of
        the tables.
        """
        text = bytes(data)
        rows = [*filter(None, (_find(text, f"{table}: ".encode(), table) for table in self._tables))]
        if self._tables and not rows:
            raise ParseError(self._path, None, f"It has none of the tables {', '.join(self._tables)}.")
        rows += filter(None, (_find(text, name + b" ", field) for field, name in self._lines))

        def parse(row: _Place, _: int) -> dict[str, int]:
            try:
                return self._values(text, row) if row.name in self._tables else {row.name: _value(text, row)}
            except (ValueError, IndexError):
                line = text.count(b"\n", 0, row.start) + 1
                sentence = f"A value of {row.prefix.decode().strip()} is missing, cut or not a number."
                raise ParseError(self._path, line, sentence) from None

        return {name: value for found in parse_rows(self._path, rows, parse) for name, value in found.items()}

    def _values(self, text: bytes, row: _Place) -> dict[str, int]:
        """Return the values of a table: the line after its header, which begins alike."""
        end = text.index(b"\n", row.start)
        after = text.index(b"\n", end + 1)
        if not text.startswith(row.prefix, end + 1):
            raise ValueError
        values = text[end + 1 : after].split()
        return {field: int(values[place]) for field, place in self._places_of(row.name, text[row.start : end])}

    def _places_of(self, table: str, header: bytes) -> list[tuple[str, int]]:
        """Return counter names with their column in a table; cached, because headers do not change."""
        known, places = self._places.get(table, (b"", []))
        if header != known:
            names = header.split()
            places = [(field, names.index(name)) for field, name in self._tables[table] if name in names]
            self._places[table] = header, places
        return places
