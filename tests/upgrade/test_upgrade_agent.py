"""The state directory that an agent of commit 602788d left behind, killed in the middle of a change, is understood."""

import errno
import shutil
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from tests.support.views import EMPTY
from tests.upgrade.machine import KernelTunable, Machine, stored
from tests.upgrade.names import STORED, now, then

from coresteer_agent.apply import executor
from coresteer_agent.apply.journal import Journal
from coresteer_agent.apply.journal_copies import parse_lines
from coresteer_agent.apply.restore import restore
from coresteer_agent.runtime.changes import DELEGATED_CHANGE_ID, NodeChanges
from coresteer_agent.runtime.commands import allowed_command
from coresteer_agent.runtime.nic_learning import NicLearningFile
from coresteer_agent.runtime.policies_file import PoliciesFile
from coresteer_agent.transport.enrol import load_key
from coresteer_core.changes.report import ChangeMessage
from coresteer_core.settings import parse_setting

STATE = STORED / "agent-state"
OPEN = {DELEGATED_CHANGE_ID, "not confirmed", "killed"}
ENDED = {
    "kept": ("confirmed", None),
    "kept parameters": ("confirmed", None),
    "rolled back": ("rolled_back", "user"),
    "guardrail": ("rolled_back", "guardrail"),
    "timeout": ("rolled_back", "timeout"),
    "refused": ("failed", "error"),
}
HELD = {
    "irq/41/affinity": ("1", "1", "8"),
    "irq/43/affinity": ("1", "3", "12"),
    "task/813/affinity": ("2", "0-3", "2"),
    "netdev/eth0/coalesce/rx-usecs": ("3", "8", "90"),
    "cgroup/web.slice/cpu.weight": ("4", "100", "200"),
    "cgroup/docker/1/cpu.shares": ("4", "1024", "2048"),
}
"""By setting: the policy that holds it, the value before and its own."""
SETTINGS = 47


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """The machine as it was left."""
    files, kernel = stored(STATE)
    machine = Machine(tmp_path / "root", {now("setting", key): values[1] for key, values in kernel.items()})
    machine.build({path: values[1] for path, values in files.items()})
    monkeypatch.setattr(executor, "Tunable", machine.tunable)
    return machine


@pytest.fixture
def before(tmp_path: Path) -> Machine:
    """The machine as it was before Coresteer."""
    files, kernel = stored(STATE)
    machine = Machine(tmp_path / "before", {now("setting", key): values[0] for key, values in kernel.items()})
    machine.build({path: values[0] for path, values in files.items()})
    return machine


@pytest.fixture
def state(tmp_path: Path, machine: Machine) -> Path:
    """The agent's folder in its state directory."""
    folder = tmp_path / "state/agent"
    folder.mkdir(parents=True)
    folder.chmod(0o700)
    for file in ("policies.json", "nics.json", "key.json", "commands.toml"):
        shutil.copy(STATE / file, folder / file)
        (folder / file).chmod(0o600)
    (folder / "journal.jsonl").write_text(machine.at_home((STATE / "journal.jsonl").read_text()))
    return folder


def value(machine: Machine, key: str) -> str:
    """What stands in a setting."""
    return machine.tunable(machine.root, parse_setting(key)).read()


def originals(state: Path, machine: Machine) -> dict[str, str]:
    journal = Journal(state / "journal.jsonl", machine.root)
    found = journal.originals()
    journal.close()
    return found


def keeper(state: Path, machine: Machine, told: list[ChangeMessage]) -> NodeChanges:
    """An agent's, when it starts."""
    return NodeChanges(machine.root, state / "journal.jsonl", None, lambda: EMPTY, told.append)


def test_the_journal_still_knows_every_original(state: Path, machine: Machine, before: Machine) -> None:
    known = originals(state, machine)
    assert len(known) == SETTINGS
    assert known == {key: value(before, key) for key in known}


def test_the_journal_has_checksums_and_a_copy_once_it_was_opened(state: Path, machine: Machine) -> None:
    originals(state, machine)
    content = parse_lines((state / "journal.jsonl").read_bytes())
    assert content.whole
    assert content.data == (state / "journal.copy.jsonl").read_bytes()


def test_restore_puts_every_original_back(state: Path, machine: Machine, before: Machine) -> None:
    known = originals(state, machine)
    moved = [key for key in known if value(machine, key) != value(before, key)]
    assert len(moved) == SETTINGS
    results = restore(state / "journal.jsonl", machine.root)
    assert results is not None
    assert [result.sentence for result in results if not result.done] == []
    assert {key: value(machine, key) for key in known} == {key: value(before, key) for key in known}
    assert originals(state, machine) == {}


def test_a_new_agent_undoes_what_was_open_and_leaves_what_was_kept(
    state: Path, machine: Machine, before: Machine
) -> None:
    told: list[ChangeMessage] = []
    changes = keeper(state, machine, told)
    try:
        for name, (change_state, ended_by) in ENDED.items():
            change = changes.change(name)
            assert change is not None, name
            by = None if ended_by is None else now("ended by", ended_by)
            assert (change.state, change.ended_by) == (now("change state", change_state), by), name
        for name in OPEN:
            change = changes.change(name)
            assert change is not None, name
            assert (change.state, change.ended_by) == (
                now("change state", "rolled_back"),
                now("ended by", "agent_restart"),
            ), change.sentence
            for key in change.keys - {now("setting", "irq/50/affinity")}:  # which a person had moved before it was lent
                assert value(machine, key) == value(before, key)
    finally:
        changes.close()
    assert value(machine, now("setting", "irq/50/affinity")) == "9-10"
    assert value(machine, now("setting", "netdev/eth0/ring/rx")) == "2048"


def test_a_delegated_setting_that_cannot_be_restored_keeps_its_original_when_it_is_delegated_again(
    state: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reject(tunable: KernelTunable, value: str) -> None:
        raise OSError(errno.EIO, "Input/output error")

    key = now("setting", "irq/50/affinity")
    machine.kernel[key] = "5"
    with monkeypatch.context() as stuck:
        stuck.setattr(KernelTunable, "write", reject)
        changes = keeper(state, machine, [])
    try:
        change = changes.change(DELEGATED_CHANGE_ID)
        assert change is not None
        assert change.state == now("change state", "failed")
        assert changes.delegate([key]) == {key}
        assert changes.revoke(1) is not None
    finally:
        changes.close()
    assert value(machine, key) == "9-10"


def test_policies_and_what_they_hold_are_still_known(state: Path, machine: Machine) -> None:
    kept = PoliciesFile(state / "policies.json", machine.root).read()
    found = [(policy.name, policy.version, msgspec.to_builtins(policy.spec)["type"]) for policy in kept.policies]
    assert [(name, version, then("policy type", kind)) for name, version, kind in found] == [
        ("spread", 3, "irq-spread"),
        ("near", 1, "network-process"),
        ("classes", 2, "service-class"),
        ("only proposes", 1, "irq-spread"),
        ("only looks", 1, "network-process"),
    ]
    modes = Counter(then("mode", policy.mode) for policy in kept.policies)
    assert modes == {"enforce": 3, "recommend": 1, "observe": 1}
    spread = kept.policies[0]
    assert (spread.rank, spread.scope.netdevs) == (10, ["eth*"])
    assert (spread.damping.dwell_s, spread.damping.min_revert_s) == (10.0, 60.0)
    owns = (spread.on_controller, spread.on_drift)
    assert owns == (now("ownership", "take_over"), now("ownership", "yield"))
    assert len(spread.guardrails) == 1
    holdings = {key: (held.policy_id, held.original, held.value) for key, held in kept.memory.holdings.items()}
    assert holdings == {now("setting", key): held for key, held in HELD.items()}
    assert kept.former["3"].name == "wait"
    assert kept.memory.yielded == {now("setting", "irq/42/affinity"): "1"}
    assert kept.memory.processes == {now("setting", "task/813/affinity"): 8120}
    memories = {policy_id: msgspec.to_builtins(memory)["type"] for policy_id, memory in kept.memory.memories.items()}
    assert {policy_id: then("policy type", kind) for policy_id, kind in memories.items()} == {
        "1": "irq-spread",
        "2": "network-process",
        "3": "coalescing",
        "4": "service-class",
        "5": "irq-spread",
        "6": "network-process",
    }
    assert list(kept.refusals) == [now("setting", "irq/40/affinity")]
    assert Counter(own.confirmed for own in kept.changes.values()) == {True: 4, False: 1}


def test_after_a_reboot_only_the_policies_count(state: Path, machine: Machine) -> None:
    (machine.root / "proc/sys/kernel/random/boot_id").write_text("another\n")
    kept = PoliciesFile(state / "policies.json", machine.root).read()
    assert (len(kept.policies), kept.memory.holdings) == (5, {})
    assert originals(state, machine) == {}


def test_what_was_learned_of_nics_is_still_known(state: Path) -> None:
    learned = NicLearningFile(state / "nics.json").read()
    verdicts = Counter(then("verdict", t.verdict) for record in learned.drivers for t in record.responses)
    assert verdicts == {"refused": 1, "rounded": 1, "ignored": 1, "taken": 1}
    assert (len(learned.points), learned.points[0].rx_usecs) == (1, 7)


def test_the_key_and_the_allowed_commands_are_still_known(state: Path) -> None:
    key = load_key(state / "key.json")
    assert key is not None
    assert (key.backend, key.node_id, key.name, key.key) == (
        "https://coresteer.example",
        7,
        "node-7",
        "csn_not-a-key",
    )
    assert allowed_command(state / "commands.toml", "bench") == ["/usr/local/bin/bench", "--json"]
