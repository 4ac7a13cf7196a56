"""irqbalance for the time of a run: a program of the test's own moves interrupts of a captured tree."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from msgspec.structs import replace
from tests.support.polling import PATIENCE_S, poll
from tests.support.views import make_view

from coresteer_agent.apply.journal import Journal
from coresteer_agent.apply.restore import restore
from coresteer_agent.runtime.changes import DELEGATED_CHANGE_ID, NodeChanges
from coresteer_agent.runtime.irqbalance import Irqbalance, IrqbalanceError
from coresteer_core.changes.events import AgentStopping, BackendLost
from coresteer_core.changes.plan import Action, Plan
from coresteer_core.changes.report import ChangeMessage, ChangeState
from coresteer_core.node.inventory import Irq, QueueUser
from coresteer_core.node.view import View
from coresteer_core.protocol import Apply, Confirm, Rollback

IRQS = (41, 42, 43)
PROGRAM = f"""#!{sys.executable} -IS
import pathlib, sys, time
root = pathlib.Path({{root!r}})
for irq in (41, 42, 43):
    if f"--banirq={{{{irq}}}}" not in sys.argv:
        (root / f"proc/irq/{{{{irq}}}}/smp_affinity_list").write_text("3\\n")
(root / "moved").write_text(" ".join(sys.argv[1:]))
{{then}}
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    for irq in IRQS:
        folder = root / f"proc/irq/{irq}"
        folder.mkdir(parents=True)
        (folder / "smp_affinity_list").write_text("0-3\n")
    return root


@pytest.fixture
def install(tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """A fake irqbalance that moves every interrupt it may, then runs the given statement."""

    def install(then: str = "time.sleep(60)") -> None:
        program = tmp_path / "bin/irqbalance"
        program.parent.mkdir(exist_ok=True)
        program.write_text(PROGRAM.format(root=str(root), then=then))
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")

    return install


def view(root: Path) -> View:
    irqs = [Irq(irq, f"eth0-rx-{irq}", "PCI-MSI", affinity(root, irq), "0", None, irq != 43) for irq in IRQS]
    return make_view(4, irqs=irqs)


def affinity(root: Path, irq: int) -> str:
    return (root / f"proc/irq/{irq}/smp_affinity_list").read_text().strip()


def keeper(root: Path, told: list[ChangeMessage] | None = None) -> NodeChanges:
    journal = root.parent / "state/journal.jsonl"
    return NodeChanges(root, journal, None, lambda: view(root), (told if told is not None else []).append)


def moved(root: Path) -> bool:
    return (root / "moved").exists() and (root / "moved").read_text() != ""  # it is created before it is written


@pytest.fixture
def told() -> list[ChangeMessage]:
    return []


@pytest.fixture
def changes(root: Path, told: list[ChangeMessage]) -> Iterator[NodeChanges]:
    changes = keeper(root, told)
    yield changes
    changes.close()


def test_affinities_moved_by_irqbalance_are_restored_after_the_run_without_a_change_message(
    root: Path, changes: NodeChanges, told: list[ChangeMessage], install: Callable[[], None]
) -> None:
    install()
    irqbalance = Irqbalance(changes, view(root).inventory)
    assert irqbalance.delegated == {"irq/41/affinity", "irq/42/affinity"}
    poll(lambda: moved(root))
    assert (root / "moved").read_text().split() == ["--foreground"]
    assert irqbalance.failed is None
    poll(lambda: irqbalance.stop() == [])
    assert [affinity(root, irq) for irq in (41, 42)] == ["0-3", "0-3"]
    assert told == []
    journal = Journal(root.parent / "state/journal.jsonl", root)
    assert journal.originals() == {}
    journal.close()


def test_irqbalance_is_restricted_to_cpus_by_its_own_environment(
    root: Path, changes: NodeChanges, install: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sysconf", lambda _: 40)
    install(
        "import os; (root / 'banned').write_text(os.environ['IRQBALANCE_BANNED_CPULIST'] + ' '"
        " + os.environ['IRQBALANCE_BANNED_CPUS']); time.sleep(60)"
    )
    irqbalance = Irqbalance(changes, view(root).inventory, frozenset({1, 33}))
    poll(lambda: (root / "banned").exists() and (root / "banned").read_text() != "")
    assert (root / "banned").read_text() == "0,2-32,34-39 fd,fffffffd"
    irqbalance.end()


def test_irqbalance_ignores_settings_of_open_changes(
    root: Path, changes: NodeChanges, told: list[ChangeMessage], install: Callable[[], None]
) -> None:
    install()
    changes.handle(Apply("c", Plan([Action("irq/41/affinity", "0-3", "1", "test")]), 60))
    irqbalance = Irqbalance(changes, view(root).inventory)
    poll(lambda: moved(root))
    assert (root / "moved").read_text().split() == ["--foreground", "--banirq=41"]
    changes.handle(Apply("d", Plan([Action("irq/42/affinity", "3", "1", "test")]), 60))
    assert told[-1].state is ChangeState.FAILED
    assert told[-1].sentence == "irq/42/affinity is delegated to another program until an experiment's run has ended."
    assert irqbalance.end() == []
    assert [affinity(root, irq) for irq in (41, 42)] == ["1", "0-3"]
    changes.handle(Rollback("c"))
    assert affinity(root, 41) == "0-3"


def test_irqbalance_ignores_interrupts_of_queue_users(
    root: Path, changes: NodeChanges, install: Callable[[], None]
) -> None:
    install()
    inventory = view(root).inventory
    locked = [replace(irq, movable=False) if irq.irq == 41 else irq for irq in inventory.irqs]
    user = QueueUser("vfio-pci", "0000:03:00.0", irqs=[41])
    irqbalance = Irqbalance(changes, replace(inventory, irqs=locked, queue_users=[user]))
    assert irqbalance.delegated == {"irq/42/affinity"}
    poll(lambda: moved(root))
    assert (root / "moved").read_text().split() == ["--foreground", "--banirq=41"]
    irqbalance.end()
    assert [affinity(root, irq) for irq in (41, 42)] == ["0-3", "0-3"]


def test_a_confirmed_change_is_restored_after_irqbalance(
    root: Path, changes: NodeChanges, install: Callable[[], None]
) -> None:
    install()
    changes.handle(Apply("c", Plan([Action("irq/41/affinity", "0-3", "1", "test")]), 60))
    changes.handle(Confirm("c"))
    irqbalance = Irqbalance(changes, view(root).inventory)
    poll(lambda: moved(root))
    assert affinity(root, 41) == "3"
    irqbalance.end()
    assert affinity(root, 41) == "1"
    changes.handle(Rollback("c"))
    assert affinity(root, 41) == "0-3"


def test_settings_can_be_delegated_repeatedly(root: Path, changes: NodeChanges, install: Callable[[], None]) -> None:
    install()
    for _ in range(3):
        (root / "moved").unlink(missing_ok=True)
        irqbalance = Irqbalance(changes, view(root).inventory)
        poll(lambda: moved(root))
        irqbalance.end()
        assert affinity(root, 41) == "0-3"


def test_an_unexpected_end_of_irqbalance_is_reported(
    root: Path, changes: NodeChanges, install: Callable[[str], None]
) -> None:
    install("print('no NUMA here', flush=True); sys.exit(3)")
    irqbalance = Irqbalance(changes, view(root).inventory)
    poll(lambda: irqbalance.failed)
    assert (irqbalance.failed or "").startswith("irqbalance ended unexpectedly with code 3.")
    irqbalance.end()
    assert affinity(root, 41) == "0-3"


def test_without_irqbalance_or_where_it_runs_already_it_is_not_started(
    root: Path, changes: NodeChanges, install: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    with pytest.raises(IrqbalanceError, match="is not installed"):
        Irqbalance(changes, view(root).inventory)
    monkeypatch.undo()
    install()
    with pytest.raises(IrqbalanceError, match="already runs on this node"):
        Irqbalance(changes, make_view(controllers=["irqbalance"]).inventory)
    assert changes.change(DELEGATED_CHANGE_ID) is None


@pytest.mark.parametrize("event", [BackendLost(), AgentStopping()])
def test_every_end_of_the_change_restores_the_affinities(
    event: BackendLost | AgentStopping, root: Path, changes: NodeChanges, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes.delegate(["irq/41/affinity"])
    (root / "proc/irq/41/smp_affinity_list").write_text("3\n")
    changes.feed(event)
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 11)
    changes.tick()
    assert affinity(root, 41) == "0-3"
    assert changes.revoke(1) == []


AGENT = """
import sys, time
from pathlib import Path
from tests.agent.test_irqbalance import keeper, view
from coresteer_agent.runtime.irqbalance import Irqbalance
root = Path(sys.argv[1])
irqbalance = Irqbalance(keeper(root), view(root).inventory)
print(irqbalance._child._process.pid, flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("how", ["restart", "restore"])
def test_after_a_killed_agent_irqbalance_ends_and_affinities_are_restored(
    how: str, root: Path, install: Callable[[], None]
) -> None:
    install()
    agent = subprocess.Popen([sys.executable, "-c", AGENT, str(root)], stdout=subprocess.PIPE, text=True)
    assert agent.stdout is not None
    supervisor = psutil.Process(int(agent.stdout.readline()))
    poll(lambda: moved(root))
    started = [supervisor, *supervisor.children(recursive=True)]
    assert len(started) == 2
    agent.send_signal(signal.SIGKILL)
    agent.communicate(timeout=PATIENCE_S)
    _, alive = psutil.wait_procs(started, PATIENCE_S)
    assert alive == []
    assert affinity(root, 41) == "3"
    if how == "restore":
        restore(root.parent / "state/journal.jsonl", root)
    else:
        keeper(root).close()
    assert [affinity(root, irq) for irq in (41, 42)] == ["0-3", "0-3"]
