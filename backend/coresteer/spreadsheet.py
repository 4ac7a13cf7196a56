"""CSV that is safe to open in a spreadsheet."""

import csv
import io
from collections.abc import Iterable, Sequence

Cell = str | int | float | None

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def csv_lines(rows: Iterable[Sequence[Cell]]) -> bytes:
    """Return rows as CSV in UTF-8; absent values are empty.

    A text that a spreadsheet would interpret as a formula is prefixed with an apostrophe (OWASP, CSV Injection).
    """
    file = io.StringIO(newline="")
    csv.writer(file).writerows([_safe(cell) for cell in row] for row in rows)
    return file.getvalue().encode()


def _safe(cell: Cell) -> Cell:
    return f"'{cell}" if isinstance(cell, str) and cell.lstrip(" \n").startswith(_FORMULA) else cell
