"""Stored outputs that must stay as they are: compared by tests, written anew by ``python -m tests.golden.write``.

A stored output is a text file below tests/fixtures/golden, laid out so that a diff of it is readable.
"""

import difflib
import json
import os
from collections.abc import Iterable
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "fixtures/golden"
WRITE = "CORESTEER_WRITE_GOLDEN"
"""With this environment variable set, outputs are stored and not compared."""
_SHOWN_LINES = 60


def row(values: Iterable[object]) -> str:
    """Numbers of a column on one line."""
    return " ".join("-" if value is None else str(value) for value in values)


def check(name: str, value: object, *, ordered: bool = False) -> None:
    """Fail with a diff unless value, as JSON, is what is stored under that name. ordered: keys are not sorted."""
    path = FOLDER / f"{name}.json"
    text = json.dumps(value, indent=1, sort_keys=not ordered, ensure_ascii=False) + "\n"
    if os.environ.get(WRITE):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return
    stored = path.read_text(encoding="utf-8") if path.exists() else ""
    if text == stored:
        return
    lines = list(difflib.unified_diff(stored.splitlines(), text.splitlines(), "stored", "now", n=2, lineterm=""))
    more = len(lines) - _SHOWN_LINES
    shown = "\n".join(lines[:_SHOWN_LINES]) + (f"\n… and {more} lines more" if more > 0 else "")
    pytest.fail(
        f"{path.name} is not what is stored. If the difference is meant, run "
        f"“python -m tests.golden.write” and commit it.\n{shown}",
        pytrace=False,
    )
