"""Moves of a process's pages that the kernel refuses: each reason is reported as a sentence."""

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.support.views import make_view

from coresteer_agent.apply import page_moves
from coresteer_agent.apply.executor import Executor
from coresteer_agent.apply.journal import Journal
from coresteer_agent.apply.memory_nodes import MemoryNodesHandler
from coresteer_agent.collect.irq import is_running_kernel
from coresteer_agent.linux.move_pages import NOT_STORED
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
    key = f"task/{pid}/memory-nodes"
    executor._journal.record_original("c", key, "1=1000", [])
    result = executor.undo(Action(key, "", "1=1000", ""))  # whose guard is not asked
    outcome, words = reported
    assert result.outcome == outcome
    assert words in result.sentence


def test_a_move_that_ends_early_is_failed_and_so_undone(
    pid: int, executor: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a fork, from which on pages have two processes."""
    reads = iter(["0=1000", "0=500;1=500"])
    monkeypatch.setattr(MemoryNodesHandler, "read", lambda *_: next(reads))

    def move_pages(_pid: int, addresses: Sequence[int], nodes: Sequence[int] | None) -> list[int]:
        return [0 if nodes is None else -errno.EACCES for _ in addresses]

    monkeypatch.setattr(page_moves, "move_pages", move_pages)
    key = f"task/{pid}/memory-nodes"
    executor._journal.record_original("c", key, "1=1000", [])
    result = executor.undo(Action(key, "", "1=1000", ""))
    assert (result.outcome, result.read_back) == ("failed", "0=500;1=500")
    assert "other processes map its pages too, as after a fork" in result.sentence


def test_a_zombie_has_ended(pid: int, executor: Executor) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    for key, value in (("memory-nodes", "1=1000"), ("affinity", "0")):
        assert executor.undo(Action(f"task/{pid}/{key}", "", value, "")).outcome == "unsupported"


def test_a_process_that_ends_during_its_restore_is_reported_as_ended(
    pid: int, executor: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def move_pages(_pid: int, addresses: Sequence[int], nodes: Sequence[int] | None) -> list[int]:
        if nodes is not None:
            os.kill(pid, signal.SIGKILL)
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        return [0 for _ in addresses] if nodes is None else list(nodes)

    monkeypatch.setattr(page_moves, "move_pages", move_pages)
    assert executor.undo(Action(f"task/{pid}/memory-nodes", "", "1=1000", "")).outcome == "unsupported"


PAGE = os.sysconf("SC_PAGE_SIZE")
PINNED = {3, 700, 701}
"""Pages that the kernel cannot move, by number."""


@pytest.mark.parametrize(("share", "moved"), [(1.0, 8192 - len(PINNED)), (0.5, 4096)])
def test_pinned_pages_stay_without_keeping_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: float, moved: int
) -> None:
    process = tmp_path / "proc/812"
    process.mkdir(parents=True)
    (process / "maps").write_text(f"{PAGE:x}-{8193 * PAGE:x} rw-p 00000000 00:00 0\n")
    (process / "numa_maps").write_text(f"{PAGE:x} default anon=8192 N0=8192 kernelpagesize_kB={PAGE // 1024}\n")
    (process / "pagemap").write_bytes((1 << 63).to_bytes(8, "little") * 8193)
    where = dict.fromkeys(range(1, 8193), 0)

    def move_pages(_pid: int, addresses: Sequence[int], nodes: Sequence[int] | None) -> list[int]:
        """As the kernel: pages go to a node together, and the first such batch with a page that stays ends the call."""
        pages = [address // PAGE for address in addresses]
        if nodes is None:
            return [where[page] for page in pages]
        where.update((page, node) for page, node in zip(pages, nodes, strict=True) if page not in PINNED)
        return [NOT_STORED] * len(pages) if PINNED & set(pages) else list(nodes)

    monkeypatch.setattr(page_moves, "move_pages", move_pages)
    assert not any(failed for failed in page_moves.move_to_shares(tmp_path, 812, {0: 1 - share, 1: share}))
    assert sum(where.values()) == moved


@pytest.mark.parametrize(
    ("huge", "shares", "moved"),
    [
        (512, {1: 1.0}, 16),
        (512, {0: 0.6, 1: 0.4}, 6),
        (512, {0: 0.34, 1: 0.33, 2: 0.33}, 10),
        (8192, {1: 1.0}, 16),
    ],
)
def test_huge_pages_move_whole_and_by_their_first_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, huge: int, shares: dict[int, float], moved: int
) -> None:
    """Up to Linux 6.6 the kernel refuses the other addresses, as if they belonged to several processes.

    huge: size in pages.
    """
    process = tmp_path / "proc/812"
    process.mkdir(parents=True)
    size = huge * PAGE
    (process / "maps").write_text(f"{size:x}-{17 * size:x} rw-p 00000000 00:00 0\n")
    (process / "numa_maps").write_text(f"{size:x} default anon=16 N0=16 kernelpagesize_kB={size // 1024}\n")
    (process / "pagemap").write_bytes((1 << 63).to_bytes(8, "little") * 17 * huge)
    where = dict.fromkeys(range(1, 17), 0)
    moves: list[int] = []

    def move_pages(_pid: int, addresses: Sequence[int], nodes: Sequence[int] | None) -> list[int]:
        if nodes is None:
            return [where[address // size] for address in addresses]
        status = []
        for address, node in zip(addresses, nodes, strict=True):
            first = address % size == 0
            if first:
                where[address // size] = node
                moves.append(node)
            status.append(node if first else -errno.EACCES)
        return status

    monkeypatch.setattr(page_moves, "move_pages", move_pages)
    assert not any(failed for failed in page_moves.move_to_shares(tmp_path, 812, shares))
    assert len(moves) == moved
    counts = [sum(at == node for at in where.values()) for node in range(3)]
    assert all(abs(count - 16 * shares.get(node, 0.0)) <= 1 for node, count in enumerate(counts))
