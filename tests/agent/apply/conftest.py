"""A small captured tree to write into, and the executor over it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.views import make_view

from coresteer_agent.apply.executor import Executor
from coresteer_agent.apply.journal import Journal
from coresteer_core.node.inventory import Irq
from coresteer_core.node.view import View


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A machine with CPUs 0-7 and the interrupts 41 to 44."""
    root = tmp_path / "root"
    for number in range(41, 45):
        folder = root / "proc/irq" / str(number)
        folder.mkdir(parents=True)
        (folder / "smp_affinity_list").write_text("0-7\n")
    return root


@pytest.fixture
def journal(tmp_path: Path, root: Path) -> Iterator[Journal]:
    journal = Journal(tmp_path / "state/agent/journal.jsonl", root)
    yield journal
    journal.close()


@pytest.fixture
def view() -> View:
    irqs = [
        Irq(irq, f"eth0-rx-{irq - 41}", "PCI-MSIX", "0-7", "0", 0, movable=irq != 44, netdev="eth0")
        for irq in range(41, 45)
    ]
    return make_view(8, offline=[7], isolated="6", irqs=irqs)


@pytest.fixture
def executor(root: Path, journal: Journal, view: View) -> Executor:
    return Executor(root, journal, lambda: view)


@pytest.fixture
def affinity(root: Path) -> Callable[[int], str]:
    """What the tree says about an interrupt."""
    return lambda irq: (root / f"proc/irq/{irq}/smp_affinity_list").read_text().strip()
