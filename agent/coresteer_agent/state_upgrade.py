"""Upgrades files in the agent's state directory that an earlier version wrote.

Format 1 is that of commit 602788d; format 2 has the terms of docs/GLOSSARY.md; in format 3 the journal's lines carry
checksums and it has a copy (apply.journal_copies). A file states its format; it is read through upgrade() and has the
current format from its next write on.
"""

import logging

import msgspec
from msgspec import Struct

log = logging.getLogger("coresteer.state")

FORMAT = 3
"""Format of journal.jsonl, policies.json and nics.json that this version writes."""

RENAMED_KEYS = {
    "lent": "delegated",
    "keep_after_s": "confirm_after_s",
    "keep_at": "confirm_at",
    "stands": "current",
    "wants": "target",
    "judged": "expects_gain",
    "kept": "state",
    "returned": "restored",
}
"""Object keys by their name in format 1."""

RENAMED_KEYS_BELOW = {
    "change": {"seen": "acknowledged", "returns": "restores"},
    "damping": {"window_s": "min_revert_s"},
    "spec": {"rings": "max_distance"},
    "memory": {"left": "recent_values", "swings": "flaps"},
    "drivers": {"tried": "responses"},
    "responses": {"asked": "requested", "stood": "read_back", "words": "message"},
}
"""Keys of the object, or of the objects in the list, at this key (new name) only, by their name in format 1."""

RENAMED_VALUES = {
    "change_id": {"lent": "delegated"},
    "on_controller": {"take_over": "reassert"},
    "on_drift": {"take_over": "reassert"},
    "response": {"take_over": "reassert"},
    "adaptive": {"take_over": "disable"},
    "verdict": {"taken": "accepted"},
}
"""Strings by their value in format 1, for the object keys (new names) that hold them."""


def upgrade(text: bytes, written_format: int) -> bytes:
    """Return a state file's JSON with the current names. Raises msgspec.DecodeError for invalid JSON."""
    return text if written_format >= 2 else msgspec.json.encode(_renamed(msgspec.json.decode(text)))


class _FirstLine(Struct, tag="journal"):
    format: int = 1


def upgrade_journal(data: bytes) -> list[bytes] | None:
    """Return the records of a journal without checksums, with the current names; None if data is no such journal."""
    first, *lines = data.split(b"\n")
    try:
        written_format = msgspec.json.decode(first, type=_FirstLine).format
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    found = [first]
    for line in filter(None, lines):
        try:
            found.append(upgrade(line, written_format))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            # torn by a crash before its fsync: nothing was written to the kernel because of it
            log.warning("The journal has an incomplete line of %d bytes, which is ignored.", len(line))
    return found


def _renamed(value: object, parent: str = "") -> object:
    if isinstance(value, list):
        return [_renamed(item, parent) for item in value]
    if not isinstance(value, dict):
        return value
    found: dict[str, object] = {}
    keys = RENAMED_KEYS | RENAMED_KEYS_BELOW.get(parent, {})
    for key, item in value.items():
        name = keys.get(str(key), str(key))
        found[name] = RENAMED_VALUES.get(name, {}).get(item, item) if isinstance(item, str) else _renamed(item, name)
    return found
