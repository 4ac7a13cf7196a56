"""kernel/PARAMETER: preview, write, read back, refuse and restore on a tree of files."""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from coresteer_agent.apply import rooted
from coresteer_agent.apply.executor import Executor
from coresteer_agent.apply.journal import Journal
from coresteer_agent.apply.restore import restore
from coresteer_agent.capture import capture
from coresteer_agent.observe.inventory import InventoryReader
from coresteer_agent.simulate.cache import SimulationCache
from coresteer_agent.simulate.changes import SimulatedChanges
from coresteer_agent.simulate.machine import make_machine
from coresteer_agent.simulate.node import SimulatedNode
from coresteer_core.changes.plan import Action, DesiredValue, Plan, inverse, preview
from coresteer_core.changes.report import ChangeState, Outcome
from coresteer_core.node.view import View
from coresteer_core.protocol import Apply, Rollback
from coresteer_core.settings import MACHINE_SETTINGS, SettingError, parse_setting
from coresteer_core.settings.base import NUMA_BALANCING
from coresteer_core.settings.overlay import overlay

KEY = "kernel/numa_balancing"
FILE = "proc/sys/kernel/numa_balancing"


@pytest.fixture
def root(root: Path) -> Path:
    """The machine with automatic NUMA balancing on."""
    (root / FILE).parent.mkdir(parents=True)
    (root / FILE).write_text("1\n")
    return root


@pytest.fixture
def executor(root: Path, journal: Journal, view: View) -> Executor:
    return Executor(root, journal, lambda: replace(view, inventory=InventoryReader(root).read()))


@pytest.fixture
def observed(root: Path, view: View) -> Callable[[], View]:
    """Returns the view as the agent reports it now."""
    return lambda: replace(view, inventory=InventoryReader(root).read())


def value(root: Path) -> str:
    return (root / FILE).read_text().strip()


def test_a_preview_shows_the_change_and_its_command_and_the_inverse_restores(observed: Callable[[], View]) -> None:
    view = observed()
    plan = preview(view, [DesiredValue(KEY, "0")], reason="test")
    assert plan.refused == []
    assert [(a.key, a.was, a.becomes) for a in plan.plan.actions] == [(KEY, "1", "0")]
    assert plan.commands == ["sysctl kernel.numa_balancing=0"]
    assert "kernel.numa_balancing" in plan.sentence
    after = overlay(view, {a.key: a.becomes for a in plan.plan.actions})
    assert parse_setting(KEY).current(after) == "0"
    assert overlay(after, {a.key: a.becomes for a in inverse(plan.plan).actions}) == view


def test_a_kernel_parameter_is_written_read_back_and_restored(executor: Executor, root: Path, journal: Journal) -> None:
    result = executor.apply(Action(KEY, "1", "0", "test"), change_id="c")
    assert (result.outcome, result.found, result.read_back, value(root)) == (Outcome.APPLIED, "1", "0", "0"), result
    [restored] = restore(journal.path, root) or []
    assert (restored.outcome, value(root)) == (Outcome.APPLIED, "1")


def test_an_original_outside_the_range_is_restored_exactly(executor: Executor, root: Path, journal: Journal) -> None:
    (root / FILE).write_text("2\n")
    assert executor.apply(Action(KEY, "2", "0", "test"), change_id="c").outcome is Outcome.APPLIED
    assert executor.undo(Action(KEY, "0", "2", "test")).outcome is Outcome.APPLIED
    assert value(root) == "2"


@pytest.mark.parametrize("text", ["2", "7"])
def test_a_value_out_of_its_range_is_refused(executor: Executor, root: Path, text: str) -> None:
    result = executor.apply(Action(KEY, "1", text, "test"), change_id="c")
    assert (result.outcome, value(root)) == (Outcome.REFUSED, "1")
    assert result.sentence == f"kernel.numa_balancing can be from 0 to 1, not {text}."


@pytest.mark.parametrize(
    ("name", "values", "says"),
    [
        ("rps_sock_flow_entries", ("0", "32768", "40000"), "the kernel rounds up: 32768 or 65536, not 40000."),
        ("netdev_budget", ("300", "600", "63"), "net.core.netdev_budget can be from 64 to 65536, not 63."),
        ("netdev_budget_usecs", ("8000", "2000", "0"), "can be from 1 to 100000, not 0."),
        ("busy_poll", ("0", "50", "10001"), "net.core.busy_poll can be from 0 to 10000, not 10001."),
        ("busy_read", ("0", "50", "10001"), "net.core.busy_read can be from 0 to 10000, not 10001."),
    ],
)
def test_parameters_of_the_network_are_written_in_their_bounds_and_restored(
    executor: Executor, root: Path, name: str, values: tuple[str, str, str], says: str
) -> None:
    found, value, refused = values
    file = root / f"proc/sys/net/core/{name}"
    file.parent.mkdir(parents=True)
    file.write_text(f"{found}\n")
    result = executor.apply(Action(f"kernel/{name}", found, value, "test"), change_id="c")
    assert result.sentence == f"net.core.{name} was changed from {found} to {value}."
    assert file.read_text().strip() == value
    result = executor.apply(Action(f"kernel/{name}", value, refused, "test"), change_id="c")
    assert result.outcome is Outcome.REFUSED
    assert says in result.sentence
    restored = executor.undo(Action(f"kernel/{name}", value, found, "test"))
    assert (restored.outcome, file.read_text().strip()) == (Outcome.APPLIED, found)


@pytest.mark.parametrize("text", ["", "on", "-1", "٣", "1 0"])
def test_a_value_that_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(SettingError, match=r"not a value of kernel\.numa_balancing"):
        parse_setting(KEY).canonical(text)


def test_a_kernel_parameter_without_its_file_is_unsupported(
    executor: Executor, observed: Callable[[], View], root: Path
) -> None:
    (root / FILE).unlink()
    (refusal,) = preview(observed(), [DesiredValue(KEY, "0")], reason="test").refused
    assert refusal.code == "unknown"
    assert refusal.sentence == (
        "This node's kernel has no kernel.numa_balancing: /proc/sys/kernel/numa_balancing is missing."
    )
    assert executor.apply(Action(KEY, "1", "0", "test"), change_id="c").outcome is Outcome.UNSUPPORTED


@pytest.mark.parametrize(
    ("code", "outcome", "says"),
    [
        (errno.EPERM, "refused", "CAP_SYS_ADMIN"),
        (errno.EROFS, "refused", "ProtectKernelTunables"),
        (errno.EINVAL, "failed", "rejects this value"),
    ],
)
def test_a_failed_write_is_explained(
    executor: Executor, monkeypatch: pytest.MonkeyPatch, code: int, outcome: str, says: str
) -> None:
    def refuse(root: Path, path: str, text: str) -> None:
        raise OSError(code, "No")

    monkeypatch.setattr(rooted, "write_text", refuse)
    result = executor.apply(Action(KEY, "1", "0", "test"), change_id="c")
    assert result.outcome == outcome
    assert says in result.sentence


def test_the_inventory_contains_the_parameter_and_reads_it_again_after_a_write(root: Path) -> None:
    reader = InventoryReader(root)
    assert reader.read().settings == {KEY: "1"}
    assert reader.read().controllers == [NUMA_BALANCING]
    (root / FILE).write_text("0\n")
    reader.reread([parse_setting(KEY)])
    assert reader.read().settings == {KEY: "0"}
    assert reader.read().controllers == []
    (root / FILE).write_text("soon\n")
    reader.reread([parse_setting(KEY)])
    assert reader.read().settings == {}


def test_a_capture_contains_the_parameter(root: Path, tmp_path: Path) -> None:
    folder = tmp_path / "capture"
    folder.mkdir()
    capture(root, folder)
    assert (folder / FILE).read_text() == "1\n"
    assert InventoryReader(folder).read().settings == {KEY: "1"}


def test_a_simulated_node_has_the_parameter() -> None:
    machine = make_machine(cpus=32, irqs=6, kind=1, seed=0)
    node = SimulatedNode(name="n", key="", index=9, seed=0, machine=machine, cache=SimulationCache(1.0), stream="s")
    changes = SimulatedChanges(node)
    changes.handle(Apply("c", Plan([Action(KEY, "1", "0", "test")]), 60))
    assert changes.drain_messages()[-1].state is ChangeState.UNCONFIRMED
    assert (node.inventory.settings[KEY], node.inventory.controllers) == ("0", [])
    changes.handle(Rollback("c"))
    assert (node.inventory.settings[KEY], node.inventory.controllers) == ("1", [NUMA_BALANCING])
    assert node.inventory.settings.keys() == MACHINE_SETTINGS.keys()
