"""The file by which the administrator of a node limits every backend."""

import os
import re
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.support.views import make_view

from coresteer_agent.apply.executor import Executor
from coresteer_agent.apply.journal import Journal
from coresteer_agent.config import Config
from coresteer_agent.observe.inventory import InventoryReader
from coresteer_agent.runtime.limits_file import LimitsFile
from coresteer_agent.runtime.loop import Agent
from coresteer_agent.transport.enrol import NodeKey
from coresteer_core.changes.plan import Action
from coresteer_core.changes.report import Outcome
from coresteer_core.node.inventory import Inventory, Irq
from coresteer_core.node.limits import Limits, LoadLimits, SettingLimits

ROOT_OWNED = pytest.mark.skipif(os.geteuid() != 0, reason="only root has files of its own")
SECURITY = Path(__file__).parents[2] / "docs/SECURITY.md"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "root/etc/coresteer"
    folder.mkdir(parents=True, mode=0o755)
    return folder / "limits.toml"


def write(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o644)


def test_without_a_file_the_defaults_hold(path: Path) -> None:
    assert LimitsFile(path).read() == Limits()
    assert LimitsFile(path.parent / "absent/limits.toml").read() == Limits()


@ROOT_OWNED
def test_the_example_in_the_documentation_is_valid(path: Path) -> None:
    [example] = re.findall(r"```toml\n(\[settings\].*?)```", SECURITY.read_text(), re.DOTALL)
    write(path, example)
    assert LimitsFile(path).read() == Limits(
        SettingLimits(["irq/*", "netdev/eth1/*", "task/*/affinity"], "0-1", ["nvme*", "9"]),
        LoadLimits(allow=True, addresses=["10.20.0.0/16"], max_mbit_per_s=1000, max_packets_per_s=100_000),
    )


@ROOT_OWNED
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[settings\n", "cannot be parsed"),
        ("[setting]\n", "there is no table or name “setting”; it may have settings and loads."),
        ("settings = 1\n", "cannot be parsed"),
        ("[settings]\ncpus = '0'\n", "there is no settings.cpus; settings may have allow, cpus_off_limits, inter"),
        ("[settings]\ncpus_off_limits = '3-x'\n", "it has an invalid value"),
        ("[loads]\naddresses = ['10.0.0.1/8']\n", "it has an invalid value: 10.0.0.1/8 has host bits set."),
        ("[loads]\nallow = 'no'\n", "cannot be parsed"),
        ("[loads]\nmax_mbit_per_s = 0\n", "cannot be parsed"),
        ("unusable = ''\n", "there is no table or name “unusable”"),
        ("#" * 70_000, "it has more than 65536 bytes"),
    ],
)
def test_an_invalid_file_allows_nothing_and_says_why(path: Path, text: str, reason: str) -> None:
    write(path, text)
    assert reason in (LimitsFile(path).read().unusable or "")


@ROOT_OWNED
@pytest.mark.parametrize("of_folder", [False, True])
@pytest.mark.parametrize("mode", [0o664, 0o646])
def test_a_file_that_others_may_write_is_refused(path: Path, mode: int, *, of_folder: bool) -> None:
    write(path, "")
    (path.parent if of_folder else path).chmod(mode | 0o111)
    what = "its folder" if of_folder else "the file"
    assert LimitsFile(path).read().unusable == f"{path}: {what} can be written by others; run chmod go-w on it."


@ROOT_OWNED
@pytest.mark.parametrize("of_folder", [False, True])
def test_a_file_of_another_account_is_refused(path: Path, *, of_folder: bool) -> None:
    write(path, "")
    os.chown(path.parent if of_folder else path, 65534, -1)
    assert "belongs to another account; run chown root on it." in (LimitsFile(path).read().unusable or "")


@ROOT_OWNED
def test_a_link_and_a_pipe_are_refused(path: Path) -> None:
    write(path, "")
    path.rename(path.with_name("other"))
    path.symlink_to("other")
    assert "cannot be read" in (LimitsFile(path).read().unusable or "")
    path.unlink()
    os.mkfifo(path, 0o644)
    assert "it is not a file" in (LimitsFile(path).read().unusable or "")


@ROOT_OWNED
def test_limits_are_in_force_as_soon_as_the_file_changes(path: Path) -> None:
    file = LimitsFile(path)
    before = file.read()
    assert file.read() is before
    write(path, "[loads]\nallow = false\n")
    assert not file.read().loads.allow
    path.chmod(0o666)
    assert file.read().unusable is not None
    path.unlink()
    assert file.read() == Limits()


@ROOT_OWNED
def test_an_agent_enforces_the_limits_and_reports_them_with_its_inventory(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(path, "[settings]\nallow = []\n")
    (path.parents[2] / "proc/irq/41").mkdir(parents=True)
    (path.parents[2] / "proc/irq/41/smp_affinity_list").write_text("0-1\n")
    address = "http://127.0.0.1:1"
    agent = Agent(Config((address,), tmp_path / "state", path.parents[2], 0.1, "n"), NodeKey(address, 7, "n", "k"))
    assert agent._view().inventory.limits.settings.allow == []
    write(path, "[settings]\nallow = ['irq/*']\n")
    agent._read_inventory()
    assert agent._view().inventory.limits.settings.allow == ["irq/*"]

    def unreadable(*_: object) -> Inventory:
        raise OSError

    monkeypatch.setattr(InventoryReader, "read", unreadable)
    write(path, "[settings]\nallow = ['task/*']\n")
    agent._attempt("inventory", agent._read_inventory)
    assert agent._view().inventory.limits.settings.allow == ["task/*"]
    agent._changes.close()


def test_the_executor_refuses_what_the_limits_exclude_and_still_restores(tmp_path: Path) -> None:
    file = tmp_path / "root/proc/irq/41/smp_affinity_list"
    file.parent.mkdir(parents=True)
    file.write_text("0-3\n")
    view = make_view(4, irqs=[Irq(41, "eth0-rx-0", "PCI-MSIX", "0-3", "0", 0, movable=True)])
    closed = replace(view, inventory=replace(view.inventory, limits=Limits(SettingLimits(allow=[]))))
    views = iter((closed, view, closed))
    journal = Journal(tmp_path / "journal.jsonl", tmp_path / "root")
    executor = Executor(tmp_path / "root", journal, lambda: next(views))
    try:
        action = Action("irq/41/affinity", "0-3", "1", "test")
        refused = executor.apply(action, change_id="a")
        assert (refused.outcome, "settings.allow is: none." in refused.sentence) == (Outcome.REFUSED, True)
        assert executor.apply(action, change_id="b").outcome is Outcome.APPLIED
        again = executor.apply(Action("irq/41/affinity", "1", "2", "test"), change_id="c")
        assert again.outcome is Outcome.REFUSED
        assert executor.undo(Action("irq/41/affinity", "1", "0-3", "test")).outcome is Outcome.APPLIED
    finally:
        journal.close()
    assert file.read_text() == "0-3\n"
