"""Coalescing, rings and polling: a captured tree's files, and a tap and a veth in a network namespace of the test's."""

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.support.views import make_netdev, make_view

from coresteer_agent.apply import netdev_params, queue_params, rooted
from coresteer_agent.apply.executor import Executor
from coresteer_agent.apply.journal import Journal
from coresteer_agent.apply.netdev_common import NetdevHandler
from coresteer_agent.apply.netdev_params import NetdevParamHandler
from coresteer_agent.apply.queue_params import QueueParamHandler
from coresteer_agent.apply.registry import Tunable
from coresteer_agent.apply.restore import restore
from coresteer_agent.apply.rss_table import RssTableHandler
from coresteer_agent.linux import ethtool, ethtool_params, napi
from coresteer_agent.linux.ethtool_params import Params
from coresteer_agent.observe.inventory import InventoryReader
from coresteer_agent.observe.netdev_settings import EthtoolSettings, read_ethtool_settings
from coresteer_core.changes.plan import Action
from coresteer_core.changes.report import Outcome
from coresteer_core.node.inventory import FlowRuleTable
from coresteer_core.node.view import View
from coresteer_core.settings import NetdevParam, QueueParam, RssTable, parse_setting

DEVICE = "sys/devices/pci0000:00/0000:00:03.0/net/eth0"
FLUSH = "netdev/eth0/gro_flush_timeout"
FLOW_CNT = "netdev/eth0/rx-0/rps_flow_cnt"
RX_USECS = "netdev/eth0/coalesce/rx-usecs"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A tree with a netdev as in sysfs: its folder is a link."""
    root = tmp_path / "root"
    (root / DEVICE / "queues/rx-0").mkdir(parents=True)
    files = {"gro_flush_timeout": "0", "napi_defer_hard_irqs": "0", "ifindex": "2", "threaded": "0"}
    for file, text in (files | {"queues/rx-0/rps_flow_cnt": "0"}).items():
        (root / DEVICE / file).write_text(f"{text}\n")
    (root / "sys/class/net").mkdir(parents=True)
    (root / "sys/class/net/eth0").symlink_to("../../devices/pci0000:00/0000:00:03.0/net/eth0")
    return root


@pytest.fixture
def executor(root: Path, journal: Journal, view: View) -> Executor:
    inventory = replace(view.inventory, netdevs=InventoryReader(root).read().netdevs)
    return Executor(root, journal, lambda: replace(view, inventory=inventory))


def flush(root: Path) -> str:
    return (root / DEVICE / "gro_flush_timeout").read_text().strip()


def test_gro_flush_timeout_is_written_read_back_and_restored(executor: Executor, root: Path, journal: Journal) -> None:
    result = executor.apply(Action(FLUSH, "0", "20000", "test"), change_id="c")
    assert (result.outcome, result.found, result.read_back) == (Outcome.APPLIED, "0", "20000"), result
    assert result.sentence == "gro_flush_timeout of eth0 was changed from 0 to 20000."
    assert flush(root) == "20000"
    [back] = restore(journal.path, root) or []
    assert (back.sentence, flush(root)) == ("gro_flush_timeout of eth0 was restored to 0.", "0")


@pytest.mark.parametrize(
    ("key", "value", "file"),
    [("netdev/eth0/threaded", "1", "threaded"), (FLOW_CNT, "4096", "queues/rx-0/rps_flow_cnt")],
)
def test_threaded_and_rps_flow_cnt_are_written_read_back_and_restored(
    executor: Executor, root: Path, key: str, value: str, file: str
) -> None:
    result = executor.apply(Action(key, "0", value, "test"), change_id="c")
    assert (result.outcome, (root / DEVICE / file).read_text().strip()) == (Outcome.APPLIED, value), result
    back = executor.undo(Action(key, value, "0", "test"))
    assert (back.outcome, (root / DEVICE / file).read_text().strip()) == (Outcome.APPLIED, "0")


@pytest.mark.parametrize(
    ("written", "rescan"),
    [(FLOW_CNT, False), (FLOW_CNT, True), ("netdev/eth0/channels", False)],
    ids=["alone", "in a round that lists devices", "by a driver that made its queues anew"],
)
def test_the_inventory_reads_rps_flow_cnt_again_after_a_write(root: Path, written: str, *, rescan: bool) -> None:
    reader = InventoryReader(root)
    assert [queue.params for queue in reader.read().netdevs[0].queues] == [{"rps_flow_cnt": "0"}]
    (root / DEVICE / "queues/rx-0/rps_flow_cnt").write_text("4096\n")
    reader.reread([parse_setting(written)])
    if rescan:
        reader.rescan()
    assert [queue.params for queue in reader.read().netdevs[0].queues] == [{"rps_flow_cnt": "4096"}]


@pytest.mark.parametrize(
    ("asked", "outcome", "says"),
    [
        (
            Action("netdev/eth0/ntuple", "off", "on", ""),
            "unsupported",
            "ntuple of eth0 cannot be changed: its driver has",
        ),
        (Action(FLOW_CNT, "0", "3000", ""), "refused", "to which the kernel rounds up: 2048 or 4096, not 3000."),
        (Action(FLUSH, "0", "10000001", ""), "refused", "can be from 0 to 10000000 ns, not 10000001."),
        (
            Action("netdev/eth9/gro_flush_timeout", "0", "1", ""),
            "unsupported",
            "gro_flush_timeout of eth9 does not exist on this node",
        ),
        (Action(RX_USECS, "0", "50", ""), "unsupported", "rx-usecs of eth0 does not exist on this node"),
        (Action("netdev/eth0/ring/rx", "0", "512", ""), "unsupported", "rx ring of eth0 does not exist on this node"),
        (
            Action("netdev/eth0/rx-0/gro_flush_timeout", "0", "1", ""),
            "unsupported",
            "gro_flush_timeout of eth0 rx-0 does not exist on this",
        ),
    ],
)
def test_out_of_range_values_and_missing_parameters_are_not_written(
    executor: Executor, root: Path, asked: Action, outcome: str, says: str
) -> None:
    result = executor.apply(asked, change_id="c")
    assert (result.outcome, flush(root)) == (outcome, "0"), result
    assert says in result.sentence


def test_a_file_without_a_number_is_reported(executor: Executor, root: Path) -> None:
    (root / DEVICE / "gro_flush_timeout").write_text("soon\n")
    result = executor.apply(Action(FLUSH, "0", "1", "test"), change_id="c")
    assert (result.outcome, flush(root)) == (Outcome.FAILED, "soon")
    assert "cannot be parsed: “soon” is not a number of ns" in result.sentence


@pytest.mark.parametrize(
    ("error", "outcome", "says"),
    [
        (
            OSError(errno.EINVAL, "requested ring size exceeds maximum"),
            "refused",
            "requested ring size exceeds maximum",
        ),
        (OSError(errno.ERANGE, "integer out of range"), "refused", "integer out of range"),
        (OSError(errno.EOPNOTSUPP, "Operation not supported"), "refused", "Operation not supported"),
        (OSError(524, "Unknown error 524"), "refused", "Operation not supported"),
        (OSError(errno.EBUSY, "Device or resource busy"), "failed", "Device or resource busy"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "failed", "Cannot allocate memory"),
        (OSError(errno.EPERM, "Operation not permitted"), "refused", "as root"),
        (OSError(errno.EROFS, "Read-only file system"), "refused", "systemd unit or in a container"),
        (rooted.ReadOnlyModeError("path"), "refused", "read-only"),
    ],
)
def test_only_an_error_about_the_value_is_a_refusal_by_the_driver(
    error: OSError | rooted.ReadOnlyModeError, outcome: str, says: str
) -> None:
    found, sentence = NetdevHandler[NetdevParam]().explain(error, Path("/"))
    assert found == outcome
    assert says in sentence
    assert sentence.endswith(".")


class Nic:
    """What a driver has of a netdev and of its queues; it makes multiples of 8 of rings."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.values = {"coalesce/rx-usecs": "3", "coalesce/tx-usecs": "3", "ring/rx": "256"}
        self.queue = {"coalesce/rx-usecs": "7", "coalesce/rx-frames": "0"}
        self.napi = {"gro_flush_timeout": "0"}
        for name, replacement in {
            "read_params": lambda _: Params(dict(self.values), {"ring/rx": "4096"}),
            "read_queue_params": lambda _, queues: {queue: dict(self.queue) for queue in queues},
            "set_param": lambda _, name, value: self.values.update({name: self._made(name, value)}),
            "set_queue_param": lambda _, queue, name, value: self.queue.update({name: value}),
        }.items():
            monkeypatch.setattr(ethtool_params, name, replacement)
        monkeypatch.setattr(napi, "read_napi_id", lambda netdev, queue: 8193)
        monkeypatch.setattr(napi, "read_params", lambda _: dict(self.napi))
        monkeypatch.setattr(napi, "set_param", lambda _, name, value: self.napi.update({name: value}))
        for module in (netdev_params, queue_params):
            monkeypatch.setattr(module, "is_running_kernel", lambda _: True)

    @staticmethod
    def _made(name: str, value: str) -> str:
        return str(-(-int(value) // 8) * 8) if name.startswith("ring/") else value


def test_a_value_that_the_driver_rounds_is_reported_and_reverted(
    executor: Executor, journal: Journal, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nic = Nic(monkeypatch)
    result = executor.apply(Action("netdev/eth0/ring/rx", "256", "500", "test"), change_id="c")
    assert (result.outcome, result.found, result.read_back) == (Outcome.FAILED, "256", "504")
    assert result.sentence == "rx ring of eth0 was set to 500, but the kernel changed it to 504."
    assert [back.sentence for back in restore(journal.path, root) or []] == ["rx ring of eth0 was restored to 256."]
    assert nic.values["ring/rx"] == "256"


@pytest.mark.parametrize(
    ("key", "kept_in"),
    [
        (RX_USECS, "values"),
        ("netdev/eth0/rx-0/coalesce/rx-usecs", "queue"),
        ("netdev/eth0/rx-0/gro_flush_timeout", "napi"),
    ],
)
def test_each_parameter_is_written_through_its_own_kernel_interface(
    executor: Executor, journal: Journal, monkeypatch: pytest.MonkeyPatch, key: str, kept_in: str
) -> None:
    values: dict[str, str] = getattr(Nic(monkeypatch), kept_in)
    before, name = dict(values), key.removeprefix("netdev/eth0/").removeprefix("rx-0/")
    result = executor.apply(Action(key, before[name], "50", "test"), change_id="c")
    assert (result.outcome, values) == (Outcome.APPLIED, before | {name: "50"}), result
    assert executor.undo(Action(key, "50", before[name], "test")).done
    assert values == before


def test_a_queue_has_only_parameters_that_its_netdev_has(monkeypatch: pytest.MonkeyPatch) -> None:
    Nic(monkeypatch)
    root = Path("/")
    assert QueueParamHandler().exists(root, QueueParam("eth0", "coalesce/rx-usecs", "rx-0"))
    assert not QueueParamHandler().exists(root, QueueParam("eth0", "coalesce/rx-frames", "rx-0"))
    assert not NetdevParamHandler().exists(root, NetdevParam("eth0", "coalesce/adaptive-rx"))


@pytest.mark.parametrize(
    "key",
    ["netdev/{}/ring/rx", "netdev/{}/rx-0/coalesce/rx-usecs", "netdev/{}/channels", "netdev/{}/rss",
     "netdev/{}/rx-0/gro_flush_timeout"],
)  # fmt: skip
def test_a_netdev_is_gone_only_if_the_kernel_does_not_have_it(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    """lo stands for a netdev whose driver answers ENODEV until it has restarted it."""
    Nic(monkeypatch)

    def away(*_: object) -> Params:
        raise OSError(errno.ENODEV, "no device matches name")

    for module, name in (
        (ethtool_params, "read_params"), (ethtool, "read_channels"), (ethtool, "read_rss"), (napi, "read_napi_id"),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, away)
    assert not Tunable(Path("/"), parse_setting(key.format("gone0"))).exists()
    with pytest.raises(OSError, match="no device matches name"):
        Tunable(Path("/"), parse_setting(key.format("lo"))).exists()


def test_settings_of_a_netdev_that_its_driver_restarts_stay_those_of_the_last_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def away(_: str) -> Params:
        raise OSError(errno.ENODEV, "no device matches name")

    monkeypatch.setattr(ethtool, "read_channels", away)
    known = EthtoolSettings(rss="0,1", params={"coalesce/rx-usecs": "50"}, flow_rules=FlowRuleTable(8, [], True))
    found = read_ethtool_settings(Path("/"), ["lo", "gone0"], {"lo": known, "gone0": known})
    assert found["lo"] == replace(known, flow_rules=FlowRuleTable(8, [], False))
    assert found["gone0"].params == {}


def test_a_queue_of_a_netdev_that_is_gone_has_no_napi() -> None:
    with pytest.raises(OSError, match="No such device"):
        napi.read_napi_id("gone0", 0)
    assert not Tunable(Path("/"), parse_setting("netdev/gone0/rx-0/gro_flush_timeout")).exists()


def test_other_errors_of_a_parameter_are_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(_: str) -> Params:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(ethtool_params, "read_params", away)
    with pytest.raises(OSError, match="Input/output error"):
        NetdevParamHandler().exists(Path("/"), NetdevParam("eth0", "ring/rx"))


def test_an_rss_pattern_that_is_longer_than_the_table_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table of some drivers is as long as they have queues: fewer queues make it shorter than its original."""
    monkeypatch.setattr(ethtool, "read_rss", lambda _: ethtool.Rss(b"", [0, 1], ""))
    with pytest.raises(OSError, match=r"The pattern of 4 queues is longer than the RSS table \(2 entries\)") as raised:
        RssTableHandler().write(Path("/"), RssTable("eth0"), "0,1,2,3")
    outcome, why = RssTableHandler().explain(raised.value, Path("/"))
    assert (outcome, "longer than the RSS table" in why) == (Outcome.REFUSED, True)
    view = make_view(2, netdevs=[make_netdev("eth0", rss="0,1", rss_entries=2)])
    [(code, sentence)] = RssTable("eth0").refusals(view, "0,1,0")
    assert (code, sentence) == ("queue", "The pattern of 3 queues is longer than the RSS table (2 entries).")


def test_after_a_write_only_the_written_netdev_is_read_again(root: Path) -> None:
    reader = InventoryReader(root)
    before = reader.read()
    reader.reread([parse_setting(FLUSH)])
    assert reader.read() is before
    (root / DEVICE / "gro_flush_timeout").write_text("20000\n")
    (root / "ethtool.json").write_text('{"eth0":{"params":{"coalesce/rx-usecs":"8"}}}')
    (root / "netlink-queues.json").write_text(
        '{"2":{"rx-0":{"irq":null,"source":null,"params":{"napi_defer_hard_irqs":"2"}}}}'
    )
    reader.reread([parse_setting(FLUSH), parse_setting("netdev/eth9/ring/rx")])
    [netdev] = reader.read().netdevs
    assert netdev.params == {
        "coalesce/rx-usecs": "8",
        "gro_flush_timeout": "20000",
        "napi_defer_hard_irqs": "0",
        "threaded": "0",
    }
    assert netdev.queues[0].params == {"napi_defer_hard_irqs": "2", "rps_flow_cnt": "0"}


@given(text=st.text(max_size=30))
def test_any_file_content_is_a_number_or_absent(text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    root = tmp_path_factory.mktemp("machine")
    (root / "sys/class/net/eth0").mkdir(parents=True)
    (root / "sys/class/net/eth0/gro_flush_timeout").write_text(text)
    [netdev] = InventoryReader(root).read().netdevs
    assert all(value.isascii() and value.isdecimal() for value in netdev.params.values())


# what is done in the namespace: a tap's packets a batch, a veth's polling, a NAPI's, and restore
TRIAL = """
import errno, json, struct, sys
from pathlib import Path
from coresteer_agent.linux import ethtool, napi
from coresteer_agent.apply.executor import Executor
from coresteer_agent.apply.journal import Journal
from coresteer_agent.apply.netdev_common import NetdevHandler
from coresteer_agent.apply.netdev_params import NetdevParamHandler
from coresteer_agent.apply.queue_params import QueueParamHandler
from coresteer_agent.apply.restore import restore
from coresteer_agent.observe import queues
from coresteer_agent.observe.inventory import InventoryReader
from coresteer_agent.linux.netlink import NETLINK_GENERIC, Netlink, family_id
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
params = {n.name: n.params for n in view().inventory.netdevs if n.name in ("va", "t0")}
told.append(params)

# a veth's NAPIs, which it has with GRO on, are nobody's queue for netlink: set by their own numbers
ethtool.ioctl("va", struct.pack("=II", 0x2C, 1))
netlink = Netlink(NETLINK_GENERIC)
family = family_id("netdev")
napis = [n[2] for n in queues._dump(netlink, family, queues._NAPI_GET) if 2 in n]
said = []
for name, value in (("gro_flush_timeout", str(5 << 32)), ("napi_defer_hard_irqs", "2"),
                    ("napi_defer_hard_irqs", str(1 << 31))) if napis and napi.read_params(napis[0]) else ():
    try:
        napi.set_param(napis[0], name, value)
        said.append(napi.read_params(napis[0])[name])
    except OSError as error:
        said.append([errno.errorcode[error.errno], error.strerror])
told.append(said)
print(json.dumps(told))
"""


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("ip") is None or not Path("/dev/net/tun").exists(),
    reason="A network namespace with a tap needs root, ip (package iproute2) and /dev/net/tun.",
)
def test_rx_frames_of_a_tap_are_rounded_and_the_polling_of_a_veth_is_set_and_restored(tmp_path: Path) -> None:
    desired = ["netdev/t0/coalesce/rx-frames=500", "netdev/t0/coalesce/rx-frames=16", "netdev/t0/coalesce/rx-usecs=5"]
    desired += ["netdev/va/gro_flush_timeout=20000", "netdev/va/napi_defer_hard_irqs=2", "netdev/va/ring/rx=64"]
    desired += ["netdev/va/rx-0/rps_flow_cnt=256", "netdev/va/ntuple=on"]
    script = (
        "mount -t sysfs none /sys && ip tuntap add t0 mode tap && ip link add va type veth peer name vb && "
        'ip link set va up && ip link set vb up && exec "$0" -c "$@"'
    )
    command = ["unshare", "--net", "--mount", "sh", "-c", script, sys.executable, TRIAL]
    arguments = [*command, str(tmp_path / "agent/journal.jsonl"), *desired]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)
    if "must be superuser" in done.stderr or "not permitted" in done.stderr:
        pytest.skip(f"No namespace can be made here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    *told, restored, stands, of_napi = json.loads(done.stdout)
    assert told == [
        [[], [["failed", "rx-frames of t0 was set to 500, but the kernel changed it to 64."]]],
        [[], [["applied", "rx-frames of t0 was changed from 64 to 16."]]],
        [["unsupported"], []],
        [[], [["applied", "gro_flush_timeout of va was changed from 0 to 20000."]]],
        [[], [["applied", "napi_defer_hard_irqs of va was changed from 0 to 2."]]],
        [["unsupported"], []],
        [[], [["applied", "rps_flow_cnt of va rx-0 was changed from 0 to 256."]]],
        [["unknown"], []],
    ], told
    assert restored == [
        "rps_flow_cnt of va rx-0 was restored to 0.",
        "napi_defer_hard_irqs of va was restored to 0.",
        "gro_flush_timeout of va was restored to 0.",
        "rx-frames of t0 was restored to 0.",
    ]
    of_kernel = {"gro_flush_timeout": "0", "napi_defer_hard_irqs": "0", "threaded": "0"}
    assert stands == {"t0": {"coalesce/rx-frames": "0", **of_kernel}, "va": of_kernel}
    if not of_napi:
        pytest.skip("The rest needs Linux 6.13, whose NAPIs have values of their own.")
    assert of_napi == [str(5 << 32), "2", ["ERANGE", "integer out of range"]]
