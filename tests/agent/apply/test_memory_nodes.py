"""Moves of a process's pages that the kernel refuses: each reason is reported as a sentence."""

import errno
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.support.views import make_view

from coresteer_agent.apply import page_moves
from coresteer_agent.apply.executor import Executor
from coresteer_agent.apply.journal import Journal
from coresteer_agent.collect.irq import is_running_kernel
from coresteer_core.changes.plan import Action

ROOT = Path("/")

pytestmark = pytest.mark.skipif(not is_running_kernel(ROOT), reason="There is no /proc of the running kernel here.")


@pytest.fixture
def pid() -> Iterator[int]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        yield child.pid
        child.kill()


@pytest.fixture
def executor(tmp_path: Path) -> Iterator[Executor]:
    journal = Journal(tmp_path / "agent/journal.jsonl", ROOT)
    yield Executor(ROOT, journal, lambda: make_view(1))
    journal.close()


@pytest.mark.parametrize(
    ("refusal", "reported"),
    [
        (OSError(errno.EPERM, ""), ("refused", "has to run as root")),
        (OSError(errno.EINVAL, ""), ("refused", "rejects this node")),
        (OSError(errno.ENOMEM, ""), ("failed", "ran out of memory")),
        (OSError(errno.ESRCH, ""), ("unsupported", "process has ended")),
        (OSError(errno.ENODEV, ""), ("refused", "has no memory")),
        (OSError(errno.EACCES, ""), ("refused", "cpuset")),
        (OSError(errno.ENOSYS, ""), ("unsupported", "no move_pages")),
        (OSError(errno.EIO, ""), ("failed", "The system call failed")),
        (-errno.ENOMEM, ("failed", "ran out of memory")),
        (-errno.EACCES, ("refused", "cpuset")),
        (-errno.ENODEV, ("refused", "has no memory")),
        (-errno.EBUSY, ("failed", "the kernel changed it to 0=")),
    ],
)
def test_a_refused_move_is_reported_with_its_reason(
    pid: int, executor: Executor, monkeypatch: pytest.MonkeyPatch, refusal: OSError | int, reported: tuple[str, str]
) -> None:
    """refusal: of the whole call, or the status of every page."""

    def move_pages(_pid: int, addresses: Sequence[int], nodes: Sequence[int] | None) -> list[int]:
        if nodes is None:
            return [0 for _ in addresses]
        if isinstance(refusal, OSError):
            raise refusal
        return [refusal for _ in addresses]

    monkeypatch.setattr(page_moves, "move_pages", move_pages)
    result = executor.undo(Action(f"task/{pid}/memory-nodes", "", "1=1000", ""))  # whose guard is not asked
    outcome, words = reported
    assert result.outcome == outcome
    assert words in result.sentence
