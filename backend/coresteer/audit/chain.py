"""The hash chain over the audit log: its serialization, and what a broken one says about which entry.

The database appends links (migration 0022); this module recomputes them independently. A link hashes the entry's
number, id, time, action, node and result, the digests of actor, target and detail, and the previous link's hash. The
three may name people, so the digests are salted: when a user is deleted, text and salt are removed, the digest stays.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal, TypeAlias, get_args

import msgspec
from msgspec import Meta

_Field: TypeAlias = Literal["actor", "target", "detail"]
PERSONAL: tuple[str, ...] = get_args(_Field)
"""Fields of an entry that may name people."""

ANONYMIZE = "audit.anonymize"
"""Action of the entry that lists whose fields were anonymized."""

_BEFORE_FIRST = b""
_EPOCH = datetime.fromtimestamp(0, UTC)

_Ranges: TypeAlias = Annotated[str, Meta(pattern=r"^\{(\[\d{1,19},\d{1,19}\),?)*\}$")]
"""Text of an int8multirange."""

Salted: TypeAlias = tuple[bytes | None, bytes]  # salt, None once anonymized; digest


@dataclass(frozen=True)
class Entry:
    """An entry of the audit log. at_us: Unix time in µs; detail: JSON as the database prints it."""

    id: int
    at_us: int
    actor: str
    action: str
    target: str
    node_id: int | None
    result: str
    detail: str


@dataclass(frozen=True)
class Link:
    """A link of the chain. entry: None when the audit log has none with the link's entry_id."""

    number: int
    entry_id: int
    salted: Mapping[str, Salted]
    previous: bytes
    hash: bytes
    entry: Entry | None


@dataclass(frozen=True)
class Head:
    """Number and hash of the chain's last link, which the database stores next to it."""

    number: int
    hash: bytes


@dataclass(frozen=True)
class Finding:
    """An entry that was deleted, altered or added outside the chain. entry_id: None when that is unknown as well."""

    entry_id: int | None
    sentence: str


def link_hash(link: Link, entry: Entry) -> bytes:
    """Return the hash that the database stored for a link of this entry."""
    hashed = [link.number, entry.id, entry.at_us, entry.action, entry.node_id, entry.result]
    hashed += [link.salted[field][1].hex() for field in PERSONAL]
    hashed.append(link.previous.hex())
    return hashlib.sha256(json.dumps(hashed, ensure_ascii=False).encode()).digest()


def json_line(link: Link) -> str:
    """Return a link with its entry as one line of JSON; an entry that is missing has no fields but its id."""
    line: dict[str, object] = {"number": link.number, "id": link.entry_id}
    if (entry := link.entry) is not None:
        line["at"] = (_EPOCH + timedelta(microseconds=entry.at_us)).isoformat()
        line |= {"actor": entry.actor, "action": entry.action, "target": entry.target, "node_id": entry.node_id}
        line |= {"result": entry.result, "detail": json.loads(entry.detail)}
    line |= {"previous": link.previous.hex(), "hash": link.hash.hex()}
    return json.dumps(line, ensure_ascii=False)


@dataclass(frozen=True)
class Verified:
    """How many links a verified chain has, and from how many of their entries personal fields were removed."""

    links: int
    anonymized: int


class Verification:
    """Verifies the links of a chain, added in the order of their numbers. exported: hashes by number, written earlier.

    Entries of the audit log without a link are not among the links; see the repository's unchained().
    """

    def __init__(self, exported: Mapping[int, str] | None = None) -> None:
        self.number = 0
        self._hash = _BEFORE_FIRST
        self._exported = dict(exported or {})
        self._anonymized: list[tuple[str, Entry]] = []
        self._announced: list[tuple[str, int, int, str]] = []

    @property
    def anonymized(self) -> int:
        """Return from how many entries personal fields were removed."""
        return len({entry.id for _, entry in self._anonymized})

    def add(self, link: Link) -> Iterator[Finding]:
        """Yield what is wrong with the next link and its entry."""
        if link.number > self.number + 1:
            yield _missing(self.number + 1, link.number - 1)
        elif link.previous != self._hash:
            yield Finding(link.entry_id, f"The link of entry {link.entry_id} does not follow the one before it.")
        self.number, self._hash = link.number, link.hash
        if self._exported.pop(link.number, link.hash.hex()) != link.hash.hex():
            yield Finding(link.entry_id, f"Entry {link.entry_id} is not the one that was exported.")
        if link.entry is None:
            yield Finding(link.entry_id, f"Entry {link.entry_id} was deleted.")
            return
        if altered := _altered(link, link.entry):
            yield Finding(link.entry_id, f"Entry {link.entry_id} was altered: {altered}.")
        elif link.entry.action == ANONYMIZE:
            try:
                self._announced += _announced(link.entry)
            except msgspec.ValidationError:
                what = "is no anonymization that Coresteer recorded: it is forged"
                yield Finding(link.entry_id, f"Entry {link.entry_id} {what}.")
        self._anonymized += [(field, link.entry) for field in PERSONAL if link.salted[field][0] is None]

    def end(self, head: Head) -> Iterator[Finding]:
        """Yield what only the end of the chain shows: a missing end, and anonymized fields that no entry lists."""
        if head.number > self.number:
            yield _missing(self.number + 1, head.number)
        elif head != Head(self.number, self._hash):
            yield Finding(None, "The stored head of the chain is not its last link: the head was altered.")
        for number in sorted(number for number in self._exported if number > head.number):
            yield Finding(None, f"The entry with number {number} of the chain was exported and is not there any more.")
        for field, entry in self._anonymized:
            if not any(
                name == field and first <= entry.id < end and replacement == getattr(entry, field)
                for name, first, end, replacement in self._announced
            ):
                yield Finding(entry.id, f"Entry {entry.id} was altered: no anonymization lists its {field}.")


def _missing(first: int, last: int) -> Finding:
    what = f"The entry with number {first}" if first == last else f"The entries with numbers {first} to {last}"
    return Finding(None, f"{what} of the chain and the link are missing: deleted.")


def _altered(link: Link, entry: Entry) -> str:
    """Return which part of an entry is not what was hashed, empty if all is."""
    for field in PERSONAL:
        salt, digest = link.salted[field]
        if salt is not None and hashlib.sha256(salt + str(getattr(entry, field)).encode()).digest() != digest:
            return f"its {field} is not the one that was recorded"
    if link_hash(link, entry) != link.hash:
        return "its time, action, node, result or link is not the one that was recorded"
    return ""


def _announced(entry: Entry) -> Iterator[tuple[str, int, int, str]]:
    """Yield the fields that an anonymization lists: field, first id, id after the last, the text in its place.

    Raises ValidationError if Coresteer did not record it.
    """
    texts = {"actor": entry.target.removeprefix("user "), "target": entry.target, "detail": "{}"}
    for field, ranges in msgspec.json.decode(entry.detail, type=dict[_Field, _Ranges]).items():
        for first, end in re.findall(r"\[(\d+),(\d+)\)", ranges):
            yield field, int(first), int(end), texts[field]
