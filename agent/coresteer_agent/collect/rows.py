"""What becomes of a row or value of a kernel file that cannot be parsed: it alone is dropped, counted and reported.

Every parser passes its rows through parse_rows(), and every reader of single values through value_or_none(), so none
has to decide this for itself. What was dropped is logged once and is part of the inventory, where the node's page shows
it (dropped_rows()).
"""

import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from msgspec import Struct

from coresteer_agent.collect.errors import ParseError

_log = logging.getLogger(__name__)

Row = TypeVar("Row")
T = TypeVar("T")

MAX_FILES = 32
"""Files with a dropped row that are remembered; a kernel whose format is new may have one for each interrupt."""
_FORGET_S = 600.0
"""When a value is forgotten that is not read regularly, so that nothing tells that it is whole again."""
_LONGEST = 200
_UNPARSED = "It cannot be parsed."
_CUT = "The text ends in the middle of a line."
_INVALID = "A field is missing, or is not a number in its range."
_NUMBER = re.compile(r"(?<=/)\d+(?=/)", re.ASCII)


class _Dropped(Struct, frozen=True):
    sentence: str
    until_s: float


_dropped: dict[str, _Dropped] = {}


def parse_rows(
    path: str, rows: Iterable[Row], parse: Callable[[Row, int], T | None], *, first: int = 1, cut: bool = False
) -> Iterator[T]:
    """Yield what parse(row, line) returns for each row, without None and without the rows that it cannot parse.

    parse: raises ParseError, or ValueError, IndexError or OverflowError as int() and sequences do. first: line number
    of the first row. cut: the file ends in the middle of a row, which is not among the rows. Raises the first
    ParseError where no row can be parsed: then the file's figures are unknown, and not none.
    """
    count, error, line = 0, None, first - 1
    for line, row in enumerate(rows, first):
        try:
            found = parse(row, line)
        except (ValueError, IndexError, OverflowError) as raised:
            count += 1
            error = error or (raised if isinstance(raised, ParseError) else ParseError(path, line, _INVALID))
            continue
        if found is not None:
            yield found
    if cut:
        count += 1
        error = error or ParseError(path, line + 1, _CUT)
    if error is not None and count > line - first + cut:
        raise error
    if error is not None:
        _report("1 row is dropped." if count == 1 else f"{count} rows are dropped.", error, path)
    elif path in _dropped:
        del _dropped[path]


def split_lines(text: bytes) -> tuple[list[bytes], bool]:
    """Return the whole lines of a text, and whether a cut one follows, whose last number may have lost digits."""
    lines = text.split(b"\n")
    return lines, bool(lines.pop())


def value_or_none(read: Callable[..., T], *args: object) -> T | None:
    """Return read(*args), the value of a file or the one record in it; None if it cannot be parsed."""
    try:
        return read(*args)
    except ParseError as error:
        report_unknown(error)
        return None


def report_unknown(error: ParseError) -> None:
    """Report a file of which nothing can be parsed."""
    _report(_UNPARSED, error, error.path)


def dropped_rows() -> dict[str, str]:
    """Return a sentence on the rows that were dropped at the last read of a file, by path; a number stands for many."""
    now_s = time.monotonic()
    for path in [path for path, dropped in _dropped.items() if now_s >= dropped.until_s]:
        del _dropped[path]
    return {path: dropped.sentence for path, dropped in sorted(_dropped.items())}


def forget_dropped_rows() -> None:
    """Forget all reports, as at the start of the agent."""
    _dropped.clear()


def _report(what: str, error: ParseError, path: str) -> None:
    """Report dropped rows; files that differ by a number, as those of processes do, are one."""
    key = _printable(_NUMBER.sub("*", path))
    sentence = _printable(f"{what}{'' if error.line is None else f' Line {error.line}:'} {error.sentence}")
    if key not in _dropped:
        if len(_dropped) >= MAX_FILES:
            return
        _log.warning("%s: %s", path, sentence)
    read_again = what != _UNPARSED and key == path
    _dropped[key] = _Dropped(sentence, float("inf") if read_again else time.monotonic() + _FORGET_S)


def _printable(text: str) -> str:
    cut = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
    return cut if cut.isprintable() else "".join(c if c.isprintable() else "?" for c in cut)
