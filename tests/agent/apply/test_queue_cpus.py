"""RPS and XPS in a captured tree, and of a veth pair in a network namespace of the test's own."""

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.views import make_view

from coresteer_agent.apply import rooted
from coresteer_agent.apply.executor import Executor
from coresteer_agent.apply.journal import Journal
from coresteer_agent.apply.restore import restore
from coresteer_core.changes.plan import Action
from coresteer_core.changes.report import Outcome

DEVICE = "sys/devices/pci0000:00/0000:00:03.0/net/eth0"
RPS = "netdev/eth0/rx-0/rps"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A tree with a netdev as in sysfs: its folder is a link."""
    root = tmp_path / "root"
    for queue, file in (("rx-0", "rps_cpus"), ("tx-0", "xps_cpus")):
        folder = root / DEVICE / "queues" / queue
        folder.mkdir(parents=True)
        (folder / file).write_text("00000000,00000000\n")
    (root / DEVICE / "ifindex").write_text("2\n")
    (root / "sys/class/net").mkdir(parents=True)
    (root / "sys/class/net/eth0").symlink_to("../../devices/pci0000:00/0000:00:03.0/net/eth0")
    return root


def mask(root: Path, queue: str = "rx-0/rps_cpus") -> str:
    return (root / DEVICE / "queues" / queue).read_text().strip()


def test_a_cpu_mask_is_written_in_the_kernels_format_and_restored(
    executor: Executor, root: Path, journal: Journal
) -> None:
    result = executor.apply(Action(RPS, "none", "0,2-3", "test"), change_id="c")
    assert (result.outcome, result.read_back) == (Outcome.APPLIED, "0,2-3"), result
    assert result.sentence == "RPS of eth0 rx-0 was changed from none to 0,2-3."
    assert mask(root) == "d"
    [back] = restore(journal.path, root) or []
    assert back.sentence == "RPS of eth0 rx-0 was restored to none."
    assert mask(root) == "0"


def test_a_mask_is_restored_as_far_as_its_cpus_are_online(
    executor: Executor, root: Path, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel drops CPUs that are offline from a mask, in contrast to the file of a tree."""
    (root / "sys/devices/system/cpu").mkdir(parents=True)
    (root / "sys/devices/system/cpu/online").write_text("0-2\n")
    write = rooted.write_text
    monkeypatch.setattr(rooted, "write_text", lambda at, path, text: write(at, path, "7\n" if text == "f\n" else text))
    journal.record_original("c", RPS, "0-3", [])
    result = executor.undo(Action(RPS, "none", "0-3", "test"))
    assert (result.done, result.read_back, mask(root), journal.originals()) == (True, "0-2", "7", {}), result


def test_a_mask_of_more_than_32_cpus_has_comma_separated_groups(root: Path, journal: Journal) -> None:
    executor = Executor(root, journal, lambda: make_view(64))
    asked = Action("netdev/eth0/tx-0/xps", "none", "1,33-34", "test")
    assert executor.apply(asked, change_id="c").outcome is Outcome.APPLIED
    assert mask(root, "tx-0/xps_cpus") == "6,00000002"


@pytest.mark.parametrize(
    ("asked", "outcome", "says"),
    [
        (Action(RPS, "none", "7", ""), "refused", "CPU 7 is not online"),
        (Action(RPS, "none", "6", ""), "refused", "isolcpus"),
        (Action(RPS, "2", "3", ""), "refused", "was 2 when this was previewed and is none now"),
        (
            Action("netdev/eth0/rx-9/rps", "none", "1", ""),
            "unsupported",
            "RPS of eth0 rx-9 does not exist on this node",
        ),
        (
            Action("netdev/eth9/rx-0/rps", "none", "1", ""),
            "unsupported",
            "RPS of eth9 rx-0 does not exist on this node",
        ),
        (Action("netdev/eth0/rss", "0", "1", ""), "unsupported", "RSS of eth0 does not exist on this node"),
        (Action("netdev/eth0/channels", "combined 1", "combined 2", ""), "unsupported", "not exist on this node"),
    ],
)
def test_forbidden_and_unknown_values_are_not_written(
    executor: Executor, root: Path, asked: Action, outcome: str, says: str
) -> None:
    result = executor.apply(asked, change_id="c")
    assert (result.outcome, mask(root)) == (outcome, "00000000,00000000")
    assert says in result.sentence


def test_another_netdev_with_the_same_name_is_not_changed(executor: Executor, root: Path) -> None:
    executor.apply(Action(RPS, "none", "1", "test"), change_id="c")
    (root / DEVICE / "ifindex").write_text("7\n")
    result = executor.undo(Action(RPS, "1", "none", "test"))
    assert result.outcome is Outcome.UNSUPPORTED
    assert result.sentence == "RPS of eth0 rx-0 no longer exists: it belonged to interface 2, now to interface 7."


@pytest.mark.parametrize("another", [False, True], ids=["no netdev has the name", "another netdev has the name"])
def test_a_setting_of_a_netdev_that_was_renamed_is_restored(
    executor: Executor, root: Path, journal: Journal, another: bool
) -> None:
    executor.apply(Action(RPS, "none", "1", "test"), change_id="c")
    (root / "sys/class/net/eth0").rename(root / "sys/class/net/wan0")
    if another:
        (root / "sys/class/net/eth0").mkdir()
        (root / "sys/class/net/eth0/ifindex").write_text("7\n")
    [result] = restore(journal.path, root) or []
    assert (result.key, result.outcome) == (RPS, Outcome.APPLIED)
    assert result.sentence == "RPS of wan0 rx-0 was restored to none."
    assert mask(root) == "0"
    assert restore(journal.path, root) == []


@pytest.mark.parametrize(
    ("code", "outcome", "says"),
    [
        (errno.EINVAL, "failed", "isolcpus or nohz_full"),
        (errno.EPERM, "refused", "as root"),
        (errno.EROFS, "refused", "read-only"),
        (errno.EIO, "failed", "Input/output error"),
    ],
)
def test_each_kernel_error_has_its_outcome_and_message(
    executor: Executor, monkeypatch: pytest.MonkeyPatch, code: int, outcome: str, says: str
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(rooted, "write_text", refuse)
    result = executor.apply(Action(RPS, "none", "1", "test"), change_id="c")
    assert result.outcome == outcome
    assert says in result.sentence


@pytest.mark.parametrize("target", ["../../../../outside", "/outside", "../../../sys/../../outside"])
def test_no_link_of_a_netdev_leads_out_of_the_root_directory(executor: Executor, root: Path, target: str) -> None:
    shutil.copytree(root / DEVICE, root.parent / "outside")
    link = root / "sys/class/net/eth0"
    link.unlink()
    link.symlink_to(target if target.startswith("..") else root.parent / "outside")
    assert executor.apply(Action(RPS, "none", "1", "test"), change_id="c").outcome in ("unsupported", "failed")
    assert (root.parent / "outside/queues/rx-0/rps_cpus").read_text() == "00000000,00000000\n"


# what is done in the namespace: both knobs of a veth, its channels, and restore
TRIAL = """
import json, sys
from pathlib import Path
from coresteer_agent.apply.executor import Executor
from coresteer_agent.apply.journal import Journal
from coresteer_agent.apply.restore import restore
from coresteer_agent.observe.inventory import InventoryReader
from coresteer_agent.collect.topology import read_topology
from coresteer_core.node.view import View
from coresteer_core.changes.plan import DesiredValue, preview

root, path = Path("/"), Path(sys.argv[1])
journal = Journal(path, root)
view = lambda: View(read_topology(root), InventoryReader(root).read())
executor = Executor(root, journal, view)
told = []
for key, value in [a.split("=") for a in sys.argv[2:]]:
    shown = preview(view(), [DesiredValue(key, value)], reason="trial")
    results = [executor.apply(action, change_id="c") for action in shown.plan.actions]
    told.append([[r.code for r in shown.refused], [(r.outcome, r.sentence) for r in results]])
told.append([result.sentence for result in restore(path, root)])
[va] = [n for n in view().inventory.netdevs if n.name == "va"]
told.append([va.channels, va.channels_max, [q.name for q in va.queues], va.queues[0].rps])
print(json.dumps(told))
"""


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("ip") is None, reason="A network namespace needs root and ip (package iproute2)."
)
def test_a_veths_rps_xps_and_channels_are_set_and_restored(tmp_path: Path) -> None:
    desired = ["netdev/va/rx-0/rps=0", "netdev/va/rx-0/rps=0", "netdev/va/tx-1/xps=0", "netdev/va/channels=rx 1,tx 1"]
    desired += ["netdev/va/channels=combined 3", "netdev/va/rss=0", "netdev/va/rx-7/rps=0"]
    script = (
        "mount -t sysfs none /sys && ip link add va numrxqueues 2 numtxqueues 2 type veth peer name vb "
        'numrxqueues 2 numtxqueues 2 && exec "$0" -c "$@"'
    )
    command = ["unshare", "--net", "--mount", "sh", "-c", script, sys.executable, TRIAL]
    arguments = [*command, str(tmp_path / "agent/journal.jsonl"), *desired]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)
    if "must be superuser" in done.stderr or "not permitted" in done.stderr:
        pytest.skip(f"No namespace can be made here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    *told, restored, stands = json.loads(done.stdout)
    assert told == [
        [[], [["applied", "RPS of va rx-0 was changed from none to 0."]]],
        [[], []],
        [[], [["applied", "XPS of va tx-1 was changed from none to 0."]]],
        [[], [["applied", "va's number of channels was changed from rx 2,tx 2 to rx 1,tx 1."]]],
        [["channels"], [["refused", "va has channels for rx 2,tx 2 at the most, not combined 3."]]],
        [["unsupported"], []],
        [["unknown"], []],
    ], told
    assert restored == [
        "va's number of channels was restored to rx 2,tx 2.",
        "XPS of va tx-1 is none, as before.",
        "RPS of va rx-0 was restored to none.",
    ]
    assert stands == ["rx 2,tx 2", "rx 2,tx 2", ["rx-0", "rx-1", "tx-0", "tx-1"], ""]
