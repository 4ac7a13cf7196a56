"""How commands print what the API answers: as JSON, YAML or a table."""

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from typing import Any, Literal  # Any: an answer is JSON of any shape

from coresteer.cli.gitops.yaml_files import write

Format = Literal["json", "yaml", "table"]
_FIRST = ("id", "name", "username", "state", "sentence")
_GAP = "  "
_MAX_CELL = 60
_MAX_ROWS = 20
_CONTROLS = re.compile("[\x7f-\x9f]")
"""Control characters that JSON may hold as they are."""


def printable(text: str) -> str:
    """Return the text without control characters: names come from nodes, and terminals obey escape sequences."""
    return "".join(each if each.isprintable() else "�" for each in text)


def rendered(answer: Any, form: Format) -> str:  # noqa: ANN401 - JSON
    """Return the text of an answer; a table shows the plain values of each row that fit on the terminal."""
    if form == "json":
        return _CONTROLS.sub(lambda one: f"\\u{ord(one[0]):04x}", json.dumps(answer, indent=2, ensure_ascii=False))
    if form == "yaml":
        return write([answer]).rstrip("\n")
    if isinstance(answer, list) and not answer:
        return "none"
    if isinstance(answer, Mapping):
        return _object(answer)
    if isinstance(answer, list) and isinstance(answer[0], Mapping):
        return _table(answer)
    return "\n".join(map(_cell, answer)) if isinstance(answer, list) else _cell(answer)


def _object(answer: Mapping[str, Any]) -> str:
    """Return the plain values of an object, and below them its lists of objects, of which it shows the first rows."""
    lists = {name: rows for name, rows in answer.items() if isinstance(rows, list) and rows and _is_nested(rows)}
    if len(lists) == 1 and len(answer) <= 3:  # a page: its rows and where the next one begins
        return _table(next(iter(lists.values())))
    plain = _plain(answer)
    width = max(map(len, plain), default=0)
    parts = ["\n".join(f"{name:<{width}}{_GAP}{cell}" for name, cell in plain.items())]
    for name, rows in lists.items():
        more = f"\n{len(rows) - _MAX_ROWS} more, see -o json" if len(rows) > _MAX_ROWS else ""
        parts.append(f"{name.upper()}\n{_table(rows[:_MAX_ROWS])}{more}")
    return "\n\n".join(parts)


def _plain(row: Mapping[str, Any]) -> dict[str, str]:
    """Return the values of a row that are neither lists nor objects, and lists of plain values."""
    named = sorted(row, key=lambda name: _FIRST.index(name) if name in _FIRST else len(_FIRST))
    return {name: _cell(row[name]) for name in named if not _is_nested(row[name])}


def _is_nested(value: object) -> bool:
    return isinstance(value, Mapping) or (isinstance(value, list) and any(isinstance(one, Mapping) for one in value))


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ",".join(map(_cell, value))
    return f"{value:.6g}" if isinstance(value, float) else printable(" ".join(str(value).split()))


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows below each other; the columns are those of the first row, as many as the terminal has room for."""
    cells = [_plain(row) for row in rows]
    left = shutil.get_terminal_size((120, 24)).columns
    lines = [""] * (1 + len(rows))
    for name in cells[0]:
        column = [name.upper(), *(row.get(name, "-")[:_MAX_CELL] for row in cells)]
        width = max(map(len, column))
        if lines[0] and width > left:
            break
        left -= width + len(_GAP)
        lines = [f"{line}{cell:<{width}}{_GAP}" for line, cell in zip(lines, column, strict=True)]
    return "\n".join(line.rstrip() for line in lines)
