"""The guard of processes on the agent: only those that the agent itself has observed are changed."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.views import make_view, observed_task

from coresteer_agent.apply.executor import Executor
from coresteer_agent.apply.journal import Journal
from coresteer_agent.apply.task_common import own_and_ancestors
from coresteer_agent.collect.irq import is_running_kernel
from coresteer_core.changes.plan import Action
from coresteer_core.changes.report import Outcome
from coresteer_core.node.numa import NumaState, NumaTask
from coresteer_core.node.view import View

ROOT = Path("/")
ALL = sorted(os.sched_getaffinity(0))

pytestmark = [
    pytest.mark.skipif(not is_running_kernel(ROOT), reason="There is no /proc of the running kernel here."),
    pytest.mark.skipif(len(ALL) < 2, reason="Moving needs two CPUs."),
]


@pytest.fixture
def child() -> Iterator[int]:
    """A process that does not use the network."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process.pid
        process.kill()


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    journal = Journal(tmp_path / "journal.jsonl", ROOT)
    yield journal
    journal.close()


def actions(pid: int) -> list[Action]:
    affinity = ",".join(map(str, ALL))
    nice = os.getpriority(os.PRIO_PROCESS, pid)
    return [
        Action(f"task/{pid}/nice", str(nice), str(nice + 1), "test"),
        Action(f"task/{pid}/affinity", affinity, str(ALL[0]), "test"),
    ]


def untouched(pid: int) -> tuple[int, frozenset[int]]:
    return os.getpriority(os.PRIO_PROCESS, pid), frozenset(os.sched_getaffinity(pid))


def test_a_process_that_the_agent_has_not_observed_is_not_changed(journal: Journal, child: int) -> None:
    executor, before = Executor(ROOT, journal, lambda: make_view(ALL)), untouched(child)
    for action in actions(child):
        result = executor.apply(action, change_id="c")
        assert result.outcome is Outcome.REFUSED, result
        assert f"This node has no process {child} that communicates over the network" in result.sentence
    assert untouched(child) == before


def test_the_agent_and_the_processes_that_started_it_are_not_changed_even_if_they_use_the_network(
    journal: Journal,
) -> None:
    own, parent = os.getpid(), os.getppid()
    view = make_view(ALL, tasks=[observed_task(own), observed_task(parent)])
    executor = Executor(ROOT, journal, lambda: view)
    assert {own, parent} <= own_and_ancestors(ROOT)
    for pid, why in ((own, "is this agent, which changes no"), (parent, "started this agent, which changes no")):
        before = untouched(pid)
        for action in actions(pid):
            result = executor.apply(action, change_id="c")
            assert (result.outcome, why in result.sentence) == (Outcome.REFUSED, True), result
        assert untouched(pid) == before


def test_only_a_network_task_gets_another_nice_value(journal: Journal, child: int) -> None:
    task = observed_task(child)
    busy = NumaTask(child, task.started_ticks, task.name, None, 1, task.affinity, task.allowed, 0, 0.5, 0, 1.0)
    executor = Executor(ROOT, journal, lambda: make_view(ALL, numa=NumaState([], [busy])))
    nice, affinity = actions(child)
    assert executor.apply(nice, change_id="a").outcome is Outcome.REFUSED
    assert executor.apply(affinity, change_id="b").outcome is Outcome.APPLIED


def test_a_process_that_was_observed_before_its_first_change_is_steered_while_it_is_idle(
    journal: Journal, child: int
) -> None:
    views: list[View] = [make_view(ALL, tasks=[observed_task(child)])]
    executor, (nice, _) = Executor(ROOT, journal, lambda: views[0]), actions(child)
    assert executor.apply(nice, change_id="c").outcome is Outcome.APPLIED
    views[0] = make_view(ALL)
    more = str(int(nice.becomes) + 1)
    assert executor.steer(Action(nice.key, nice.becomes, more, "test")).outcome is Outcome.APPLIED
    assert executor.undo(Action(nice.key, more, nice.was, "test")).outcome in (Outcome.APPLIED, Outcome.FAILED)
