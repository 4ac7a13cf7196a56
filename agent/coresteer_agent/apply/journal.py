"""Journal of the original values of changed settings and of the changes in progress; survives kill -9 and damage.

JSON lines with checksums, appended and fsynced before the kernel is written to, in two copies (journal_copies). Every
operation holds a lock on a file beside them, so ``coresteer-agent restore`` works while an agent runs. A folder that
disappears is recreated from the process's memory. A reboot voids all originals, as it restored every setting. The last
file of an earlier boot is retained for people as journal.previous.jsonl.

control.json beside the node's key says in which boot a journal was begun. Without a whole copy, in that boot or in an
unknown one, original values are lost: LostJournalError. The agent then changes nothing until an operator accepts that.
"""

import errno
import fcntl
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from coresteer_agent.apply.journal_copies import Content, Copies, DamagedError
from coresteer_agent.apply.journal_marker import Marker, mark, marker_path, read_marker
from coresteer_agent.state_upgrade import FORMAT
from coresteer_core.changes.events import Change
from coresteer_core.changes.plan import Plan, inverse
from coresteer_core.changes.report import ChangeState
from coresteer_core.changes.undo import changes_after_reboot, without_surplus

log = logging.getLogger("coresteer.journal")

COMPACT_BYTES = 1024 * 1024
"""Growth after which a journal is rewritten with only its current records."""


class JournalError(Exception):
    """Raised if the journal cannot be used; the message is a sentence for the operator."""


class LostJournalError(JournalError):
    """Raised if original values were lost, because the journal is missing or both of its copies are damaged."""


class Opened(Struct, frozen=True, tag="journal"):
    """First line of the journal: boot id and root directory that the originals belong to, and the file's format."""

    boot_id: str
    root: str
    format: int = 1


class Writing(Struct, frozen=True, tag="writing"):
    """Journal record before a setting is written. found: its value; owners: its Handler.owners, empty if unknown."""

    change_id: str
    key: str
    found: str
    owners: list[str] = []


class Restored(Struct, frozen=True, tag="restored"):
    """Journal record: the setting has its original value again, no longer exists, or is to stay as it is."""

    key: str


class Own(Struct, frozen=True, tag="own"):
    """Journal record before a setting that keeps others' values is written. values: those that may be Coresteer's."""

    key: str
    values: list[str]


class Changed(Struct, frozen=True, tag="change"):
    """Journal record of a change's state; the last record of a change is valid."""

    change: Change


Record: TypeAlias = Opened | Writing | Restored | Own | Changed
_decoder: msgspec.json.Decoder[Record] = msgspec.json.Decoder(Record)


def read_boot_id(root: Path) -> str:
    """Return the kernel's boot_id (/proc/sys/kernel/random); empty for a captured tree without one."""
    try:
        return (root / "proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


class Journal:
    """Reads and writes the journal of one root directory. Raises JournalError if it belongs to another one.

    Raises LostJournalError if original values were lost. read_only: acquire no lock and write nothing, for a read-only
    or full disk, and read what is left of a damaged journal; every record method then raises OSError.
    """

    def __init__(self, path: Path, root: Path, *, read_only: bool = False) -> None:
        self.path = path
        self._lock_path = path.with_suffix(".lock")
        self._read_only = read_only
        self._opened = Opened(read_boot_id(root), str(root.resolve()), FORMAT)
        self._marker = Marker(self._opened.boot_id, self._opened.root)
        self._copies = Copies(path)
        self._depth = 0
        self._lock = -1
        self._reset()
        try:
            with self.locked():
                self._foreign.clear()
        except OSError as error:
            self.close()
            raise JournalError(f"The journal {path} cannot be opened: {error.strerror}.") from error
        except JournalError:
            self.close()
            raise

    def close(self) -> None:
        """Close the journal's files and its lock file."""
        self._copies.close()
        if self._lock >= 0:
            os.close(self._lock)

    @contextmanager
    def locked(self, how: int = fcntl.LOCK_EX) -> Iterator[None]:
        """Hold the journal's lock against other processes, after reading the records that they appended. Reentrant.

        Raises OSError when the journal cannot be read, JournalError when it belongs to another root now.
        """
        if self._depth == 0:
            self._acquire_lock(how)
        self._depth += 1
        try:
            if self._depth == 1:
                self._read_appended()
            yield
        finally:
            self._depth -= 1
            if self._depth == 0 and not self._read_only:
                fcntl.flock(self._lock, fcntl.LOCK_UN)

    def _acquire_lock(self, how: int) -> None:
        """Lock the file that is at the lock's path now; its folder may have been removed and recreated."""
        while not self._read_only:
            if self._lock >= 0:
                fcntl.flock(self._lock, how)
                with suppress(FileNotFoundError):
                    if os.fstat(self._lock).st_ino == self._lock_path.stat().st_ino:
                        return
                os.close(self._lock)
                self._lock = -1
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def originals(self) -> dict[str, str]:
        """Return each changed setting's value before its first change, by key, in the order of these changes."""
        with self.locked():
            return dict(self._originals)

    @property
    def changed_settings(self) -> frozenset[str]:
        """Return the keys of the changed settings, as of the last time that the journal was read or written."""
        return frozenset(self._originals)

    def changes(self) -> list[Change]:
        """Return every change in its last recorded state, oldest first.

        The undo of an interrupted change includes the writes that had begun.
        """
        with self.locked():
            return [self._with_undo(change) for change in self._changes.values()]

    def restored_by_others(self) -> frozenset[str]:
        """Return the keys that another process restored since the last call; empty while it is still restoring."""
        try:
            with self.locked(fcntl.LOCK_EX | fcntl.LOCK_NB):
                keys = frozenset(self._foreign)
                self._foreign.clear()
                return keys
        except BlockingIOError:
            return frozenset()

    def owners(self, key: str) -> list[str]:
        """Return the device or process that a setting belonged to when it was last written; empty if unknown."""
        with self.locked():
            return self._owners.get(key, [])

    def record_original(self, change_id: str, key: str, found: str, owners: list[str]) -> None:
        """Record a setting's value before its first write; it is on disk (fsync) on return. Raises OSError."""
        self._append(Writing(change_id, key, found, owners))

    def own_values(self, key: str) -> list[str]:
        """Return which values of a setting that keeps others' values are Coresteer's; empty if none is."""
        return self._own.get(key, [])

    @property
    def own(self) -> dict[str, list[str]]:
        """Return own_values() by key, as of the journal's last use."""
        return self._own

    def record_own(self, key: str, values: list[str]) -> None:
        """Record which values of a setting are Coresteer's, present or about to be written. Raises OSError."""
        self._append(Own(key, values))

    def record_delegated(self, change_id: str, found: Mapping[str, tuple[str, list[str]]]) -> None:
        """Record the values and owners of settings that another program may write from now on. Raises OSError."""
        self._append(*(Writing(change_id, key, value, owners) for key, (value, owners) in found.items()))

    def record_restored(self, key: str) -> None:
        """Record that a setting needs no restore any more; a later change records a new original. Raises OSError."""
        with self.locked():
            if key in self._originals:
                self._append(Restored(key))

    def record(self, change: Change) -> None:
        """Record the present state of a change. Raises OSError."""
        with self.locked():
            self._append(Changed(change))
            if self._grown > COMPACT_BYTES:
                with suppress(OSError):  # a disk is full; the change is recorded, and a later one compacts
                    self._rewrite()

    def _reset(self) -> None:
        self._grown = 0
        """Bytes since the journal was begun or rewritten."""
        self._header: Opened | None = None
        self._originals: dict[str, str] = {}
        self._owners: dict[str, list[str]] = {}
        self._own: dict[str, list[str]] = {}
        self._written: dict[str, set[str]] = {}
        self._changes: dict[str, Change] = {}
        self._foreign: set[str] = set()

    def _with_undo(self, change: Change) -> Change:
        if change.state is not ChangeState.APPLYING or change.ending is not None:
            return change
        begun = self._written.get(change.change_id, set())
        return replace(change, undo=inverse(Plan([a for a in change.plan.actions if a.key in begun])))

    def _read_appended(self) -> None:
        """Read the records appended since the last call; all records if the file is new, rewritten or damaged."""
        with suppress(FileNotFoundError):
            if self._header is not None and (lines := self._copies.appended()) is not None:
                self._read_lines(lines)
                return
        if self._header is None or not self._read_only:
            self._load()

    def _load(self) -> None:
        """Read whichever copy is whole, and make the other one equal to it."""
        content = self._read_copies()
        lines = None if content is None else self._copies.continued(content)
        if content is None or (lines is None and self._header is not None and self._copies.truncated()):
            self._rewrite()
            return
        if lines is None:
            known, foreign = self._originals.keys(), self._foreign
            self._reset()
            self._read_lines(content.lines)
            self._foreign = foreign | (known - self._originals.keys())  # a rewritten file has not every record
        else:
            self._read_lines(lines)
        if self._header is None:
            raise self._lost("begins with another record than it should")
        if self._header.root != self._opened.root:
            raise JournalError(
                f"The journal {self.path} belongs to the root directory {self._header.root}, "
                f"not {self._opened.root}; give --root {self._header.root}, or another --state-dir."
            )
        if self._header.boot_id != self._opened.boot_id:
            self._begin_boot()
        elif self._header.format < FORMAT:
            self._rewrite()
        elif not self._read_only:
            self._copies.open(content)
            self._grown = len(content.data)
            mark(self.path, self._marker)

    def _read_copies(self) -> Content | None:
        """Return what the copies contain; None if a new journal is to be begun, or written again from memory."""
        in_memory, marker = self._header is not None, read_marker(self.path)
        try:
            content = self._copies.read()
        except DamagedError as error:
            if self._read_only and error.readable.lines:
                return error.readable
            if not in_memory and (marker is None or marker == self._marker):
                raise self._lost("and its copy are damaged") from None
            # else it was of an earlier boot, and the reboot restored every setting
            log.error("The journal %s and its copy are damaged; it is written again.", self.path)
            return None
        if content is None and not in_memory and marker == self._marker:
            raise self._lost("and its copy are missing")
        return content

    def _lost(self, how: str) -> LostJournalError:
        return LostJournalError(
            f"The journal {self.path} {how}, so the original values of settings that Coresteer has changed since the "
            "last boot are unknown. Check the settings, run coresteer-agent accept-lost-journal and restart the "
            "agent; or reboot, which restores every setting."
        )

    def _read_lines(self, lines: list[bytes]) -> None:
        for line in lines:
            try:
                record = _decoder.decode(line)
            except (msgspec.MsgspecError, UnicodeDecodeError):  # only in a journal without checksums
                log.warning("The journal %s has an invalid line of %d bytes, which is ignored.", self.path, len(line))
                continue
            if isinstance(record, Restored):
                self._foreign.add(record.key)
            self._apply(record)

    def _apply(self, record: Record) -> None:
        match record:
            case Opened():
                self._header = record
            case Writing():
                self._originals.setdefault(record.key, record.found)
                self._owners[record.key] = record.owners
                self._written.setdefault(record.change_id, set()).add(record.key)
            case Restored():
                self._originals.pop(record.key, None)
                self._owners.pop(record.key, None)
                self._own.pop(record.key, None)
                for begun in self._written.values():
                    begun.discard(record.key)
            case Own():
                self._own[record.key] = record.values
            case Changed():
                self._changes[record.change.change_id] = record.change

    def _append(self, *records: Record) -> None:
        if self._read_only:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        with self.locked():
            self._grown += self._copies.append(msgspec.json.encode(record) for record in records)
            for record in records:
                self._apply(record)

    def _begin_boot(self) -> None:
        if not self._read_only:
            previous = self.path.with_name("journal.previous.jsonl")
            previous.unlink(missing_ok=True)
            with suppress(FileNotFoundError):  # if only its copy is left
                os.link(self.path, previous)
        unreported = changes_after_reboot([self._with_undo(change) for change in self._changes.values()])
        self._originals = {}
        self._owners = {}
        self._own = {}
        self._written = {}
        self._changes = {change.change_id: change for change in unreported}
        self._rewrite()

    def _rewrite(self) -> None:
        """Replace the journal atomically by one that contains only the current records."""
        self._header = self._opened
        if self._read_only:
            return
        self._changes = without_surplus(self._changes)
        self._written = {name: keys for name, keys in self._written.items() if name in self._changes}
        records: list[Record] = [self._opened]
        records += [Writing("", key, found, self._owners[key]) for key, found in self._originals.items()]
        records += [
            Writing(change_id, key, self._originals[key], self._owners[key])
            for change_id, keys in self._written.items()
            if self._changes[change_id].state is ChangeState.APPLYING
            for key in sorted(keys)
        ]
        records += [Own(key, values) for key, values in self._own.items()]
        records += [Changed(change) for change in self._changes.values()]
        self._copies.replace(msgspec.json.encode(record) for record in records)
        self._grown = 0
        mark(self.path, self._marker)


def journal_loss(path: Path, root: Path) -> str | None:
    """Return why original values were lost, as a sentence; None if they were not. Raises JournalError."""
    try:
        Journal(path, root).close()
    except LostJournalError as error:
        return str(error)
    return None


def accept_lost_journal(path: Path, root: Path) -> bool:
    """Begin a new journal instead of a lost one, which is retained as ….damaged; return False if it is not lost.

    Raises JournalError, and OSError.
    """
    if journal_loss(path, root) is None:
        return False
    for damaged in (path, Copies(path).copy_path):
        with suppress(FileNotFoundError):
            damaged.replace(damaged.with_name(f"{damaged.name}.damaged"))
    marker_path(path).unlink(missing_ok=True)
    Journal(path, root).close()
    return True
