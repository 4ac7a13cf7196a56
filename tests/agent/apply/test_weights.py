"""Nice values of the test's own processes, weights of cgroups on a captured tree and of one of the test's own."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.support.kills import count_operations, kill_at
from tests.support.views import make_view, observed_task

from coresteer_agent.apply.executor import Executor
from coresteer_agent.apply.journal import Journal
from coresteer_agent.apply.restore import restore
from coresteer_agent.collect.irq import is_running_kernel
from coresteer_core.changes.plan import Action
from coresteer_core.changes.report import Outcome
from coresteer_core.node.tasks import NetTask
from coresteer_core.node.view import View

ROOT = Path("/")
MINE = os.getpriority(os.PRIO_PROCESS, 0)
live = pytest.mark.skipif(not is_running_kernel(ROOT), reason="There is no /proc of the running kernel here.")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="Only root may lower a nice value or write a cgroup's files.")

# three threads, one nicer than the others; another one for each line
CHILD = """
import os, sys, threading
def work(nicer, ready):
    if nicer:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), os.getpriority(os.PRIO_PROCESS, 0) + 3)
    ready.release()
    threading.Event().wait()
ready = threading.Semaphore(0)
for nicer in (False, True):
    threading.Thread(target=work, args=(nicer, ready), daemon=True).start()
for _ in range(2):
    ready.acquire()
print("ready", flush=True)
for line in sys.stdin:
    thread = threading.Thread(target=work, args=(False, ready), daemon=True)
    thread.start()
    ready.acquire()
    print(thread.native_id, flush=True)
"""


@pytest.fixture
def child() -> Iterator[subprocess.Popen[str]]:
    arguments = [sys.executable, "-c", CHILD]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        process.kill()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state/agent/journal.jsonl"


@pytest.fixture
def open_executor(path: Path) -> Iterator[Callable[[Path, View], Executor]]:
    journals = []

    def open_one(root: Path, view: View) -> Executor:
        journals.append(Journal(path, root))
        return Executor(root, journals[-1], lambda: view)

    yield open_one
    for journal in journals:
        journal.close()


def nices(process: subprocess.Popen[str]) -> dict[int, int]:
    threads = [int(folder.name) for folder in Path(f"/proc/{process.pid}/task").iterdir()]
    return {thread: os.getpriority(os.PRIO_PROCESS, thread) for thread in threads}


@live
@as_root
def test_every_thread_gets_the_nice_value_and_its_own_original_back(
    open_executor: Callable[[Path, View], Executor], path: Path, child: subprocess.Popen[str]
) -> None:
    before = nices(child)
    assert set(before.values()) == {MINE, MINE + 3}
    executor = open_executor(ROOT, make_view(1, tasks=[observed_task(child.pid)]))
    key = f"task/{child.pid}/nice"
    result = executor.apply(Action(key, str(MINE), str(MINE + 6), "test"), change_id="c")
    assert result.outcome is Outcome.APPLIED, result
    assert set(nices(child).values()) == {MINE + 6}
    assert child.stdin is not None
    assert child.stdout is not None
    print(file=child.stdin, flush=True)
    started = int(child.stdout.readline())
    assert executor.steer(Action(key, str(MINE + 6), str(MINE + 4), "test")).outcome is Outcome.APPLIED
    assert set(nices(child).values()) == {MINE + 4}
    [back] = restore(path, ROOT) or []
    assert back.done, back
    assert nices(child) == {**before, started: MINE}


@live
def test_another_process_with_the_same_pid_is_not_changed(
    open_executor: Callable[[Path, View], Executor], child: subprocess.Popen[str], path: Path
) -> None:
    key = f"task/{child.pid}/nice"
    before = nices(child)
    ended = NetTask(child.pid, 1, "nginx", None, 1, "", "", 0, 0.0, 0.0, [])
    executor = open_executor(ROOT, make_view(1, tasks=[ended]))
    refused = executor.apply(Action(key, str(MINE), str(MINE + 1), "test"), change_id="c")
    assert refused.outcome is Outcome.REFUSED
    journal = Journal(path, ROOT)
    journal.record_original("c", key, str(MINE), ["the process that started at tick 1"])
    journal.close()
    assert executor.steer(Action(key, str(MINE), str(MINE + 1), "test")).outcome is Outcome.UNSUPPORTED
    assert executor.undo(Action(key, "", str(MINE), "test")).outcome is Outcome.UNSUPPORTED
    assert nices(child) == before
    undone = executor.undo(Action(key, "", str(MINE + 1), "after its original was forgotten"))
    assert undone.outcome is Outcome.UNSUPPORTED
    assert "has nothing left to restore" in undone.sentence
    assert nices(child) == before


@live
@as_root
def test_a_kernel_thread_and_a_real_time_task_are_refused(
    open_executor: Callable[[Path, View], Executor], child: subprocess.Popen[str]
) -> None:
    kernel = next(
        int(stat.parent.name)
        for stat in Path("/proc").glob("[0-9]*/stat")
        if int(stat.read_text().rpartition(") ")[2].split()[6]) & 0x0020_0000
    )
    executor = open_executor(ROOT, make_view(1, tasks=[observed_task(kernel), observed_task(child.pid)]))
    was = str(os.getpriority(os.PRIO_PROCESS, kernel))
    result = executor.apply(Action(f"task/{kernel}/nice", was, "5", "test"), change_id="c")
    assert result.outcome is Outcome.REFUSED
    assert "is a kernel thread" in result.sentence
    try:
        os.sched_setscheduler(child.pid, os.SCHED_FIFO, os.sched_param(1))
    except PermissionError:
        pytest.skip("The kernel gives this cgroup no real-time tasks.")
    result = executor.apply(Action(f"task/{child.pid}/nice", str(MINE), "5", "test"), change_id="c")
    assert result.outcome is Outcome.REFUSED
    assert "is a real-time task" in result.sentence


# Cgroups

VIEW = make_view(
    1,
    cgroups={"web.slice/a b.service": {"cpu.weight": "100", "io.weight": "100"}, "db": {"cpu.shares": "1024"}},
)
FILES = {
    "cgroup/web.slice/a b.service/cpu.weight": ("sys/fs/cgroup/web.slice/a b.service/cpu.weight", "100\n", "100"),
    "cgroup/web.slice/a b.service/io.weight": (
        "sys/fs/cgroup/unified/web.slice/a b.service/io.weight", "default 100\n8:16 50\n", "100",
    ),
    "cgroup/db/cpu.shares": ("sys/fs/cgroup/cpu,cpuacct/db/cpu.shares", "1024\n", "1024"),
}  # fmt: skip


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    for file, text, _ in FILES.values():
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text(text)
    return root


@pytest.mark.parametrize("key", FILES)
def test_a_weight_is_written_read_back_steered_and_restored(
    open_executor: Callable[[Path, View], Executor], path: Path, root: Path, key: str
) -> None:
    file, text, was = FILES[key]
    executor = open_executor(root, VIEW)
    assert executor.apply(Action(key, was, "300", "test"), change_id="c").outcome is Outcome.APPLIED
    assert executor.steer(Action(key, "300", "250", "test")).outcome is Outcome.APPLIED
    assert (root / file).read_text().removeprefix("default ") == "250\n"
    result = executor.steer(Action(key, "300", "200", "test"))
    assert result.outcome is Outcome.REFUSED
    assert result.sentence.endswith("is 250 instead of 300: another program changed it.")
    [back] = restore(path, root) or []
    assert back.done
    assert (root / file).read_text().split() == text.split()[: 2 if "default" in text else 1]


def test_a_setting_that_no_change_has_set_is_not_steered(
    open_executor: Callable[[Path, View], Executor], root: Path
) -> None:
    executor = open_executor(root, VIEW)
    result = executor.steer(Action("cgroup/db/cpu.shares", "1024", "2048", "test"))
    assert result.outcome is Outcome.REFUSED
    assert result.sentence == "No open or confirmed change has set cpu.shares of db, so it is not steered."
    assert (root / FILES["cgroup/db/cpu.shares"][0]).read_text() == "1024\n"


def test_steering_out_of_bounds_is_refused_and_steering_to_the_original_keeps_it_in_the_journal(
    open_executor: Callable[[Path, View], Executor], root: Path, path: Path
) -> None:
    executor = open_executor(root, VIEW)
    key = "cgroup/db/cpu.shares"
    executor.apply(Action(key, "1024", "2048", "test"), change_id="c")
    assert executor.steer(Action(key, "2048", "1", "test")).outcome is Outcome.REFUSED
    assert executor.steer(Action(key, "2048", "1024", "test")).outcome is Outcome.APPLIED
    assert executor.steer(Action(key, "1024", "4096", "test")).outcome is Outcome.APPLIED
    assert len(restore(path, root) or []) == 1
    assert (root / FILES[key][0]).read_text() == "1024\n"
    assert executor.steer(Action(key, "1024", "4096", "test")).outcome is Outcome.REFUSED


def test_undo_of_a_steered_setting_reports_no_other_controller(
    open_executor: Callable[[Path, View], Executor], root: Path
) -> None:
    executor = open_executor(root, VIEW)
    key = "cgroup/db/cpu.shares"
    executor.apply(Action(key, "1024", "2048", "test"), change_id="c")
    executor.steer(Action(key, "2048", "4096", "test"))
    assert executor.undo(Action(key, "2048", "1024", "test")).sentence == "cpu.shares of db was restored to 1024."
    executor.apply(Action(key, "1024", "2048", "test"), change_id="d")
    executor.steer(Action(key, "2048", "4096", "test"))
    executor.apply(Action(key, "4096", "512", "another change"), change_id="e")
    assert executor.undo(Action(key, "512", "1024", "test")).sentence == "cpu.shares of db was restored to 1024."


def test_a_cgroup_recreated_with_the_same_path_is_another_cgroup(
    open_executor: Callable[[Path, View], Executor], root: Path, path: Path
) -> None:
    executor = open_executor(root, VIEW)
    key = "cgroup/db/cpu.shares"
    executor.apply(Action(key, "1024", "2048", "test"), change_id="c")
    assert not executor.is_removed(key)
    folder = (root / FILES[key][0]).parent
    folder.rename(folder.with_name("old"))  # which keeps its number from being given again
    assert executor.is_removed(key)
    folder.mkdir()
    (folder / "cpu.shares").write_text("1024\n")
    assert executor.is_removed(key)
    assert executor.steer(Action(key, "2048", "4096", "test")).outcome is Outcome.UNSUPPORTED
    [gone] = restore(path, root) or []
    assert gone.outcome is Outcome.UNSUPPORTED
    assert (folder / "cpu.shares").read_text() == "1024\n"


def test_a_kill_at_any_instant_of_steering_leaves_the_original_restorable(tmp_path: Path, root: Path) -> None:
    file = root / FILES["cgroup/db/cpu.shares"][0]

    def steer(path: Path, begin: Callable[[], None]) -> None:
        executor = Executor(root, Journal(path, root), lambda: make_view(1))
        key = "cgroup/db/cpu.shares"
        executor.apply(Action(key, "1024", "2048", "drill"), change_id="c")
        begin()
        for value in (2048, 2148, 2248):
            assert executor.steer(Action(key, str(value), str(value + 100), "drill")).done

    calls = count_operations(partial(steer, tmp_path / "whole/journal.jsonl"))
    assert calls > 10
    assert file.read_text() == "2348\n"
    file.write_text("1024\n")
    moved = set()
    for instant in range(1, calls + 1, max(1, calls // 12)):
        path = tmp_path / f"{instant}/journal.jsonl"
        kill_at(instant, partial(steer, path))
        moved.add(file.read_text())
        assert [result.done for result in restore(path, root) or []] == [True]
        assert file.read_text() == "1024\n"
    assert len(moved) > 1, "the kills have to hit between the writes as well"


@live
@as_root
def test_the_weight_of_a_real_cgroup_is_set_and_restored(
    open_executor: Callable[[Path, View], Executor], path: Path
) -> None:
    paths = dict(line.split(":", 2)[1:] for line in Path("/proc/self/cgroup").read_text().splitlines())
    home = next((group for controllers, group in paths.items() if "cpu" in controllers.split(",")), None)
    name = f"coresteer-test-{os.getpid()}"
    folder = Path("/sys/fs/cgroup/cpu") / (home or "").lstrip("/") / name
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"No cgroup of version 1 with the CPU can be made here: {error.strerror}.")
    try:
        key = f"cgroup/{(home or '').lstrip('/')}/{name}/cpu.shares".replace("cgroup//", "cgroup/")
        executor = open_executor(ROOT, make_view(1))
        assert executor.apply(Action(key, "1024", "2000", "test"), change_id="c").outcome is Outcome.APPLIED
        assert executor.steer(Action(key, "2000", "2500", "test")).outcome is Outcome.APPLIED
        assert (folder / "cpu.shares").read_text() == "2500\n"
        assert [result.done for result in restore(path, ROOT) or []] == [True]
        assert (folder / "cpu.shares").read_text() == "1024\n"
    finally:
        folder.rmdir()
    assert executor.apply(Action(key, "1024", "2000", "test"), change_id="c").outcome is Outcome.UNSUPPORTED
