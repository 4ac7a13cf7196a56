"""What files of sysctl, systemd-udevd and NetworkManager set at boot, by the settings that Coresteer knows."""

from pathlib import Path

import pytest

from coresteer_agent.collect.boot_files import parse_options, read_boot_settings
from coresteer_agent.observe.inventory import InventoryReader
from coresteer_core.changes.handover_formats import Line, in_link, in_network_manager, in_sysctl
from coresteer_core.settings import parse_setting
from coresteer_core.settings.tool_options import LINK_OPTIONS

LINK = "etc/systemd/network/10-nic.link"
PROFILE = "etc/NetworkManager/system-connections/wired.nmconnection"
UUID = "0b5a2e0e-7d3f-4d4e-8c0a-0d6c1a4a7d11"


def _found(root: Path, files: dict[str, str]) -> dict[str, tuple[str, str]]:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return {each.key: (each.value, each.file) for each in read_boot_settings(root, {"eth0": 2})}


def test_options_of_a_file_are_its_lines_but_for_comments_and_sections() -> None:
    text = "a = 1\n[Link]\n# Name=x\n;Name=y\nName = z = 1\nbroken\n=\n[]\nb=\n"
    assert parse_options(text) == [
        *(("", "a", "1"), ("Link", "Name", "z = 1"), ("Link", "broken", None), ("Link", "", ""), ("", "b", "")),
    ]


@pytest.mark.parametrize(
    ("files", "value", "file"),
    [
        pytest.param(
            {"etc/sysctl.d/90-a.conf": "net.core.netdev_budget = 0600\n"},
            *("600", "/etc/sysctl.d/90-a.conf"),
            id="in the setting's own form",
        ),
        pytest.param(
            {"run/sysctl.d/a.conf": "- net/core/netdev_budget=600"},
            *("600", "/run/sysctl.d/a.conf"),
            id="a dash and slashes",
        ),
        pytest.param(
            {
                "etc/sysctl.d/a.conf": "net.core.netdev_budget=1",
                "etc/sysctl.d/b.conf": "net.core.netdev_budget=2\n-net.core.netdev_budget",
                "etc/sysctl.d/z.conf": "net.core.netdev_budget=3",
            },
            *("3", "/etc/sysctl.d/z.conf"),
            id="unset, and set again",
        ),
        pytest.param(
            {"etc/sysctl.d/a.conf": "net.core.netdev_budget=1", "usr/lib/sysctl.d/b.conf": "net.core.netdev_budget=2"},
            *("2", "/usr/lib/sysctl.d/b.conf"),
            id="the last name counts",
        ),
        pytest.param(
            {"etc/sysctl.d/a.conf": "net.core.netdev_budget=1", "usr/lib/sysctl.d/a.conf": "net.core.netdev_budget=2"},
            *("1", "/etc/sysctl.d/a.conf"),
            id="the administrator's file hides that of a package",
        ),
    ],
)
def test_the_parameter_of_the_kernel_has_the_value_of_the_file_that_counts(
    tmp_path: Path, files: dict[str, str], value: str, file: str
) -> None:
    others = {"etc/sysctl.d/c.conf": "vm.swappiness = 10\n", "etc/sysctl.d/README": "net.core.netdev_budget=9\n"}
    assert _found(tmp_path, files | others) == {"kernel/netdev_budget": (value, file)}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("RxCoalesceSec=50us", {"coalesce/rx-usecs": "50"}),
        ("RxCoalesceSec=1 ms", {"coalesce/rx-usecs": "1000"}),
        ("TxCoalesceSec=2", {"coalesce/tx-usecs": "2000000"}),
        ("RxCoalesceSec=1ms 500µs", {"coalesce/rx-usecs": "1500"}),
        ("RxCoalesceSec=0.05ms", {"coalesce/rx-usecs": "50"}),
        ("RxCoalesceSec=50us\nRxCoalesceSec=infinity", {"coalesce/rx-usecs": "50"}),
        ("RxCoalesceSec=2h", {}),
        ("RxCoalesceSec=50us\nRxCoalesceSec=", {}),
        ("UseAdaptiveRxCoalesce=yes", {"coalesce/adaptive-rx": "on"}),
        ("NTupleFilter=false", {"ntuple": "off"}),
        ("RxBufferSize=max\nRxBufferSize=512", {"ring/rx": "512"}),
        ("TxChannels=2\nRxChannels=4", {"channels": "rx 4,tx 2"}),
        ("CombinedChannels=max", {"channels": "combined max"}),
        ("CombinedChannels=", {}),
        ("Name=lan0\nRxBufferSize=\x1b[31m", {"ring/rx": "?[31m"}),
    ],
)
def test_the_link_file_of_a_device_is_the_one_that_udev_names(
    tmp_path: Path, options: str, expected: dict[str, str]
) -> None:
    files = {
        LINK: f"[Match]\nRxBufferSize=1\n[Link]\n{options}\n",
        "etc/systemd/network/20-other.link": "[Link]\nRxBufferSize=9\n",
        "run/udev/data/n2": f"E:ID_NET_NAME=eth0\nE:ID_NET_LINK_FILE=/{LINK}\n",
        "run/udev/data/n3": "E:ID_NET_LINK_FILE=/etc/systemd/network/20-other.link\n",
    }
    assert _found(tmp_path, files) == {f"netdev/eth0/{name}": (value, f"/{LINK}") for name, value in expected.items()}


def test_a_link_file_outside_of_systemds_folders_is_not_read(tmp_path: Path) -> None:
    text = "[Link]\nRxBufferSize=512\n"
    for path in ("/etc/secret", "/etc/systemd/network/../../secret", "/etc/systemd/network-x/a.link"):
        files = {"etc/secret": text, "etc/systemd/network-x/a.link": text, LINK: text}
        files["run/udev/data/n2"] = f"E:ID_NET_LINK_FILE={path}\n"
        assert _found(tmp_path, files) == {}


def test_a_profile_of_network_manager_counts_while_it_is_active(tmp_path: Path) -> None:
    profile = (
        f"[connection]\nid=wired\nuuid={UUID}\n[wifi-security]\npsk=secret\n"
        "[ethtool]\ncoalesce-rx-usecs=50\ncoalesce-adaptive-rx=1\nfeature-ntuple=true\nfeature-gro=false\n"
        "channels-combined=4\nring-rx=512\n"
    )
    assert _found(tmp_path, {PROFILE: profile}) == {}
    values = {"coalesce/rx-usecs": "50", "coalesce/adaptive-rx": "on", "ntuple": "on", "ring/rx": "512"}
    expected = {f"netdev/eth0/{name}": (value, f"/{PROFILE}") for name, value in values.items()}
    expected["netdev/eth0/channels"] = ("combined 4", f"/{PROFILE}")
    assert _found(tmp_path, {"run/NetworkManager/devices/2": f"[device]\nconnection-uuid={UUID}\n"}) == expected


def test_a_backup_is_no_profile_and_a_name_need_not_be_ascii(tmp_path: Path) -> None:
    name = "etc/NetworkManager/system-connections/Verbindung für LAN (1).nmconnection"
    text = f"[connection]\nuuid={UUID}\n[ethtool]\nring-rx="
    files = {name: f"{text}512\n", f"{name}~": f"{text}64\n"}
    files["run/NetworkManager/devices/2"] = f"connection-uuid={UUID}\n"
    assert _found(tmp_path, files) == {"netdev/eth0/ring/rx": ("512", f"/{name}")}


def test_a_profile_counts_more_than_a_link_file_and_its_drop_ins_more_than_the_file(tmp_path: Path) -> None:
    drop_in = f"{LINK}.d/a.conf"
    files = {
        LINK: "[Link]\nRxBufferSize=512\nTxBufferSize=512\nRxChannels=1\nUseAdaptiveRxCoalesce=t\n",
        drop_in: "[Link]\nTxBufferSize=256\n",
        "run/udev/data/n2": f"E:ID_NET_LINK_FILE_DROPINS=/{drop_in}\nE:ID_NET_LINK_FILE=/{LINK}\n",
        PROFILE: f"[connection]\nuuid={UUID}\n[ethtool]\nring-rx=1024\nchannels-tx=2\n",
        "run/NetworkManager/devices/2": f"connection-uuid={UUID}\n",
    }
    assert _found(tmp_path, files) == {
        "netdev/eth0/ring/rx": ("1024", f"/{PROFILE}"),
        "netdev/eth0/ring/tx": ("256", f"/{drop_in}"),
        "netdev/eth0/channels": ("rx 1,tx 2", f"/{PROFILE}"),
        "netdev/eth0/coalesce/adaptive-rx": ("on", f"/{LINK}"),
    }


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("kernel/busy_read", "50"),
        *((f"netdev/eth0/{param}", "on") for param in LINK_OPTIONS if param == "ntuple" or "adaptive" in param),
        *((f"netdev/eth0/{param}", "48") for param in LINK_OPTIONS if "/" in param and "adaptive" not in param),
    ],
)
def test_what_a_handover_writes_is_read_back(tmp_path: Path, key: str, value: str) -> None:
    if "/channels/" in key:
        key, _, kind = key.rpartition("/")
        value = f"{kind} {value}"
    setting = parse_setting(key)
    if (parameter := in_sysctl(setting, value)) is not None:
        text = f"{parameter.name} = {parameter.value}\n"
        assert _found(tmp_path, {"etc/sysctl.d/a.conf": text})[key][0] == value
        return
    udev = {"run/udev/data/n2": f"E:ID_NET_LINK_FILE=/{LINK}\n"}
    active = {"run/NetworkManager/devices/2": f"connection-uuid={UUID}\n"}
    for line, files, head, path in (
        (in_link(setting, value), udev, "[Link]\n", LINK),
        (in_network_manager(setting, value), active, f"[connection]\nuuid={UUID}\n[ethtool]\n", PROFILE),
    ):
        assert isinstance(line, Line)
        text = head + (f"{line.name}={line.value}" if line.name else line.value)
        assert _found(tmp_path, {**files, path: text}) == {key: (value, f"/{path}")}


def test_the_inventory_has_what_is_set_at_boot(tmp_path: Path) -> None:
    assert InventoryReader(tmp_path).read().boot_settings == []
    _found(tmp_path, {"etc/sysctl.d/a.conf": "net.core.busy_poll=50\n"})
    assert [each.key for each in InventoryReader(tmp_path).read().boot_settings] == ["kernel/busy_poll"]
