"""Real processes of the test's own on the running kernel."""

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.polling import poll
from tests.support.views import make_view, observed_children, observed_task

from coresteer_agent.apply.executor import Executor
from coresteer_agent.apply.journal import Journal
from coresteer_agent.apply.restore import restore
from coresteer_agent.apply.task_affinity import TaskAffinityHandler
from coresteer_agent.collect.cpuset import read_cpuset
from coresteer_agent.collect.irq import is_running_kernel
from coresteer_agent.runtime.changes import NodeChanges
from coresteer_core.changes.plan import Action, DesiredValue, Plan, preview
from coresteer_core.changes.report import ChangeMessage, ChangeState, Outcome
from coresteer_core.node.tasks import NetTask
from coresteer_core.protocol import Apply
from coresteer_core.settings import TaskAffinity

ROOT = Path("/")
ALL = sorted(os.sched_getaffinity(0))
FIRST, SECOND = ALL[0], ALL[-1]
BOTH = f"{FIRST}-{SECOND}" if SECOND == FIRST + 1 else f"{FIRST},{SECOND}"

pytestmark = [
    pytest.mark.skipif(not is_running_kernel(ROOT), reason="There is no /proc of the running kernel here."),
    pytest.mark.skipif(len(ALL) < 2, reason="Moving needs two CPUs."),
]

# three threads, of which the first two have an affinity of their own; told when they are there
CHILD = f"""
import os, sys, threading
def work(cpus, ready):
    if cpus:
        os.sched_setaffinity(0, cpus)
    ready.release()
    threading.Event().wait()
ready = threading.Semaphore(0)
os.sched_setaffinity(0, {{{FIRST}, {SECOND}}})
for cpus in ({{{FIRST}}}, {{{SECOND}}}, None):
    threading.Thread(target=work, args=(cpus, ready), daemon=True).start()
for _ in range(3):
    ready.acquire()
print("ready", flush=True)
for line in sys.stdin:
    thread = threading.Thread(target=work, args=(None, ready), daemon=True)
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
    return tmp_path / "agent/journal.jsonl"


@pytest.fixture
def journal(path: Path) -> Iterator[Journal]:
    journal = Journal(path, ROOT)
    yield journal
    journal.close()


@pytest.fixture
def executor(journal: Journal) -> Executor:
    return Executor(ROOT, journal, lambda: make_view(ALL, tasks=observed_children()))


def threads(process: subprocess.Popen[str]) -> list[int]:
    return [int(folder.name) for folder in Path(f"/proc/{process.pid}/task").iterdir()]


def affinities(process: subprocess.Popen[str]) -> dict[int, set[int]]:
    return {t: os.sched_getaffinity(t) for t in threads(process)}


def test_every_thread_is_moved_and_gets_its_own_original_affinity_back(
    executor: Executor, path: Path, child: subprocess.Popen[str]
) -> None:
    before = affinities(child)
    assert len({frozenset(cpus) for cpus in before.values()}) == 3
    result = executor.apply(Action(f"task/{child.pid}/affinity", BOTH, str(SECOND), "test"), change_id="c")
    assert result.outcome is Outcome.APPLIED, result
    assert set(map(frozenset, affinities(child).values())) == {frozenset({SECOND})}
    [back] = restore(path, ROOT) or []
    assert affinities(child) == before
    assert back.sentence.startswith(f"PID {child.pid} was restored to {BOTH};")
    assert not restore(path, ROOT)


def test_an_affinity_is_restored_as_far_as_its_cpus_are_online(
    executor: Executor, journal: Journal, child: subprocess.Popen[str]
) -> None:
    original = f"{BOTH},4000"
    journal.record_original("c", f"task/{child.pid}/affinity", original, [])
    result = executor.undo(Action(f"task/{child.pid}/affinity", str(SECOND), original, "test"))
    assert (result.done, journal.originals()) == (True, {}), result
    assert "4000" not in (result.read_back or "")


def test_the_agent_does_not_change_its_own_process(journal: Journal) -> None:
    own = NetTask(os.getpid(), 1, "coresteer-agent", None, 1, BOTH, BOTH, FIRST, 0.0, 0.0, [])
    executor = Executor(ROOT, journal, lambda: make_view(ALL, tasks=[own]))
    result = executor.apply(Action(f"task/{own.pid}/affinity", BOTH, str(SECOND), "test"), change_id="c")
    assert (result.outcome, result.sentence) == (
        Outcome.REFUSED,
        f"PID {own.pid} is this agent, which changes no settings of its own process.",
    )
    assert os.sched_getaffinity(0) == set(ALL)


def test_a_process_that_reuses_the_pid_of_the_previewed_one_is_refused(
    journal: Journal, child: subprocess.Popen[str]
) -> None:
    before = affinities(child)
    ended = NetTask(child.pid, 1, "nginx", None, 1, BOTH, BOTH, FIRST, 0.0, 0.0, [])
    executor = Executor(ROOT, journal, lambda: make_view(ALL, tasks=[ended]))
    result = executor.apply(Action(f"task/{child.pid}/affinity", BOTH, str(SECOND), "test"), change_id="c")
    assert result.outcome is Outcome.REFUSED
    assert (
        result.sentence
        == f"This node has no process {child.pid} that communicates over the network, used 0.2 CPUs in the last 30 s "
        "or has 256 MiB of memory."
    )
    assert affinities(child) == before


def test_a_thread_that_cannot_be_set_does_not_prevent_restoring_the_others(
    executor: Executor, path: Path, child: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = affinities(child)
    executor.apply(Action(f"task/{child.pid}/affinity", BOTH, str(SECOND), "test"), change_id="c")
    set_affinity = os.sched_setaffinity

    def refuse_the_main_thread(thread: int, cpus: set[int]) -> None:
        if thread == child.pid:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        set_affinity(thread, cpus)

    monkeypatch.setattr(os, "sched_setaffinity", refuse_the_main_thread)
    [stuck] = restore(path, ROOT) or []
    assert stuck.stuck
    assert affinities(child) == {**before, child.pid: {SECOND}}
    monkeypatch.undo()
    restore(path, ROOT)
    assert affinities(child) == before


def test_threads_that_were_moved_before_another_one_was_refused_are_moved_back(
    path: Path, child: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = affinities(child)
    fenced = max(before)
    set_affinity = os.sched_setaffinity

    def refuse_a_thread(thread: int, cpus: set[int]) -> None:
        """As the kernel does for a thread in another cpuset than its process."""
        if thread == fenced and cpus == {SECOND}:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        set_affinity(thread, cpus)

    monkeypatch.setattr(os, "sched_setaffinity", refuse_a_thread)
    told: list[ChangeMessage] = []
    changes = NodeChanges(ROOT, path, None, lambda: make_view(ALL, tasks=observed_children()), told.append)
    changes.handle(Apply("c", Plan([Action(f"task/{child.pid}/affinity", BOTH, str(SECOND), "test")]), 60))
    changes.close()
    assert affinities(child) == before
    assert told[-1].state is ChangeState.FAILED
    assert "The kernel rejects this set of CPUs" in told[-1].sentence
    assert "another program" not in told[-1].sentence
    assert not restore(path, ROOT)


def test_a_write_of_the_original_value_restores_each_threads_own_original(
    executor: Executor, child: subprocess.Popen[str]
) -> None:
    before = affinities(child)
    key = f"task/{child.pid}/affinity"
    executor.apply(Action(key, BOTH, str(SECOND), "test"), change_id="c")
    assert executor.apply(Action(key, str(SECOND), BOTH, "test"), change_id="d").outcome is Outcome.APPLIED
    assert affinities(child) == before


def test_a_thread_that_started_later_gets_the_original_of_the_main_thread(
    executor: Executor, child: subprocess.Popen[str]
) -> None:
    key = f"task/{child.pid}/affinity"
    executor.apply(Action(key, BOTH, str(SECOND), "test"), change_id="c")
    assert child.stdin is not None
    assert child.stdout is not None
    print(file=child.stdin, flush=True)
    new = int(child.stdout.readline())
    assert os.sched_getaffinity(new) == {SECOND}
    result = executor.undo(Action(key, str(SECOND), BOTH, "test"))
    assert result.outcome is Outcome.APPLIED, result
    assert os.sched_getaffinity(new) == {FIRST, SECOND}


def test_a_thread_that_has_ended_is_ignored(executor: Executor, journal: Journal) -> None:
    ending = f"""
import os, threading
os.sched_setaffinity(0, {{{FIRST}, {SECOND}}})
def work():
    os.sched_setaffinity(0, {{{FIRST}}})
    ready.set()
    end.wait()
ready, end = threading.Event(), threading.Event()
thread = threading.Thread(target=work)
thread.start()
ready.wait()
print("ready", flush=True)
input()
end.set()
thread.join()
print("ended", flush=True)
input()
"""
    arguments = [sys.executable, "-c", ending]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        key = f"task/{process.pid}/affinity"
        executor.apply(Action(key, BOTH, str(SECOND), "test"), change_id="c")
        assert ";" in journal.originals()[key]
        print(file=process.stdin, flush=True)
        process.stdout.readline()
        threads = Path(f"/proc/{process.pid}/task")
        poll(lambda: len([*threads.iterdir()]) == 1)  # Python has joined it, the kernel may not have removed it yet
        result = executor.undo(Action(key, str(SECOND), BOTH, "test"))
        assert (result.outcome, result.read_back) == (Outcome.APPLIED, BOTH), result
        assert journal.originals() == {}
        process.kill()


def test_a_process_that_ended_is_unsupported_and_its_original_is_deleted(
    executor: Executor, journal: Journal, child: subprocess.Popen[str]
) -> None:
    key = f"task/{child.pid}/affinity"
    executor.apply(Action(key, BOTH, str(SECOND), "test"), change_id="c")
    child.kill()
    child.wait()
    result = executor.undo(Action(key, str(SECOND), BOTH, "test"))
    assert result.outcome is Outcome.UNSUPPORTED
    assert result.sentence == f"PID {child.pid} does not exist on this node (any more)."
    assert journal.originals() == {}


def test_another_process_with_the_same_pid_is_not_changed(
    executor: Executor, journal: Journal, child: subprocess.Popen[str]
) -> None:
    key = f"task/{child.pid}/affinity"
    journal.record_original("c", key, str(FIRST), ["the process that started at tick 1"])
    before = affinities(child)
    result = executor.undo(Action(key, "", str(FIRST), "Restore"))
    assert result.outcome is Outcome.UNSUPPORTED
    assert result.sentence.startswith(
        f"PID {child.pid} no longer exists: it belonged to the process that started at tick "
    )
    assert affinities(child) == before


def test_a_process_is_the_same_after_exec() -> None:
    becoming = ["sh", "-c", "read go; exec cat"]
    with subprocess.Popen(becoming, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        before = TaskAffinityHandler().owners(ROOT, TaskAffinity(process.pid))
        process.stdin.write("go\nI am cat\n")
        process.stdin.flush()
        assert process.stdout.readline() == "I am cat\n"
        assert TaskAffinityHandler().owners(ROOT, TaskAffinity(process.pid)) == before != []


@pytest.mark.skipif(os.geteuid() != 0, reason="Only root would be let do more than the guard.")
def test_a_bound_kernel_thread_is_refused(journal: Journal) -> None:
    bound = next(
        int(stat.parent.name)
        for stat in Path("/proc").glob("[0-9]*/stat")
        if int(stat.read_text().rpartition(") ")[2].split()[6]) & 0x0400_0000
    )
    executor = Executor(ROOT, journal, lambda: make_view(ALL, tasks=[observed_task(bound)]))
    result = executor.apply(Action(f"task/{bound}/affinity", BOTH, str(SECOND), "test"), change_id="c")
    assert result.outcome is Outcome.REFUSED
    assert result.sentence.endswith("is a kernel thread that is bound to its CPUs.")


def test_a_thread_is_not_a_process(executor: Executor, child: subprocess.Popen[str]) -> None:
    thread = max(affinities(child))
    assert thread != child.pid
    result = executor.apply(Action(f"task/{thread}/affinity", BOTH, str(SECOND), "test"), change_id="c")
    assert result.outcome is Outcome.UNSUPPORTED


def test_processes_of_a_captured_tree_are_unsupported(tmp_path: Path, journal: Journal) -> None:
    executor = Executor(tmp_path, journal, lambda: pytest.fail("no view is needed"))
    assert executor.apply(Action("task/1/affinity", "0", "1", ""), change_id="c").outcome is Outcome.UNSUPPORTED


@pytest.fixture
def fenced(child: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    """The child in a cpuset (cgroup v1) with the first CPU only."""
    top = Path("/sys/fs/cgroup/cpuset")
    group = top / f"coresteer-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"No cpuset can be made here: {error.strerror}.")
    try:
        (group / "cpuset.mems").write_text((top / "cpuset.mems").read_text())
        (group / "cpuset.cpus").write_text(str(FIRST))
        (group / "cgroup.procs").write_text(str(child.pid))
        yield child
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
        group.rmdir()


def test_a_process_with_all_cpus_of_its_cpuset_is_unbound_so_that_it_follows_its_cpuset(
    fenced: subprocess.Popen[str],
) -> None:
    cpuset = Path(f"/sys/fs/cgroup/cpuset/coresteer-test-{os.getpid()}/cpuset.cpus")
    setting, handler = TaskAffinity(fenced.pid), TaskAffinityHandler()
    handler.write(ROOT, setting, str(FIRST))
    assert handler.read(ROOT, setting) == str(FIRST)
    cpuset.write_text(BOTH)
    assert handler.read(ROOT, setting) == BOTH
    handler.write(ROOT, setting, str(FIRST))
    assert handler.read(ROOT, setting) == str(FIRST)


def test_a_cpuset_is_respected(executor: Executor, fenced: subprocess.Popen[str]) -> None:
    assert read_cpuset(ROOT, fenced.pid) == frozenset({FIRST})
    asked = Action(f"task/{fenced.pid}/affinity", str(FIRST), str(SECOND), "test")
    result = executor.apply(asked, change_id="c")
    assert result.outcome is Outcome.REFUSED
    assert result.sentence.startswith(f"CPU {SECOND} is not in the cpuset of ")
    assert result.sentence.endswith(f"({fenced.pid}), which has CPU {FIRST}.")


@pytest.mark.parametrize(
    ("cgroup", "files", "cpus"),
    [
        ("0::/web.slice/a.service", {"web.slice/cpuset.cpus.effective": "2-3"}, {2, 3}),
        ("0::/web.slice", {"web.slice/cpuset.cpus.effective": "2-3", "cpuset.cpus.effective": "0-7"}, {2, 3}),
        ("0::/user.slice", {"cpuset.cpus.effective": "0-7"}, set(range(8))),
        ("0::/user.slice", {}, None),
        ("3:cpu,cpuset:/a\n0::/", {"cpuset/a/cpuset.effective_cpus": "1"}, {1}),
        ("0::/x", {"unified/x/cpuset.cpus.effective": "5"}, {5}),
        ("", {"cpuset.cpus.effective": "0-7"}, None),
        ("0::/../web.slice", {"cpuset.cpus.effective": "0-7"}, None),
    ],
)
def test_the_cpuset_is_that_of_the_nearest_cgroup_with_one(
    tmp_path: Path, cgroup: str, files: dict[str, str], cpus: set[int] | None
) -> None:
    (tmp_path / "proc/812").mkdir(parents=True)
    (tmp_path / "proc/812/cgroup").write_text(f"{cgroup}\n")
    for name, text in files.items():
        file = tmp_path / "sys/fs/cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
    assert read_cpuset(tmp_path, 812) == (None if cpus is None else frozenset(cpus))


def test_a_task_that_is_not_in_the_view_is_refused_in_the_preview() -> None:
    [refusal] = preview(make_view(1), [DesiredValue("task/812/affinity", "0")], reason="").refused
    assert refusal.code == "unknown"
