import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from unittest.mock import create_autospec

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.views import EMPTY

from coresteer_agent.apply import rooted
from coresteer_agent.apply.executor import Executor
from coresteer_agent.apply.irq_affinity import IrqAffinityHandler
from coresteer_agent.apply.journal import Journal
from coresteer_agent.apply.netdev_common import ENOTSUPP
from coresteer_agent.apply.restore import restore
from coresteer_core.changes.plan import Action
from coresteer_core.changes.report import Outcome
from coresteer_core.node.nic import Verdict
from coresteer_core.node.view import View
from coresteer_core.policies.coalescing.effective import WriteAttempt

Affinity = Callable[[int], str]


def action(becomes: str, was: str = "0-7", irq: int = 41) -> Action:
    return Action(f"irq/{irq}/affinity", was, becomes, "test")


def test_an_affinity_is_written_and_read_back(executor: Executor, affinity: Affinity) -> None:
    result = executor.apply(action("2,3"), change_id="c")
    assert (result.outcome, result.found, result.read_back) == ("applied", "0-7", "2-3")
    assert result.sentence == "IRQ 41 was changed from 0-7 to 2-3."
    assert affinity(41) == "2-3"


def test_the_original_is_on_disk_before_the_kernel_is_written(
    executor: Executor, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    write, fsync = os.write, os.fsync

    def noted(fd: int, data: bytes) -> int:
        order.append("journal" if b'"writing"' in data else "kernel" if data == b"2\n" else "other")
        return write(fd, data)

    def synced(fd: int) -> None:
        files = [journal.path, journal.path.with_suffix(".copy.jsonl")]
        assert os.fstat(fd).st_ino in [file.stat().st_ino for file in files]
        order.append("fsync")
        fsync(fd)

    monkeypatch.setattr(os, "write", noted)
    monkeypatch.setattr(os, "fsync", synced)
    executor.apply(action("2"), change_id="c")
    assert order == ["journal", "fsync", "journal", "fsync", "kernel"]
    assert journal.originals() == {"irq/41/affinity": "0-7"}


def test_a_value_that_is_current_already_is_neither_written_nor_journaled(
    executor: Executor, root: Path, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "proc/irq/41/smp_affinity_list").write_text("2,3\n")
    monkeypatch.setattr(IrqAffinityHandler, "write", lambda *_: pytest.fail("written"))
    assert executor.apply(action("2-3"), change_id="c").outcome == "unchanged"
    assert journal.originals() == {}


def test_a_value_that_changed_since_the_preview_is_refused_with_both_values(
    executor: Executor, root: Path, affinity: Affinity
) -> None:
    (root / "proc/irq/41/smp_affinity_list").write_text("2\n")
    result = executor.apply(action("3"), change_id="c")
    assert result.outcome == "refused"
    assert result.sentence == "IRQ 41 was 0-7 when this was previewed and is 2 now; preview again."
    assert affinity(41) == "2"


@pytest.mark.parametrize(
    ("asked", "outcome", "says"),
    [
        (action("7"), "refused", "CPU 7 is not online on this node; it has CPUs 0-6."),
        (action("6"), "refused", "isolcpus"),
        (action("1", irq=44), "refused", "IRQ 44 cannot be moved."),
        (action("1", irq=99), "unsupported", "IRQ 99 does not exist on this node"),
        (action(""), "refused", "needs at least one CPU"),
        (action("3-1"), "refused", "runs backwards"),
        (Action("irq/41/affinity/../../../etc", "0", "1", ""), "refused", "not a setting Coresteer knows"),
        (Action("sysctl/kernel.panic", "0", "1", ""), "refused", "not a setting Coresteer knows"),
    ],
)
def test_forbidden_and_unknown_values_are_not_written(
    executor: Executor, affinity: Affinity, asked: Action, outcome: str, says: str
) -> None:
    before = [affinity(irq) for irq in range(41, 45)]
    result = executor.apply(asked, change_id="c")
    assert result.outcome == outcome
    assert says in result.sentence
    assert [affinity(irq) for irq in range(41, 45)] == before


def test_isolated_cpus_are_written_when_the_plan_allows_them(executor: Executor) -> None:
    assert executor.apply(action("6"), change_id="c", allow_isolated=True).outcome == "applied"


def test_the_guard_gets_a_new_view_before_each_write(root: Path, journal: Journal, view: View) -> None:
    views = iter([view, EMPTY])
    executor = Executor(root, journal, lambda: next(views))
    assert executor.apply(action("2"), change_id="c").outcome == "applied"
    assert "not online" in executor.apply(action("3", irq=42), change_id="c").sentence


@pytest.mark.parametrize(
    ("code", "outcome", "says"),
    [
        (errno.EIO, "refused", "manages this interrupt"),
        (errno.EPERM, "refused", "manages this interrupt"),
        (errno.EACCES, "refused", "as root"),
        (errno.EROFS, "refused", "ProtectKernelTunables"),
        (errno.ENOSPC, "failed", "No space left on device"),
        (errno.EINVAL, "failed", "has to be online"),
        (errno.ENODEV, "failed", "No such device"),
    ],
)
def test_each_kernel_error_has_its_outcome_and_message(
    executor: Executor, monkeypatch: pytest.MonkeyPatch, code: int, outcome: str, says: str
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(rooted, "write_text", refuse)
    result = executor.apply(action("2"), change_id="c")
    assert (result.outcome, result.found, result.read_back) == (outcome, "0-7", "0-7")
    assert says in result.sentence


def test_an_error_of_the_agent_in_a_write_is_logged_and_a_failed_result(
    executor: Executor, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(rooted, "write_text", lambda *_: int(""))
    result = executor.apply(action("2"), change_id="c")
    assert result.outcome is Outcome.FAILED
    assert "IRQ 41 cannot be set to 2. The agent failed: ValueError(" in result.sentence
    assert "Traceback" in caplog.text


def test_a_refused_write_leaves_no_original_in_the_journal(executor: Executor, root: Path, journal: Journal) -> None:
    file = root / "proc/irq/41/smp_affinity_list"
    file.chmod(0o444)
    assert executor.apply(action("2"), change_id="c").outcome is Outcome.REFUSED
    assert journal.originals() == {}


def test_a_refused_second_write_keeps_the_original_of_the_first(
    executor: Executor, root: Path, journal: Journal
) -> None:
    executor.apply(action("2"), change_id="c")
    (root / "proc/irq/41/smp_affinity_list").chmod(0o444)
    assert executor.apply(action("3", was="2"), change_id="d").outcome is Outcome.REFUSED
    assert journal.originals() == {"irq/41/affinity": "0-7"}


def test_only_the_running_kernel_can_run_out_of_interrupt_vectors() -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert "vectors" in IrqAffinityHandler().explain(full, Path("/"))[1]
    assert "vectors" not in IrqAffinityHandler().explain(full, Path("/tmp"))[1]


def test_an_irq_number_reused_by_another_device_is_not_restored_and_gets_a_new_original(
    executor: Executor, root: Path, journal: Journal, affinity: Affinity
) -> None:
    (root / "proc/irq/41/eth0-rx-0").mkdir()
    executor.apply(action("2"), change_id="c")
    (root / "proc/irq/41/eth0-rx-0").rename(root / "proc/irq/41/nvme0q1")
    result = executor.undo(action("0-7", was="2"))
    assert result.outcome is Outcome.UNSUPPORTED
    assert result.sentence == "IRQ 41 no longer exists: it belonged to eth0-rx-0, now to nvme0q1."
    assert affinity(41) == "2"
    assert journal.originals() == {}


def test_a_new_handler_on_a_shared_interrupt_does_not_make_it_another_device(
    executor: Executor, root: Path, affinity: Affinity
) -> None:
    (root / "proc/irq/41/eth0").mkdir()
    executor.apply(action("2"), change_id="c")
    (root / "proc/irq/41/usb1").mkdir()
    assert executor.undo(action("0-7", was="2")).outcome is Outcome.APPLIED
    assert affinity(41) == "0-7"


def test_a_second_change_of_a_reused_irq_number_has_the_new_devices_original(
    executor: Executor, root: Path, journal: Journal
) -> None:
    (root / "proc/irq/41/eth0").mkdir()
    executor.apply(action("2"), change_id="c")
    (root / "proc/irq/41/eth0").rename(root / "proc/irq/41/nvme0q1")
    executor.apply(action("3", was="2"), change_id="d")
    assert journal.originals() == {"irq/41/affinity": "2"}


def test_an_unwritable_state_folder_prevents_changes_but_not_undo(
    executor: Executor, journal: Journal, affinity: Affinity
) -> None:
    executor.apply(action("2"), change_id="c")
    folder = journal.path.parent
    shutil.rmtree(folder)
    folder.write_text("a file in its place")
    refused = executor.apply(action("3", irq=42), change_id="d")
    assert refused.outcome is Outcome.FAILED
    assert refused.sentence.startswith("The journal cannot be written (")
    back = executor.undo(action("0-7", was="2"))
    assert back.outcome is Outcome.APPLIED
    assert "The journal could not record it: " in back.sentence
    assert (affinity(41), affinity(42)) == ("0-7", "0-7")
    folder.unlink()


def test_a_read_only_affinity_file_is_a_managed_interrupt_even_for_root(
    executor: Executor, root: Path, affinity: Affinity
) -> None:
    (root / "proc/irq/41/smp_affinity_list").chmod(0o444)
    result = executor.apply(action("2"), change_id="c")
    assert result.outcome == "refused"
    assert "read-only: it is a managed interrupt" in result.sentence
    assert affinity(41) == "0-7"


def test_a_value_that_reads_back_differently_is_a_failure(
    executor: Executor, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = root / "proc/irq/41/smp_affinity_list"
    monkeypatch.setattr(IrqAffinityHandler, "write", lambda *_: file.write_text("5\n"))
    result = executor.apply(action("2-3"), change_id="c")
    assert (result.outcome, result.found, result.read_back) == ("failed", "0-7", "5")
    assert result.sentence == "IRQ 41 was set to 2-3, but the kernel changed it to 5."


def test_the_read_back_compares_cpus_and_not_their_notation(
    executor: Executor, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = root / "proc/irq/41/smp_affinity_list"
    monkeypatch.setattr(IrqAffinityHandler, "write", lambda *_: file.write_text("2,3\n"))
    assert executor.apply(action("2-3"), change_id="c").outcome == "applied"


def test_nothing_is_written_when_the_journal_cannot_be_written(
    executor: Executor, journal: Journal, affinity: Affinity, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(journal, "record_original", full)
    result = executor.apply(action("2"), change_id="c")
    assert result.outcome == "failed"
    assert "No space left on device" in result.sentence
    assert affinity(41) == "0-7"


def test_undo_overwrites_any_current_value_and_reports_it(
    executor: Executor, root: Path, journal: Journal, affinity: Affinity
) -> None:
    executor.apply(action("2"), change_id="c")
    (root / "proc/irq/41/smp_affinity_list").write_text("5\n")
    result = executor.undo(action("0-7", was="2"))
    assert result.outcome == "applied"
    assert "was 5 instead of 2" in result.sentence
    assert affinity(41) == "0-7"
    assert journal.originals() == {}


def test_an_original_of_a_later_release_is_refused_after_the_others_are_restored(
    executor: Executor, journal: Journal, root: Path, affinity: Affinity
) -> None:
    journal.record_original("c", "of/tomorrow", "1", [])
    executor.apply(action("2"), change_id="c")
    known, unknown = restore(journal.path, root) or []
    assert (known.outcome, affinity(41)) == ("applied", "0-7")
    assert (unknown.key, unknown.outcome) == ("of/tomorrow", "refused")


def test_undo_may_use_offline_and_isolated_cpus(executor: Executor, root: Path, affinity: Affinity) -> None:
    (root / "proc/irq/41/smp_affinity_list").write_text("1\n")
    assert executor.undo(action("6-7", was="1")).outcome == "applied"
    assert affinity(41) == "6-7"


def test_undo_overwrites_a_current_value_that_cannot_be_parsed(
    executor: Executor, root: Path, affinity: Affinity
) -> None:
    (root / "proc/irq/41/smp_affinity_list").write_text("")
    assert executor.undo(action("0-7", was="2")).outcome == "applied"
    assert affinity(41) == "0-7"


@pytest.mark.parametrize("link", ["proc", "proc/irq", "proc/irq/41", "proc/irq/41/smp_affinity_list"])
def test_no_link_leads_out_of_the_root_directory(
    executor: Executor, root: Path, tmp_path: Path, link: str, affinity: Affinity
) -> None:
    outside = tmp_path / "outside"
    (root / link).rename(outside)
    (root / link).symlink_to(outside)
    assert executor.apply(action("2"), change_id="c").outcome in ("unsupported", "failed")
    assert executor.undo(action("2")).outcome in ("unsupported", "failed")
    assert affinity(41) == "0-7"


@given(st.text(max_size=40))
def test_no_key_raises_or_writes_anything_but_interrupts(text: str) -> None:
    never_asked = create_autospec(Journal, instance=True, spec_set=True, locked=None)
    executor = Executor(Path("/nonexistent"), never_asked, lambda: pytest.fail("no view is needed"))
    assert executor.apply(Action(text, "0", "1", ""), change_id="c").outcome == "refused"
    assert executor.undo(Action(text, "0", "1", "")).outcome == "refused"


@pytest.mark.parametrize(
    "path", ["../secret", "proc/../../secret", "proc/./irq/41/smp_affinity_list", "proc//irq/41/smp_affinity_list", ""]
)
def test_a_path_with_parent_folders_is_never_opened(root: Path, path: str) -> None:
    (root.parent / "secret").write_text("0-7\n")
    assert (root / path).exists()
    with pytest.raises(FileNotFoundError):
        rooted.read_text(root, path)
    with pytest.raises(FileNotFoundError):
        rooted.write_text(root, path, "1")
    assert (root.parent / "secret").read_text() == "0-7\n"


@pytest.mark.parametrize(
    ("error", "stands", "expected"),
    [
        (None, "2-3", [(Verdict.ACCEPTED, "2-3")]),
        (None, "5", [(Verdict.ROUNDED, "5")]),
        (None, "0-7", [(Verdict.IGNORED, "0-7")]),
        (errno.EINVAL, "0-7", [(Verdict.REFUSED, None)]),
        (ENOTSUPP, "0-7", [(Verdict.REFUSED, None)]),
        (errno.EPERM, "0-7", []),
        (errno.EIO, "0-7", []),
    ],
)
def test_the_result_of_a_write_is_reported_unless_the_error_is_unrelated_to_the_value(  # noqa: PLR0917 - fixtures
    root: Path,
    journal: Journal,
    view: View,
    monkeypatch: pytest.MonkeyPatch,
    error: int | None,
    stands: str,
    expected: list[tuple[Verdict, str | None]],
) -> None:
    def write(*_: object) -> None:
        if error is not None:
            raise OSError(error, "no")
        (root / "proc/irq/41/smp_affinity_list").write_text(f"{stands}\n")

    told: list[WriteAttempt] = []
    monkeypatch.setattr(IrqAffinityHandler, "write", write)
    Executor(root, journal, lambda: view, told.append).apply(action("2-3"), change_id="c")
    assert [(t.verdict, t.read_back) for t in told] == expected
    assert all((t.requested, t.found) == ("2-3", "0-7") and bool(t.message) is (t.read_back is None) for t in told)
