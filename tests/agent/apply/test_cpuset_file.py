"""cpuset.cpus and cpuset.mems of cgroups on a captured tree; the real kernel is in the lab (tests/lab/test_numa.py)."""

import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.core.test_cpusets import view

from coresteer_agent.apply import rooted
from coresteer_agent.apply.executor import Executor, run_steps
from coresteer_agent.apply.journal import Journal
from coresteer_agent.apply.restore import restore
from coresteer_agent.collect.cpusets import read_cpusets
from coresteer_agent.simulate.cache import SimulationCache
from coresteer_agent.simulate.machine import make_machine
from coresteer_agent.simulate.node import SimulatedNode
from coresteer_core.changes.plan import Action
from coresteer_core.changes.report import Outcome
from coresteer_core.node.cpusets import Cpuset
from coresteer_core.settings import CpusetMems

KEY = "cgroup/job/cpuset.mems"


@pytest.fixture(params=["sys/fs/cgroup", "sys/fs/cgroup/unified"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    mount = tmp_path / "root" / request.param
    (mount / "job/main").mkdir(parents=True)
    for folder in (mount, mount / "job"):
        (folder / "cpuset.cpus.effective").write_text("0-3\n")
        (folder / "cpuset.mems.effective").write_text("0-1\n")
    (mount / "job/cpuset.cpus").write_text("\n")
    (mount / "job/cpuset.mems").write_text("\n")
    (mount / "job/cgroup.events").write_text("populated 1\nfrozen 0\n")
    (mount / "job/memory.numa_stat").write_text("anon N0=4096 N1=0\nfile N0=9 N1=9\nfile_mapped N0=1 N1=2\n")
    return tmp_path / "root"


@pytest.fixture
def journal(tmp_path: Path, root: Path) -> Iterator[Journal]:
    opened = Journal(tmp_path / "state/journal.jsonl", root)
    yield opened
    opened.close()


def mems(root: Path) -> Path:
    [file] = root.rglob("cpuset.mems")
    return file


def test_cpusets_are_read_with_those_above_them(root: Path) -> None:
    assert read_cpusets(root, ["job/main", "job", "gone"]) == {
        "": Cpuset(None, None, "0-3", "0-1", None),
        "job": Cpuset("", "", "0-3", "0-1", {0: 4097, 1: 2}),
        "job/main": Cpuset(),
        "gone": Cpuset(),
    }
    assert read_cpusets(root / "sys", ["job"]) == {}


def test_a_list_is_written_read_back_and_restored(root: Path, journal: Journal, tmp_path: Path) -> None:
    mems(root).write_text("0\n")
    executor = Executor(root, journal, view)
    result = executor.apply(Action(KEY, "0", "1", "test"), change_id="c")
    assert result.outcome is Outcome.APPLIED, result
    assert mems(root).read_text() == "1\n"
    assert [back.done for back in restore(tmp_path / "state/journal.jsonl", root) or []] == [True]
    assert mems(root).read_text() == "0\n"


def test_the_guard_reads_the_cgroup_again_before_the_write(root: Path, journal: Journal) -> None:
    executor = Executor(root, journal, view)
    (mems(root).parent.parent / "cpuset.mems.effective").write_text("0\n")
    result = executor.apply(Action(KEY, "inherited", "1", "test"), change_id="c")
    assert result.outcome is Outcome.REFUSED
    assert "NUMA node 1 is not in cpuset.mems.effective of the root cgroup" in result.sentence


@pytest.mark.parametrize("emptied", [True, False])
def test_an_empty_list_is_restored_or_replaced_by_that_of_the_parent(
    root: Path, journal: Journal, monkeypatch: pytest.MonkeyPatch, *, emptied: bool
) -> None:
    write = rooted.write_text

    def refuse(root: Path, path: str, text: str) -> None:
        if text == "\n" and not emptied:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(root, path, text)

    monkeypatch.setattr(rooted, "write_text", refuse)
    executor = Executor(root, journal, view)
    assert executor.apply(Action(KEY, "inherited", "1", "test"), change_id="c").done
    back = executor.undo(Action(KEY, "1", "inherited", "test"))
    assert back.done
    assert mems(root).read_text() == ("\n" if emptied else "0-1\n")
    told = "cpuset.mems of job was restored to inherited."
    assert back.sentence == (told if emptied else f"{told} It reads 0-1.")
    assert journal.originals() == {}


def test_other_work_goes_on_while_the_kernel_moves_pages(
    root: Path, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, moved = rooted.write_text, threading.Event()

    def move(root: Path, path: str, text: str) -> None:
        assert moved.wait(10)
        write(root, path, text)

    monkeypatch.setattr(rooted, "write_text", move)
    steps = Executor(root, journal, view).apply_in_steps(Action(KEY, "inherited", "1", "test"), change_id="c")
    next(steps)
    assert mems(root).read_text() == "\n"
    moved.set()
    assert run_steps(steps).outcome is Outcome.APPLIED
    assert mems(root).read_text() == "1\n"


def test_memory_follows_the_numa_nodes_of_a_simulated_cgroup_and_returns() -> None:
    machine = make_machine(cpus=72, irqs=20, kind=0, seed=0)
    node = SimulatedNode(name="n", key="", index=9, seed=0, machine=machine, cache=SimulationCache(1.0), stream="s")
    before = node.numa()
    assert before is not None
    group = (before.tasks[0].cgroup or "").lstrip("/")
    setting = CpusetMems(group)
    assert setting.current(node.view(0.0)) == "inherited"
    for wanted in ("0", "1", "0"):
        assert setting.refusals(node.view(0.0), wanted) == []
        node.write(setting, wanted)
        assert setting.current(node.view(0.0)) == wanted
        now = node.numa()
        assert now is not None
        members = [task for task in now.tasks if task.cgroup == f"/{group}"]
        assert all(set(task.bytes_by_node or {}) == {int(wanted)} for task in members)
        assert {task.mems_allowed for task in members} == {wanted}
        others = [[task for task in state.tasks if task.cgroup != f"/{group}"] for state in (before, now)]
        assert others[0] == others[1]
