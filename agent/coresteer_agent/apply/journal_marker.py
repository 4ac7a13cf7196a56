"""control.json beside the node's key: in which boot a journal was begun, so that its loss is noticed."""

from pathlib import Path

import msgspec
from msgspec import Struct

from coresteer_agent.linux.atomic_file import replace_file


class Marker(Struct, frozen=True):
    """In this boot, a journal was begun for this root directory."""

    boot_id: str
    root: str


def marker_path(journal: Path) -> Path:
    """Return the path of the marker of a journal."""
    return journal.with_name("control.json")


def read_marker(journal: Path) -> Marker | None:
    """Return the marker of a journal; None without a readable one."""
    try:
        return msgspec.json.decode(marker_path(journal).read_bytes(), type=Marker)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def mark(journal: Path, marker: Marker) -> None:
    """Write the marker of a journal, unless it is there. Raises OSError."""
    if read_marker(journal) != marker:
        replace_file(marker_path(journal), msgspec.json.encode(marker))
