import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from coresteer_agent.apply import journal as module
from coresteer_agent.apply.journal import (
    Journal,
    JournalError,
    LostJournalError,
    Opened,
    Restored,
    Writing,
    accept_lost_journal,
)
from coresteer_agent.apply.journal_copies import format_lines
from coresteer_agent.state_upgrade import FORMAT
from coresteer_core.changes import undo
from coresteer_core.changes.events import Change
from coresteer_core.changes.plan import Action, Plan
from coresteer_core.changes.report import ChangeState, EndedBy


def change(change_id: str, state: ChangeState = ChangeState.APPLYING) -> Change:
    actions = [Action(f"irq/{irq}/affinity", "0-7", "2", "test") for irq in (41, 42)]
    return Change(change_id, Plan(actions), state, "A sentence.", 120)


def boot(root: Path, boot_id: str) -> None:
    file = root / "proc/sys/kernel/random/boot_id"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{boot_id}\n")


def test_only_the_first_value_of_a_setting_is_its_original(journal: Journal) -> None:
    journal.record_original("a", "irq/41/affinity", "0-7", [])
    journal.record_original("b", "irq/41/affinity", "2", [])
    assert journal.originals() == {"irq/41/affinity": "0-7"}


def test_a_new_process_reads_the_originals_of_the_last_one(journal: Journal, root: Path) -> None:
    journal.record(change("a"))
    journal.record_original("a", "irq/41/affinity", "0-7", [])
    again = Journal(journal.path, root)
    assert again.originals() == {"irq/41/affinity": "0-7"}
    assert [c.change_id for c in again.changes()] == ["a"]
    again.close()


def test_an_interrupted_change_has_a_record_of_its_started_actions(journal: Journal, root: Path) -> None:
    journal.record(change("a"))
    journal.record_original("a", "irq/42/affinity", "0-7", [])
    again = Journal(journal.path, root)
    (interrupted,) = again.changes()
    assert [(a.key, a.becomes) for a in interrupted.undo.actions] == [("irq/42/affinity", "0-7")]
    again.close()


def test_a_setting_changed_after_its_restore_gets_a_new_original(journal: Journal) -> None:
    journal.record_original("a", "irq/41/affinity", "0-7", [])
    journal.record_restored("irq/41/affinity")
    journal.record_original("b", "irq/41/affinity", "5", [])
    assert journal.originals() == {"irq/41/affinity": "5"}


def test_a_restore_by_another_process_is_reported_once(journal: Journal, root: Path) -> None:
    journal.record_original("a", "irq/41/affinity", "0-7", [])
    journal.record_original("a", "irq/42/affinity", "0-7", [])
    journal.record_restored("irq/42/affinity")
    other = Journal(journal.path, root)
    other.record_restored("irq/41/affinity")
    other.close()
    assert journal.restored_by_others() == {"irq/41/affinity"}
    assert journal.restored_by_others() == set()
    assert journal.originals() == {}


def test_a_restore_by_another_process_is_reported_although_it_compacted_the_journal(
    journal: Journal, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for irq in (41, 42, 43):
        journal.record_original("a", f"irq/{irq}/affinity", "0-7", [])
    journal.record_restored("irq/42/affinity")
    monkeypatch.setattr(module, "COMPACT_BYTES", 0)
    other = Journal(journal.path, root)
    other.record_restored("irq/41/affinity")
    other.record(change("a", ChangeState.ROLLED_BACK))
    other.close()
    assert b"restored" not in journal.path.read_bytes()
    assert journal.restored_by_others() == {"irq/41/affinity"}
    assert journal.restored_by_others() == set()
    assert journal.originals() == {"irq/43/affinity": "0-7"}


def test_a_reboot_discards_the_originals_and_ends_open_changes(tmp_path: Path, root: Path) -> None:
    path = tmp_path / "journal.jsonl"
    boot(root, "first")
    before = Journal(path, root)
    before.record(change("open", ChangeState.UNCONFIRMED))
    before.record(change("kept", ChangeState.CONFIRMED))
    before.record_original("open", "irq/41/affinity", "0-7", [])
    before.close()
    boot(root, "second")
    after = Journal(path, root)
    assert after.originals() == {}
    told = {c.change_id: (c.state, c.ended_by) for c in after.changes()}
    assert told["open"] == (ChangeState.ROLLED_BACK, EndedBy.AGENT_RESTART)
    assert told["kept"] == (ChangeState.CONFIRMED, None)
    assert b"irq/41/affinity" in (tmp_path / "journal.previous.jsonl").read_bytes()
    after.close()


def test_a_journal_of_another_root_directory_is_refused(journal: Journal, tmp_path: Path) -> None:
    with pytest.raises(JournalError, match=r"give --root /.*root, or another --state-dir"):
        Journal(journal.path, tmp_path)


def test_a_journal_that_cannot_be_opened_says_why(tmp_path: Path, root: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalError, match=r"Not a directory|File exists"):
        Journal(tmp_path / "file/journal.jsonl", root)


def test_a_long_journal_is_compacted_without_losing_originals(
    journal: Journal, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "COMPACT_BYTES", 10_000)
    monkeypatch.setattr(undo, "MAX_REMEMBERED_CHANGES", 5)
    journal.record(change("open", ChangeState.APPLYING))
    journal.record_original("open", "irq/41/affinity", "0-7", [])
    for turn in range(200):
        journal.record(change(f"c{turn}", ChangeState.CONFIRMED))
    assert journal.path.stat().st_size < 20_000
    again = Journal(journal.path, root)
    assert again.originals() == {"irq/41/affinity": "0-7"}
    kept = again.changes()
    assert [c.change_id for c in (kept[0], *kept[-5:])] == ["open", *(f"c{turn}" for turn in range(195, 200))]
    assert [action.key for action in kept[0].undo.actions] == ["irq/41/affinity"]
    assert len(kept) < 100
    again.close()


def test_a_compacted_journal_has_what_people_confirmed_rather_than_what_policies_did(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(undo, "MAX_REMEMBERED_CHANGES", 5)
    journal.record(change("mine", ChangeState.CONFIRMED))
    for turn in range(20):
        journal.record(replace(change(f"c{turn}", ChangeState.CONFIRMED), policy="spread"))
    monkeypatch.setattr(module, "COMPACT_BYTES", 0)
    journal.record(replace(change("last", ChangeState.CONFIRMED), policy="spread"))
    assert [each.change_id for each in journal.changes()] == ["mine", "c17", "c18", "c19", "last"]


def test_a_long_journal_is_compacted_by_the_next_process_too(
    journal: Journal, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(undo, "MAX_REMEMBERED_CHANGES", 5)
    for turn in range(100):
        journal.record(change(f"c{turn}", ChangeState.CONFIRMED))
    before = journal.path.stat().st_size
    monkeypatch.setattr(module, "COMPACT_BYTES", before // 2)
    again = Journal(journal.path, root)
    again.record(change("next", ChangeState.CONFIRMED))
    assert journal.path.stat().st_size < before / 2
    again.close()


def test_a_change_is_recorded_although_the_journal_cannot_be_compacted(
    journal: Journal, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is almost full: one more line fits, another copy of the journal does not."""

    def full(path: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(module, "COMPACT_BYTES", 0)
        patched.setattr(Path, "replace", full)
        journal.record(change("a", ChangeState.CONFIRMED))
    assert [path for path in journal.path.parent.iterdir() if path.suffix == ".new"] == []
    again = Journal(journal.path, root)
    assert [each.change_id for each in again.changes()] == ["a"]
    again.close()


def test_two_processes_that_write_at_once_lose_nothing(journal: Journal, root: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from coresteer_agent.apply.journal import Journal\n"
        "journal = Journal(Path(sys.argv[1]), Path(sys.argv[2]))\n"
        "for n in range(100): journal.record_original('c', f'irq/{sys.argv[3]}{n:03}/affinity', '0', [])\n"
    )
    both = [
        subprocess.Popen([sys.executable, "-c", program, str(journal.path), str(root), str(name)]) for name in (1, 2)
    ]
    assert [process.wait(timeout=60) for process in both] == [0, 0]
    assert journal.originals() == {f"irq/{name}{n:03}/affinity": "0" for name in (1, 2) for n in range(100)}


def test_a_short_write_is_an_error_and_does_not_corrupt_the_next(
    journal: Journal, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    with monkeypatch.context() as cut:
        cut.setattr(os, "write", lambda fd, data: write(fd, data[:10]))
        with pytest.raises(OSError) as caught:
            journal.record_original("a", "irq/41/affinity", "0-7", [])
        assert caught.value.errno == errno.ENOSPC
    journal.record_original("a", "irq/42/affinity", "0-7", [])
    again = Journal(journal.path, root)
    assert again.originals() == {"irq/42/affinity": "0-7"}
    again.close()


def test_a_deleted_state_folder_is_recreated_from_memory(journal: Journal, root: Path) -> None:
    journal.record(change("a"))
    journal.record_original("a", "irq/41/affinity", "0-7", ["eth0-rx-0"])
    shutil.rmtree(journal.path.parent)
    assert journal.restored_by_others() == set()
    again = Journal(journal.path, root)
    assert again.originals() == {"irq/41/affinity": "0-7"}
    assert again.owners("irq/41/affinity") == ["eth0-rx-0"]
    (interrupted,) = again.changes()
    assert [action.key for action in interrupted.undo.actions] == ["irq/41/affinity"]
    again.record_restored("irq/41/affinity")
    again.close()
    assert journal.restored_by_others() == {"irq/41/affinity"}, "both hold the same new lock and file"


def test_a_restored_setting_is_no_longer_a_started_action_of_an_interrupted_change(journal: Journal) -> None:
    journal.record(change("a"))
    journal.record_original("a", "irq/41/affinity", "0-7", [])
    journal.record_original("a", "irq/42/affinity", "0-7", [])
    journal.record_restored("irq/41/affinity")
    (interrupted,) = journal.changes()
    assert [action.key for action in interrupted.undo.actions] == ["irq/42/affinity"]


def test_looking_for_restores_by_others_does_not_wait_for_the_lock(journal: Journal, root: Path) -> None:
    journal.record_original("a", "irq/41/affinity", "0-7", [])
    other = Journal(journal.path, root)
    other.record_restored("irq/41/affinity")
    with other.locked():
        assert journal.restored_by_others() == set()
    assert journal.restored_by_others() == {"irq/41/affinity"}
    other.close()


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "emptied": lambda _: b"",
    "zeroed": lambda data: bytes(len(data)),
    "zeroed in part": lambda data: data[:40] + bytes(60) + data[100:],
    "one bit": lambda data: data[:50] + bytes([data[50] ^ 1]) + data[51:],
    "shorter": lambda data: data[: data.index(b"\n") + 1],
    "cut within a line": lambda data: data[:-5],
}


def written(path: Path, root: Path) -> dict[str, str]:
    """Originals in a journal that is closed again."""
    journal = Journal(path, root)
    for irq in range(41, 45):
        journal.record_original("c", f"irq/{irq}/affinity", "0-7", [])
    originals = journal.originals()
    journal.close()
    return originals


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
@pytest.mark.parametrize("which", ["journal.jsonl", "journal.copy.jsonl"])
def test_damage_of_one_copy_loses_nothing_and_is_repaired(
    tmp_path: Path, root: Path, which: str, damage: Callable[[bytes], bytes]
) -> None:
    path, damaged = tmp_path / "journal.jsonl", tmp_path / which
    originals = written(path, root)
    damaged.write_bytes(damage(damaged.read_bytes()))
    for _ in range(2):
        again = Journal(path, root)
        assert again.originals() == originals
        again.close()
        damaged.unlink()
    assert written(path, root) == originals
    assert path.read_bytes() == (tmp_path / "journal.copy.jsonl").read_bytes()


@pytest.mark.parametrize("damage", [d for name, d in DAMAGE.items() if name not in ("shorter", "cut within a line")])
def test_damage_of_both_copies_is_noticed_until_it_is_accepted(
    tmp_path: Path, root: Path, damage: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "journal.jsonl"
    written(path, root)
    for file in (path, tmp_path / "journal.copy.jsonl"):
        file.write_bytes(damage(file.read_bytes()))
    for _ in range(2):
        with pytest.raises(LostJournalError, match="accept-lost-journal"):
            Journal(path, root)
    assert accept_lost_journal(path, root)
    assert not accept_lost_journal(path, root)
    assert (tmp_path / "journal.jsonl.damaged").exists()
    assert Journal(path, root).originals() == {}


def test_a_missing_journal_is_noticed_where_one_was_begun_in_this_boot(tmp_path: Path, root: Path) -> None:
    path = tmp_path / "journal.jsonl"
    boot(root, "first")
    written(path, root)
    for file in (path, tmp_path / "journal.copy.jsonl"):
        file.unlink()
    with pytest.raises(LostJournalError, match="and its copy are missing"):
        Journal(path, root)
    boot(root, "second")
    Journal(path, root).close()


def test_a_journal_damaged_in_an_earlier_boot_is_begun_again(tmp_path: Path, root: Path) -> None:
    path = tmp_path / "journal.jsonl"
    boot(root, "first")
    written(path, root)
    for file in (path, tmp_path / "journal.copy.jsonl"):
        file.write_bytes(b"")
    boot(root, "second")
    journal = Journal(path, root)
    assert journal.originals() == {}
    journal.close()


def test_an_emptied_journal_of_an_earlier_format_is_noticed(tmp_path: Path, root: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b"")
    with pytest.raises(LostJournalError, match="and its copy are damaged"):
        Journal(path, root)


@pytest.mark.parametrize("damage", [DAMAGE[name] for name in ("emptied", "shorter", "cut within a line")])
def test_a_running_agent_writes_a_truncated_journal_again_from_memory(
    journal: Journal, root: Path, damage: Callable[[bytes], bytes]
) -> None:
    journal.record(change("a"))
    for irq in range(41, 45):
        journal.record_original("a", f"irq/{irq}/affinity", "0-7", [])
    for file in (journal.path, journal.path.with_suffix(".copy.jsonl")):
        file.write_bytes(damage(file.read_bytes()))
    journal.record_original("a", "irq/45/affinity", "0-7", [])
    again = Journal(journal.path, root)
    assert list(again.originals()) == [f"irq/{irq}/affinity" for irq in range(41, 46)]
    again.close()


def test_a_copy_that_another_process_left_behind_is_completed(journal: Journal, root: Path) -> None:
    copy = journal.path.with_suffix(".copy.jsonl")
    journal.record_original("a", "irq/41/affinity", "0-7", [])
    before = copy.read_bytes()
    other = Journal(journal.path, root)
    other.record_original("b", "irq/42/affinity", "0-7", [])
    other.close()
    copy.write_bytes(before)  # as if it had been killed between the two
    assert list(journal.originals()) == ["irq/41/affinity", "irq/42/affinity"]
    journal.record_original("a", "irq/43/affinity", "0-7", [])
    assert copy.read_bytes() == journal.path.read_bytes()


records = st.lists(
    st.one_of(
        st.builds(
            Writing, st.just("c"), st.integers(0, 9).map("irq/{}/affinity".format), st.sampled_from(["0", "1-3"])
        ),
        st.builds(Restored, st.integers(0, 9).map("irq/{}/affinity".format)),
    ),
    max_size=12,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(st.data(), records, st.booleans())
def test_a_tail_truncated_at_any_byte_loses_no_original_that_was_on_disk(
    tmp_path: Path,
    data: st.DataObject,
    written: list[Writing | Restored],
    checksums: bool,
) -> None:
    path = tmp_path / "torn.jsonl"
    root = tmp_path
    texts = [msgspec.json.encode(r) for r in [Opened("", str(root.resolve()), FORMAT if checksums else 2), *written]]
    lines = format_lines(texts)[0].splitlines(keepends=True) if checksums else [text + b"\n" for text in texts]
    whole = b"".join(lines)
    durable = data.draw(st.integers(1, len(lines)), label="lines on disk")
    start = len(b"".join(lines[:durable]))
    cut = data.draw(st.integers(start, len(whole)), label="torn at byte")
    garbage = data.draw(st.binary(max_size=8), label="garbage").replace(b"\n", b"")
    complete = cut in {len(b"".join(lines[:n])) for n in range(len(lines) + 1)}
    path.write_bytes(whole[:cut] + (b"" if complete else garbage))
    path.with_suffix(".copy.jsonl").write_bytes(whole[:start])

    expected: dict[str, str] = {}
    for record in written[: durable - 1]:
        if isinstance(record, Writing):
            expected.setdefault(record.key, record.found)
        else:
            expected.pop(record.key, None)
    later = {record.key for record in written[durable - 1 :]}
    journal = Journal(path, root)
    found = journal.originals()
    journal.record_original("c", "irq/77/affinity", "4", [])
    again = Journal(path, root)
    for key, value in expected.items():
        if key not in later:
            assert found[key] == value
            assert again.originals()[key] == value
    assert again.originals()["irq/77/affinity"] == "4"
    journal.close()
    again.close()
