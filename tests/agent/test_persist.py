"""coresteer-agent persist: selected settings get their values again after a reboot, on a small captured tree."""

import errno
import fcntl
import json
import os
import stat
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace
from tests.support.views import make_netdev, make_view

from coresteer_agent.__main__ import main
from coresteer_agent.apply.journal import Journal
from coresteer_agent.apply.persisted_file import Persisted, PersistedSetting, write_persisted
from coresteer_agent.runtime import changes
from coresteer_agent.runtime.changes import ChangeRunner, NodeChanges
from coresteer_agent.runtime.persisted import WAIT_S, PersistedSettings
from coresteer_agent.runtime.policies import CONFIRM_AFTER_S
from coresteer_core.changes.events import ApplyRequested, Change, Event
from coresteer_core.changes.guard import MAX_PLAN_ACTIONS
from coresteer_core.changes.plan import Action, Plan
from coresteer_core.changes.report import ChangeMessage, ChangeState
from coresteer_core.node.inventory import FlowRuleTable, Irq, Queue, RssContext
from coresteer_core.node.limits import Limits, SettingLimits
from coresteer_core.node.view import View
from coresteer_core.policies.base import ROUND_PERIOD_S
from coresteer_core.protocol import Apply, Confirm, DecisionMessage

BALANCING = "kernel/numa_balancing"
NAMES = {41: "eth0-rx-0", 42: "eth0-rx-1", 43: "ahci", 44: "ahci", 45: ""}


class Machine:
    """A captured tree that can be rebooted, with an agent's part that changes settings and a clock of the test's."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        self.state = folder / "state"
        self.path = self.state / "agent/journal.jsonl"
        self.now = 1000.0
        self.limits = Limits()
        self.boots = 0
        self.said: list[DecisionMessage | ChangeMessage] = []
        self.reboot(NAMES)

    def reboot(self, names: dict[int, str]) -> None:
        """Begin another boot, in which interrupts have these names and every setting its default."""
        self.boots += 1
        self.names = names
        rows = [f" {irq}:  1   PCI-MSI {irq}-edge      {name}" for irq, name in names.items()]
        self.write("proc/interrupts", "\n".join(["        CPU0", *rows, ""]))
        self.write("proc/sys/kernel/random/boot_id", f"boot {self.boots}\n")
        self.write("proc/sys/kernel/numa_balancing", "1\n")
        for irq in names:
            self.write(f"proc/irq/{irq}/smp_affinity_list", "0-7\n")

    def write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def read(self, path: str) -> str:
        return (self.root / path).read_text().strip()

    def affinity(self, irq: int) -> str:
        return self.read(f"proc/irq/{irq}/smp_affinity_list")

    def view(self) -> View:
        irqs = [
            Irq(irq, name, "PCI-MSI", self.affinity(irq), self.affinity(irq), None, True)
            for irq, name in self.names.items()
        ]
        view = make_view(8, irqs=irqs, time_s=self.now)
        settings = {BALANCING: self.read("proc/sys/kernel/numa_balancing")}
        return replace(view, inventory=replace(view.inventory, settings=settings, limits=self.limits))

    def start(self) -> "Agent":
        return Agent(self)

    def command(self, *arguments: str) -> int:
        return main([*arguments, "--root", str(self.root), "--state-dir", str(self.state)])

    def set_by_hand(self, **values: str) -> None:
        """Let a person change settings (``irq41``, ``numa_balancing``) and confirm."""
        keys = {name: BALANCING if name == "numa_balancing" else f"irq/{name[3:]}/affinity" for name in values}
        was = {name: "1" if name == "numa_balancing" else "0-7" for name in values}
        agent = self.start()
        moves = [Action(keys[name], was[name], value, "by hand") for name, value in values.items()]
        agent.changes.handle(Apply("by-hand", Plan(moves), 120))
        agent.changes.handle(Confirm("by-hand"))
        agent.changes.close()


class Agent:
    """The agent's part that applies persisted settings."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.changes = NodeChanges(machine.root, machine.path, None, machine.view, machine.said.append)
        self.persisted = PersistedSettings(machine.path, machine.root, self.changes, machine.said.append)

    def steps(self, seconds: float) -> None:
        """As the loop does it, from its first round."""
        for second in range(int(seconds) + 1):
            if second % ROUND_PERIOD_S == 0:
                self.persisted.step(self.machine.view())
            self.machine.now += 1
            self.changes.tick()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine(tmp_path)
    clock = SimpleNamespace(monotonic=lambda: machine.now, time_ns=lambda: int(machine.now * 1e9))
    monkeypatch.setattr(changes, "time", clock)
    return machine


def last_states(machine: Machine) -> list[ChangeState]:
    return [said.state for said in machine.said if isinstance(said, ChangeMessage)]


def left_out(machine: Machine) -> dict[str, str]:
    decisions = [said for said in machine.said if isinstance(said, DecisionMessage)]
    return {each.subject: each.why for decision in decisions for each in decision.evaluation.skipped}


def test_after_a_reboot_a_persisted_affinity_is_set_under_the_new_number_of_its_interrupt(machine: Machine) -> None:
    machine.set_by_hand(irq41="2", irq42="3", numa_balancing="0")
    assert machine.command("persist", "irq/41/affinity", BALANCING) == 0
    machine.reboot({41: "eth0-rx-1", 57: "eth0-rx-0"})
    machine.said.clear()
    machine.start().steps(CONFIRM_AFTER_S + ROUND_PERIOD_S)
    assert (machine.affinity(57), machine.affinity(41), machine.read("proc/sys/kernel/numa_balancing")) == (
        "2",
        "0-7",
        "0",
    )
    decision, *messages = machine.said
    assert isinstance(decision, DecisionMessage)
    assert decision.change_id == messages[0].change_id
    assert [(action.key, action.was, action.becomes) for action in decision.evaluation.actions] == [
        ("irq/57/affinity", "0-7", "2"),
        (BALANCING, "1", "0"),
    ]
    assert last_states(machine) == [ChangeState.APPLYING, ChangeState.UNCONFIRMED, ChangeState.CONFIRMED]


def test_restore_undoes_persisted_settings_and_forgets_them(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.set_by_hand(irq41="2")
    machine.command("persist", "irq/41/affinity")
    machine.reboot({57: "eth0-rx-0"})
    machine.start().steps(CONFIRM_AFTER_S + ROUND_PERIOD_S)
    assert machine.affinity(57) == "2"
    assert machine.command("restore") == 0
    assert machine.affinity(57) == "0-7"
    assert "No setting is persisted any more." in capsys.readouterr().out
    machine.reboot({57: "eth0-rx-0"})
    machine.start().steps(CONFIRM_AFTER_S)
    assert machine.affinity(57) == "0-7"


def fail_to_unlink(*_: object, **__: object) -> None:
    raise OSError(errno.EROFS, os.strerror(errno.EROFS))


def test_restore_restores_where_the_persisted_settings_cannot_be_forgotten_and_says_that_they_come_back(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    machine.set_by_hand(irq41="2")
    machine.command("persist", "irq/41/affinity")
    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", fail_to_unlink)
        assert machine.command("restore") == 1
    assert machine.affinity(41) == "0-7"
    assert "The agent sets them again after a reboot" in caplog.text
    assert machine.command("restore") == 0


def test_restore_on_a_read_only_disk_succeeds_where_nothing_is_persisted(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.set_by_hand(irq41="2")
    monkeypatch.setattr(os, "unlink", fail_to_unlink)
    assert machine.command("restore") == 0
    assert machine.affinity(41) == "0-7"


def test_restore_forgets_persisted_settings_also_with_a_lost_journal(machine: Machine) -> None:
    machine.set_by_hand(irq41="2")
    machine.command("persist", "irq/41/affinity")
    for journal in machine.path.parent.glob("journal*.jsonl"):
        journal.unlink()
    assert machine.command("restore") == 1
    assert not (machine.state / "agent/persisted.json").exists()


def test_forgetting_waits_for_an_agent_that_records_what_it_applied(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.set_by_hand(irq41="2")
    machine.command("persist", "irq/41/affinity")
    agent = machine.start()
    held = []

    def unlink(path: Path) -> None:
        with pytest.raises(BlockingIOError), (machine.state / "agent/journal.lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        held.append(path.name)

    monkeypatch.setattr(Path, "unlink", lambda path, missing_ok=False: unlink(path))
    assert machine.command("restore") == 0
    agent.changes.close()
    assert held == ["persisted.json"]


def test_an_agent_that_restarts_in_the_same_boot_does_not_set_them_again(machine: Machine) -> None:
    machine.set_by_hand(irq41="2")
    machine.command("persist", "irq/41/affinity")
    for _ in range(2):
        machine.start().steps(CONFIRM_AFTER_S + ROUND_PERIOD_S)
        machine.write("proc/irq/41/smp_affinity_list", "5\n")
    assert machine.affinity(41) == "5", "right after persist"
    machine.reboot(NAMES)
    machine.start().steps(CONFIRM_AFTER_S + ROUND_PERIOD_S)
    assert machine.affinity(41) == "2"
    machine.write("proc/irq/41/smp_affinity_list", "5\n")
    machine.start().steps(CONFIRM_AFTER_S + ROUND_PERIOD_S)
    assert machine.affinity(41) == "5", "after it was applied"


def test_an_agent_that_is_killed_before_the_confirmation_rolls_back_and_begins_anew(machine: Machine) -> None:
    machine.set_by_hand(irq41="2")
    machine.command("persist", "irq/41/affinity")
    machine.reboot(NAMES)
    machine.start().steps(1)
    assert machine.affinity(41) == "2"
    after = machine.start()
    assert machine.affinity(41) == "0-7"
    after.steps(CONFIRM_AFTER_S + ROUND_PERIOD_S)
    assert machine.affinity(41) == "2"
    assert machine.command("restore") == 0
    assert machine.affinity(41) == "0-7"


def prepare_limits(machine: Machine) -> None:
    machine.limits = Limits(SettingLimits(allow=["kernel/*"]))


def prepare_read_only(machine: Machine) -> None:
    (machine.root / "proc/irq/41/smp_affinity_list").chmod(0o444)


def prepare_two_of_the_name(machine: Machine) -> None:
    machine.reboot({41: "eth0-rx-0", 42: "eth0-rx-0"})


@pytest.mark.parametrize(
    ("prepare", "why"),
    [
        (prepare_limits, "does not allow to change irq/41/affinity"),
        (prepare_read_only, "read-only"),
        (prepare_two_of_the_name, "Not exactly one interrupt is named eth0-rx-0"),
    ],
)
def test_a_setting_that_cannot_be_set_is_left_out_with_the_reason_and_the_others_are_set(
    machine: Machine, prepare: Callable[[Machine], None], why: str
) -> None:
    machine.set_by_hand(irq41="2", numa_balancing="0")
    machine.command("persist", "irq/41/affinity", BALANCING)
    machine.reboot(NAMES)
    prepare(machine)
    machine.start().steps(WAIT_S + 2 * CONFIRM_AFTER_S)
    assert machine.affinity(41) == "0-7"
    assert machine.read("proc/sys/kernel/numa_balancing") == "0"
    ((subject, said),) = left_out(machine).items()
    assert subject == "irq/41/affinity (eth0-rx-0): CPU 2"
    assert why in said


def test_a_setting_that_another_program_changes_before_the_confirmation_is_left_out_and_the_others_are_set(
    machine: Machine,
) -> None:
    machine.set_by_hand(irq41="2", irq42="3", numa_balancing="0")
    machine.command("persist", "irq/41/affinity", "irq/42/affinity", BALANCING)
    machine.reboot(NAMES)
    agent = machine.start()
    agent.steps(CONFIRM_AFTER_S / 2)
    machine.write("proc/irq/41/smp_affinity_list", "5\n")
    agent.steps(CONFIRM_AFTER_S + ROUND_PERIOD_S)
    machine.write("proc/irq/41/smp_affinity_list", "6\n")
    agent.steps(CONFIRM_AFTER_S + ROUND_PERIOD_S)
    settings = machine.affinity(41), machine.affinity(42), machine.read("proc/sys/kernel/numa_balancing")
    assert settings == ("6", "3", "0")
    assert left_out(machine) == {
        "irq/41/affinity (eth0-rx-0): CPU 2": "IRQ 41 is 5 instead of 2: another program changed it."
    }


def test_a_setting_that_this_version_does_not_know_is_left_out_and_the_others_are_set(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.set_by_hand(numa_balancing="0")
    machine.command("persist", BALANCING)
    file = machine.state / "agent/persisted.json"
    content = json.loads(file.read_text())
    content["settings"].insert(0, {"key": "kernel/of-a-later-version", "value": "1"})
    file.write_text(json.dumps(content))
    machine.reboot(NAMES)
    machine.start().steps(WAIT_S + 2 * CONFIRM_AFTER_S)
    assert machine.read("proc/sys/kernel/numa_balancing") == "0"
    assert [*left_out(machine)] == ["kernel/of-a-later-version: 1"]
    capsys.readouterr()
    assert machine.command("persist", "--list") == 0
    assert capsys.readouterr().out.startswith("kernel/of-a-later-version: 1\n")


class Asked(ChangeRunner):
    """Notes the plans that it is asked to apply, and confirms each."""

    def __init__(self) -> None:
        super().__init__(None, lambda _: None)
        self.plans: list[list[str]] = []

    def feed(self, event: Event) -> frozenset[str]:
        assert isinstance(event, ApplyRequested)
        self.plans.append([action.key for action in event.plan.actions])
        return frozenset()

    def change(self, change_id: str) -> Change:
        return Change(change_id, Plan([]), ChangeState.CONFIRMED, "", 30.0)

    def locked(self) -> AbstractContextManager[None]:
        return nullcontext()


CONTEXT = PersistedSetting("netdev/eth0/rss-context/1", "0", allow_isolated=True)
RULES = [
    PersistedSetting(f"netdev/eth0/flow-rule/{slot}", f"flow-type tcp4 dst-port {slot + 1} context 1")
    for slot in range(MAX_PLAN_ACTIONS)
]


def step_with(machine: Machine, settings: list[PersistedSetting], times_s: list[float]) -> list[list[str]]:
    """Return the keys of the plans that steps at these times apply, with the context from its plan on."""
    file = machine.path.with_name("persisted.json")
    file.parent.mkdir(parents=True)
    write_persisted(file, Persisted("boot 0", settings))
    asked = Asked()
    persisted = PersistedSettings(machine.path, machine.root, asked, machine.said.append)
    for time_s in times_s:
        contexts = [RssContext(1, "0", ours=True)] if [CONTEXT.key] in asked.plans else []
        table = FlowRuleTable(2 * MAX_PLAN_ACTIONS)
        netdev = make_netdev(queues=[Queue("rx-0")], flow_rules=table, rss="0", rss_contexts=contexts)
        persisted.step(make_view(8, netdevs=[netdev], time_s=time_s))
    return asked.plans


def test_a_context_is_created_before_the_rules_that_name_it_however_many_they_are(machine: Machine) -> None:
    plans = step_with(machine, [*RULES, CONTEXT], [0.0, 15.0, 30.0])
    assert plans == [[CONTEXT.key], [rule.key for rule in RULES]]
    assert left_out(machine) == {}


@pytest.mark.parametrize(
    ("times_s", "leaves_out"), [([0.0, WAIT_S - 1], []), ([0.0, WAIT_S], [RULES[0].sentence])], ids=["before", "after"]
)
def test_a_rule_without_its_context_is_left_out_once_that_was_awaited(
    machine: Machine, times_s: list[float], leaves_out: list[str]
) -> None:
    assert step_with(machine, RULES[:1], times_s) == []
    assert [*left_out(machine)] == leaves_out


def test_a_device_that_appears_later_is_awaited(machine: Machine) -> None:
    machine.set_by_hand(irq41="2")
    machine.command("persist", "irq/41/affinity")
    machine.reboot({45: "other"})
    agent = machine.start()
    agent.steps(WAIT_S / 2)
    machine.names = {45: "other", 57: "eth0-rx-0"}
    machine.write("proc/irq/57/smp_affinity_list", "0-7\n")
    agent.steps(CONFIRM_AFTER_S + ROUND_PERIOD_S)
    assert machine.affinity(57) == "2"
    assert left_out(machine) == {}


def drift(machine: Machine) -> None:
    machine.set_by_hand(irq41="2")
    machine.write("proc/irq/41/smp_affinity_list", "5\n")


def apply_unconfirmed(machine: Machine) -> None:
    agent = machine.start()
    agent.changes.handle(Apply("open", Plan([Action("irq/41/affinity", "0-7", "2", "by hand")]), 120))


def apply_by_policy(machine: Machine) -> None:
    agent = machine.start()
    plan = Plan([Action("irq/41/affinity", "0-7", "2", "policy")])
    agent.changes.feed(ApplyRequested("p", plan, 30, policy="spread", confirm_after_s=0))
    agent.changes.tick()


def reboot_after(machine: Machine) -> None:
    machine.set_by_hand(irq41="2")
    machine.reboot(NAMES)


@pytest.mark.parametrize(
    ("prepare", "key", "why"),
    [
        (lambda _: None, "irq/41/affinity", "No change of Coresteer has set IRQ 41 since the last boot"),
        (lambda _: None, "irq/x", "is not"),
        (lambda _: None, "task/812/nice", "after a reboot, PID 812 is another process"),
        (drift, "irq/41/affinity", "another program changed it"),
        (apply_unconfirmed, "irq/41/affinity", "is not confirmed yet"),
        (apply_by_policy, "irq/41/affinity", "Policy spread has set IRQ 41"),
        (reboot_after, "irq/41/affinity", "since the last boot"),
        (lambda m: m.set_by_hand(irq43="2"), "irq/43/affinity", "2 interrupts are named ahci"),
        (lambda m: m.set_by_hand(irq45="2"), "irq/45/affinity", "it has no name in /proc/interrupts"),
    ],
)
def test_what_cannot_be_persisted_is_refused_with_the_reason_and_nothing_is_persisted(
    machine: Machine, caplog: pytest.LogCaptureFixture, prepare: Callable[[Machine], None], key: str, why: str
) -> None:
    prepare(machine)
    assert machine.command("persist", key) == 1
    assert why in caplog.text
    assert not (machine.state / "agent/persisted.json").exists()


def test_the_file_can_be_written_by_its_owner_only(machine: Machine) -> None:
    machine.set_by_hand(irq41="2")
    machine.command("persist", "irq/41/affinity")
    file = machine.state / "agent/persisted.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_a_setting_is_listed_until_it_is_removed_and_keeps_its_value(
    machine: Machine, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    machine.set_by_hand(irq41="2", numa_balancing="0")
    machine.command("persist", BALANCING, "irq/41/affinity")
    machine.command("persist", BALANCING)
    capsys.readouterr()
    assert machine.command("persist", "--list") == 0
    assert sorted(capsys.readouterr().out.splitlines()) == [
        "irq/41/affinity (eth0-rx-0): CPU 2",
        "kernel/numa_balancing: 0",
    ]
    assert machine.command("persist", "--remove", "irq/41/affinity") == 0
    assert machine.affinity(41) == "2"
    assert machine.command("persist", "--list") == 0
    assert capsys.readouterr().out == "kernel/numa_balancing: 0\n"
    assert machine.command("persist", "--remove", "irq/41/affinity") == 1
    assert "irq/41/affinity is not persisted" in caplog.text


def test_the_list_says_where_the_present_value_is_another_one(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.set_by_hand(irq41="2", numa_balancing="0")
    machine.command("persist", "irq/41/affinity", BALANCING)
    agent = machine.start()
    agent.changes.handle(Apply("later", Plan([Action("irq/41/affinity", "2", "3", "by hand")]), 120))
    agent.changes.handle(Confirm("later"))
    agent.changes.close()
    capsys.readouterr()
    assert machine.command("persist", "--list") == 0
    assert capsys.readouterr().out.splitlines() == [
        "irq/41/affinity (eth0-rx-0): CPU 2; at present CPU 3",
        "kernel/numa_balancing: 0",
    ]


@pytest.mark.parametrize("arguments", [["--list", "irq/41/affinity"], ["--remove"], []])
def test_without_exactly_the_settings_that_it_needs_the_command_says_so(machine: Machine, arguments: list[str]) -> None:
    assert machine.command("persist", *arguments) == 2


def test_a_damaged_file_changes_nothing_and_is_reported(machine: Machine, caplog: pytest.LogCaptureFixture) -> None:
    machine.path.parent.mkdir(parents=True)
    Journal(machine.path, machine.root).close()
    (machine.state / "agent/persisted.json").write_text(json.dumps({"settings": [{"key": 5}]}))
    machine.start().steps(ROUND_PERIOD_S)
    assert "cannot be parsed" in caplog.text
    assert machine.command("persist", "--list") == 1
