"""Fault drills: an agent is killed at any instant of applying a plan, and restore puts everything back."""

import errno
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests.support.kills import Operation, count_operations, kill_at
from tests.support.views import EMPTY, make_view, observed_task

from coresteer_agent.__main__ import main
from coresteer_agent.apply.executor import Executor
from coresteer_agent.apply.journal import Journal
from coresteer_agent.apply.restore import restore
from coresteer_agent.collect.irq import is_running_kernel
from coresteer_agent.runtime.changes import NodeChanges
from coresteer_core.changes.events import AgentRestarted, Changes, InverseRan, RestoreRequested, RunInverse
from coresteer_core.changes.machine import advance
from coresteer_core.changes.plan import Action, Plan, inverse
from coresteer_core.changes.report import ChangeMessage, ChangeState, EndedBy
from coresteer_core.cpuset import format_cpu_list, parse_cpu_mask
from coresteer_core.node.tasks import NetTask
from coresteer_core.protocol import Apply, Confirm, Rollback
from coresteer_core.settings import parse_setting

IRQS = range(41, 45)
RPS = "sys/class/net/eth0/queues/rx-0/rps_cpus"
NUMA_BALANCING = "proc/sys/kernel/numa_balancing"
BEFORE = ["0-7"] * len(IRQS) + ["", "1"]
MOVED = ["2"] * len(IRQS) + ["2", "0"]

MOVES = [
    *(Action(f"irq/{irq}/affinity", "0-7", "2", "drill") for irq in IRQS),
    Action("netdev/eth0/rx-0/rps", "none", "2", "drill"),
    Action("kernel/numa_balancing", "1", "0", "drill"),
]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    for irq in IRQS:
        (root / f"proc/irq/{irq}").mkdir(parents=True)
    (root / RPS).parent.mkdir(parents=True)
    (root / NUMA_BALANCING).parent.mkdir(parents=True)
    reset(root)
    return root


def reset(root: Path) -> None:
    (root / RPS).write_text("00\n")
    (root / NUMA_BALANCING).write_text("1\n")
    for irq in IRQS:
        (root / f"proc/irq/{irq}/smp_affinity_list").write_text("0-7\n")


def stands(root: Path) -> list[str]:
    """The interrupts' affinities, the queue's RPS as a CPU list, and numa_balancing."""
    rps = format_cpu_list(parse_cpu_mask((root / RPS).read_text()))
    return [*irq_affinities(root), rps, (root / NUMA_BALANCING).read_text().strip()]


def irq_affinities(root: Path) -> list[str]:
    return [(root / f"proc/irq/{irq}/smp_affinity_list").read_text().strip() for irq in IRQS]


def changes_of(path: Path, root: Path, tasks: Sequence[NetTask] = ()) -> NodeChanges:
    return NodeChanges(root, path, None, lambda: make_view(8, tasks=list(tasks)), lambda _: None)


def apply_moves(path: Path, root: Path, moves: Sequence[Action] = MOVES) -> Operation:
    """Return an operation that applies a change."""

    def operation(begin: Callable[[], None]) -> None:
        pids = [pid for move in moves if (pid := parse_setting(move.key).process) is not None]
        tasks = [observed_task(pid) for pid in pids]
        begin()
        changes_of(path, root, tasks).handle(Apply("c1", Plan(list(moves)), 120))

    return operation


def end_moves(path: Path, root: Path, how: str) -> Operation:
    """Return an operation that ends a change that it has applied: by confirm, undo or restore."""

    def operation(begin: Callable[[], None]) -> None:
        changes = changes_of(path, root)
        changes.handle(Apply("c1", Plan(MOVES), 120))
        begin()
        if how == "restore":
            restore(path, root)
        else:
            changes.handle(Confirm("c1") if how == "confirm" else Rollback("c1"))

    return operation


def test_a_kill_at_any_instant_leaves_every_original_restorable(tmp_path: Path, root: Path) -> None:
    calls = count_operations(apply_moves(tmp_path / "whole.jsonl", root))
    assert stands(root) == MOVED
    assert calls > 50
    moved = set()
    for instant in range(1, calls + 1):
        reset(root)
        path = tmp_path / f"{instant}/journal.jsonl"
        kill_at(instant, apply_moves(path, root), torn=instant % 10)
        moved.add(tuple(stands(root)))
        results = restore(path, root)
        assert stands(root) == BEFORE, f"killed at call {instant} of {calls}: {results}"
        assert all(result.outcome in ("applied", "unchanged") for result in results or [])
        assert not restore(path, root)
    assert len(moved) > len(IRQS), "the kills have to hit between the writes as well"


@pytest.mark.parametrize("doing", ["confirm", "undo", "restore"])
def test_a_kill_while_confirming_undoing_or_restoring_leaves_every_original_restorable(
    tmp_path: Path, root: Path, doing: str
) -> None:
    calls = count_operations(end_moves(tmp_path / "whole.jsonl", root, doing))
    step = max(1, calls // 20)
    for instant in range(1, calls + 1, step):
        reset(root)
        path = tmp_path / f"{instant}/journal.jsonl"
        kill_at(instant, end_moves(path, root, doing), torn=instant % 10)
        results = restore(path, root)
        assert stands(root) == BEFORE, f"killed at call {instant} of {calls}: {results}"
        assert not restore(path, root)
        (root / "proc/irq/41/smp_affinity_list").write_text("5\n")
        NodeChanges(root, path, None, lambda: EMPTY, lambda _: None).close()
        assert stands(root)[0] == "5", f"the next start overwrote a later value, killed at call {instant}"


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="Moving a process needs two CPUs.")
@pytest.mark.skipif(not is_running_kernel(Path("/")), reason="There is no /proc of the running kernel here.")
def test_a_kill_at_any_instant_leaves_a_processs_affinity_restorable(tmp_path: Path) -> None:
    first, *_, last = sorted(os.sched_getaffinity(0))
    original = format_cpu_list({first, last})
    root = Path("/")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        os.sched_setaffinity(process.pid, {first, last})
        move = Action(f"task/{process.pid}/affinity", original, str(last), "drill")
        calls = count_operations(apply_moves(tmp_path / "whole.jsonl", root, [move]))
        assert os.sched_getaffinity(process.pid) == {last}
        moved = set()
        for instant in range(1, calls + 1, 2):
            os.sched_setaffinity(process.pid, {first, last})
            path = tmp_path / f"{instant}/journal.jsonl"
            kill_at(instant, apply_moves(path, root, [move]), torn=instant % 10)
            moved.add(frozenset(os.sched_getaffinity(process.pid)))
            results = restore(path, root)
            assert os.sched_getaffinity(process.pid) == {first, last}, f"killed at call {instant}: {results}"
            assert not restore(path, root)
        assert len(moved) == 2, "the kills have to hit before and after the write"
        process.kill()


def test_an_interrupted_restore_exits_with_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("coresteer_agent.apply.restore.restore", interrupted)
    assert main(["restore", "--state-dir", str(tmp_path)]) == 130


def test_an_agent_that_starts_after_a_kill_rolls_back_the_interrupted_change(tmp_path: Path, root: Path) -> None:
    calls = count_operations(apply_moves(tmp_path / "whole.jsonl", root))
    rolled_back = 0
    for instant in range(1, calls + 1, 3):
        reset(root)
        path = tmp_path / f"{instant}/journal.jsonl"
        kill_at(instant, apply_moves(path, root))
        journal = Journal(path, root)
        executor = Executor(root, journal, lambda: EMPTY)
        state, instructions = advance(Changes(), AgentRestarted(journal.changes()), 0.0)
        for todo in instructions:
            if isinstance(todo, RunInverse):
                results = [executor.undo(action) for action in todo.plan.actions]
                state, _ = advance(state, InverseRan(todo.change_id, results), 0.0)
                assert state.changes["c1"].state is ChangeState.ROLLED_BACK
                assert state.changes["c1"].ended_by is EndedBy.AGENT_RESTART
                rolled_back += 1
        assert stands(root) == BEFORE, f"killed at call {instant}"
        journal.close()
    assert rolled_back > 5


def test_the_agent_notices_a_restore_by_another_process(tmp_path: Path, root: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl", root)
    executor = Executor(root, journal, lambda: make_view(8))
    executor.apply(Action("irq/41/affinity", "0-7", "2", "test"), change_id="c")
    (result,) = restore(journal.path, root) or []
    assert result.sentence == "IRQ 41 was restored to 0-7."
    assert journal.restored_by_others() == {"irq/41/affinity"}
    assert executor.apply(Action("irq/41/affinity", "0-7", "3", "test"), change_id="d").outcome == "applied"
    journal.close()


def cli(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "coresteer_agent", *arguments]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CORESTEER_")}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)


@pytest.fixture
def changed(tmp_path: Path, root: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """The command line's restore, after all four interrupts were moved."""
    state = tmp_path / "state"
    count_operations(apply_moves(state / "agent/journal.jsonl", root))
    return lambda *more: cli("restore", "--root", str(root), "--state-dir", str(state), *more)


def test_the_restore_command_prints_one_line_per_setting_and_is_idempotent(
    changed: Callable[..., subprocess.CompletedProcess[str]], root: Path
) -> None:
    done = changed()
    assert (done.returncode, done.stderr) == (0, "")
    lines = [
        "kernel.numa_balancing was restored to 1.",
        "RPS of eth0 rx-0 was restored to none.",
        *(f"IRQ {irq} was restored to 0-7." for irq in reversed(IRQS)),
    ]
    assert done.stdout.splitlines() == lines
    assert stands(root) == BEFORE
    again = changed()
    assert (again.returncode, again.stdout) == (0, "Nothing to restore: every setting has its original value.\n")


def test_the_restore_command_exits_1_with_the_reason_when_a_setting_cannot_be_restored(
    changed: Callable[..., subprocess.CompletedProcess[str]], root: Path
) -> None:
    (root / "proc/irq/42/smp_affinity_list").chmod(0o444)
    done = changed("-o", "json")
    assert done.returncode == 1
    assert '"outcome":"refused"' in done.stdout
    assert stands(root) == ["0-7", "2", "0-7", "0-7", "", "1"]
    (root / "proc/irq/42/smp_affinity_list").chmod(0o644)
    assert changed().returncode == 0
    assert stands(root) == BEFORE


def test_the_restore_command_names_a_missing_journal(tmp_path: Path) -> None:
    done = cli("restore", "--state-dir", str(tmp_path))
    assert done.returncode == 0
    assert f"There is no journal at {tmp_path}/agent/journal.jsonl: Coresteer has changed nothing" in done.stdout
    assert "--state-dir" in done.stdout


def test_the_restore_command_restores_what_is_left_of_a_damaged_journal_and_exits_1(
    changed: Callable[..., subprocess.CompletedProcess[str]], root: Path, tmp_path: Path
) -> None:
    for file in (tmp_path / "state/agent").glob("journal*.jsonl"):
        lines = file.read_bytes().splitlines(keepends=True)
        third = next(number for number, line in enumerate(lines) if b"irq/43/affinity" in line and b"writing" in line)
        file.write_bytes(b"".join(lines[:third]) + bytes(1000))
    done = changed()
    assert done.returncode == 1
    assert "and its copy are damaged" in done.stderr
    assert "IRQ 42 was restored to 0-7." in done.stderr
    assert irq_affinities(root) == ["0-7", "0-7", "2", "2"]


def test_the_restore_command_names_the_root_directory_of_the_journal(
    changed: Callable[..., subprocess.CompletedProcess[str]], root: Path, tmp_path: Path
) -> None:
    done = changed("--root", str(tmp_path))
    assert done.returncode == 1
    assert f"give --root {root}" in done.stderr
    assert stands(root) == MOVED


def test_a_read_only_disk_does_not_prevent_restore(tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "state/agent/journal.jsonl"
    count_operations(apply_moves(path, root))
    real = os.open

    def read_only(name: str | Path, flags: int, *more: int, **named: int) -> int:
        if str(name).startswith(str(path.parent)) and flags & (os.O_RDWR | os.O_WRONLY | os.O_CREAT):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return real(name, flags, *more, **named)

    monkeypatch.setattr(os, "open", read_only)
    results = restore(path, root)
    assert stands(root) == BEFORE
    assert results is not None
    assert [result.sentence.partition(". ")[0] for result in results] == [
        "kernel.numa_balancing was restored to 1",
        "RPS of eth0 rx-0 was restored to none",
        *(f"IRQ {irq} was restored to 0-7" for irq in reversed(IRQS)),
    ]
    assert all(result.sentence.endswith("could not record it: Read-only file system.") for result in results)


def test_a_full_disk_does_not_prevent_restore(tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "state/agent/journal.jsonl"
    count_operations(apply_moves(path, root))

    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    results = restore(path, root)
    assert stands(root) == BEFORE
    assert results is not None
    assert all("No space left on device" in result.sentence and result.done for result in results)


def test_a_value_set_by_hand_after_a_restore_is_not_overwritten_by_the_next_start(tmp_path: Path, root: Path) -> None:
    calls = count_operations(apply_moves(tmp_path / "whole.jsonl", root))
    for instant in range(1, calls + 1, 7):
        reset(root)
        path = tmp_path / f"{instant}/journal.jsonl"
        kill_at(instant, apply_moves(path, root))
        restore(path, root)
        (root / "proc/irq/41/smp_affinity_list").write_text("5\n")
        NodeChanges(root, path, None, lambda: EMPTY, lambda _: None).close()
        assert stands(root)[0] == "5", f"killed at call {instant}"


def test_a_confirmation_that_the_journal_cannot_record_is_not_reported_as_confirmed(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[ChangeMessage] = []
    keeper = NodeChanges(root, tmp_path / "journal.jsonl", None, lambda: make_view(8), told.append)
    keeper.handle(Apply("c", Plan([Action("irq/41/affinity", "0-7", "2", "test")]), 60))

    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as disk:
        disk.setattr(os, "fsync", full)
        keeper.handle(Confirm("c"))
    keeper.handle(Confirm("c"))
    keeper.close()
    assert [message.state for message in told[1:]] == [
        ChangeState.UNCONFIRMED,
        ChangeState.UNCONFIRMED,
        ChangeState.CONFIRMED,
    ]
    assert told[2].remaining_s is not None
    assert told[2].sentence.endswith("(No space left on device), so the change cannot be confirmed yet.")


def test_settings_that_a_policy_restored_can_be_changed_although_the_journal_could_not_record_it(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[ChangeMessage] = []
    keeper = NodeChanges(root, tmp_path / "journal.jsonl", None, lambda: make_view(8), told.append)
    move = Plan([Action("irq/41/affinity", "0-7", "2", "test")])
    keeper.handle(Apply("c", move, 60))
    keeper.handle(Confirm("c"))

    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as disk:
        disk.setattr(os, "fsync", full)
        keeper.feed(RestoreRequested("r", inverse(move), "spread", "The policy was disabled."))
    keeper.handle(Apply("d", move, 60))
    keeper.close()
    last = {message.change_id: message.state for message in told}
    assert last == {"c": ChangeState.CONFIRMED, "r": ChangeState.CONFIRMED, "d": ChangeState.UNCONFIRMED}
