"""Parser of the table of counters by row and CPU in /proc/interrupts and /proc/softirqs.

Kernel: fs/proc/softirqs.c, kernel/irq/proc.c show_interrupts(). A header names the CPUs of the columns. Each source has
one row: a label, a colon, one cell for each CPU, and for interrupts a description.
"""

from array import array
from collections import deque
from collections.abc import Iterator
from itertools import compress
from operator import ne

from coresteer_agent.collect.errors import ParseError
from coresteer_agent.collect.files import parse_cpu_number
from coresteer_agent.collect.rows import parse_rows
from coresteer_core.node.derive import Counters, CounterTable

_CELL = 11
"""Every cell is " %10u" or "%10u ": eleven bytes."""
_LABEL = 40
"""Upper bound of a row label's length: a number of ten digits, or a name such as TASKLET."""
_NO_COUNTERS = "\n"
"""Label, which no row has, of a row without a counter for each CPU: of ERR, and of one that cannot be parsed."""


def _line_spans(text: bytes | bytearray, start: int) -> Iterator[tuple[int, int]]:
    """Yield the offsets of each whole line from an offset on: of its first byte, and after its end."""
    while (end := text.find(b"\n", start) + 1) > 0:
        yield start, end
        start = end


class _Row:
    """Offsets of a row in the text: its start, its cells, the end of its cells and its end.

    column: the one whose counter moved last. Most interrupts arrive on one CPU, so it alone is likely to move again.
    """

    __slots__ = ("cells", "column", "end", "label", "start", "stop")

    def __init__(self, label: str, start: int, cells: int, stop: int, end: int) -> None:
        self.label = label
        self.start = start
        self.cells = cells
        self.stop = stop
        self.end = end
        self.column = 0


class CounterTableReader:
    """Parses the table repeatedly; only what changed since the previous call is parsed again.

    That is a cell of most rows that changed. Unchanged rows are the same object in the next table, so that
    coresteer_core.node.derive skips them by identity.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._text: bytes | bytearray = b""
        self._rows: list[_Row] = []
        self._table = CounterTable((), {})

    def parse(self, text: bytes | bytearray) -> CounterTable:
        """Parse the text of a counter table; the text must not change until the next call.

        Raises ParseError where the header, or every row, is wrong.
        """
        if text == self._text:
            self._text = text
            return self._table
        table = self._changed(text) or self._whole(text)
        self._text = text
        self._table = table
        return table

    def _changed(self, text: bytes | bytearray) -> CounterTable | None:
        """Return the previous table with new counters; None if the text has other rows or columns."""
        before = self._text
        rows = self._rows
        if len(text) != len(before) or not rows or text[: rows[0].start] != before[: rows[0].start]:
            return None
        counts = self._table.rows.copy()
        moved: dict[str, tuple[Counters, int]] = {}
        try:
            for row in rows:
                start, end = row.start, row.end
                if text[start:end] == before[start:end]:
                    continue
                was = counts[row.label]
                cell = row.cells + row.column * _CELL
                rest = cell + _CELL
                if text[start:cell] == before[start:cell] and text[rest:end] == before[rest:end]:
                    now = was[:]
                    now[row.column] = int(text[cell:rest])
                    moved[row.label] = was, row.column
                else:
                    cells, stop = row.cells, row.stop
                    if text[start:cells] != before[start:cells] or text[stop:end] != before[stop:end]:
                        return None
                    now = array("I", map(int, text[cells:stop].split()))
                    if len(now) != len(was):
                        return None
                    row.column = next(compress(range(len(now)), map(ne, was, now)), row.column)
                counts[row.label] = now
        except (KeyError, ValueError, OverflowError):  # KeyError: of a row without counters for each CPU, such as ERR
            return None
        return CounterTable(self._table.cpus, counts, moved)

    def _whole(self, text: bytes | bytearray) -> CounterTable:
        self._text = b""
        self._rows = []
        header = text.find(b"\n") + 1
        if not header:
            raise ParseError(self._path, 1, "The text ends in the middle of a line.")
        cpus = self._header(text[:header])
        counts: dict[str, Counters] = {}
        rows: list[_Row] = []

        def parse(span: tuple[int, int], line: int) -> None:
            start, end = span
            rows.append(_Row(_NO_COUNTERS, start, end, end, end))
            colon = text.find(b":", start, end)
            if colon < 0:
                raise ParseError(self._path, line, "There is no “:” after the name of the row.")
            label = text[start:colon].decode("ascii", "replace").strip()
            if len(label) > _LABEL:
                raise ParseError(self._path, line, f"The name of the row is longer than {_LABEL} characters.")
            values = self._cells(text[colon + 1 : end], len(cpus), line)
            if values is not None:
                counts[label] = values
                stop = colon + 1 + len(cpus) * _CELL
                rows[-1] = _Row(label, start, colon + 1, min(stop, end), end)

        spans = _line_spans(text, header)
        cut = not text.endswith(b"\n")
        deque(parse_rows(self._path, spans, parse, first=2, cut=cut), maxlen=0)
        # a row whose cells are not eleven bytes wide, or a cut one, disables the fast path for the whole table
        if not cut and all(self._is_fixed(text, row, counts) for row in rows):
            self._rows = rows
        return CounterTable(cpus, counts)

    def _header(self, text: bytes | bytearray) -> tuple[int, ...]:
        names = text.split()
        if not names or not all(name.startswith(b"CPU") for name in names):
            raise ParseError(self._path, 1, "The first line does not name the CPUs (CPU0 CPU1 …).")
        return tuple(parse_cpu_number(name[3:], self._path, 1) for name in names)

    def _cells(self, text: bytes | bytearray, columns: int, line: int) -> Counters | None:
        """Return a row's counters; None for a row such as ERR, which has one count for the whole machine."""
        parts = text.split(None, columns)
        if len(parts) == 1 and parts[0].isdigit() and columns > 1:
            return None
        values = array("I", map(int, parts[:columns]))
        if len(values) < columns:
            raise ParseError(self._path, line, f"The row has {len(values)} counters for {columns} CPUs.")
        return values

    @staticmethod
    def _is_fixed(text: bytes | bytearray, row: _Row, counts: dict[str, Counters]) -> bool:
        values = counts.get(row.label)
        if values is None:
            return True
        try:
            return list(values) == [int(text[cell : cell + _CELL]) for cell in range(row.cells, row.stop, _CELL)]
        except ValueError:
            return False
