"""What files of sysctl, systemd-udevd and NetworkManager set at boot, by the settings that Coresteer knows."""

from pathlib import Path

import pytest

from coresteer_agent.collect.boot_files import parse_options, read_boot_settings
from coresteer_agent.observe.inventory import InventoryReader

LINK = "etc/systemd/network/10-nic.link"
PROFILE = "etc/NetworkManager/system-connections/wired.nmconnection"
UUID = "0b5a2e0e-7d3f-4d4e-8c0a-0d6c1a4a7d11"


def _found(root: Path, files: dict[str, str]) -> dict[str, tuple[str, str]]:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return {each.key: (each.value, each.file) for each in read_boot_settings(root, {"eth0": 2})}


def test_options_of_a_file_are_those_lines_that_are_neither_comments_nor_broken() -> None:
    text = "a = 1\n[Link]\n# Name=x\n;Name=y\nName = z = 1\nbroken\n=\n[]\nb=\n"
    assert parse_options(text) == [("", "a", "1"), ("Link", "Name", "z = 1"), ("Link", "", ""), ("", "b", "")]


@pytest.mark.parametrize(
    ("files", "value", "file"),
    [
        pytest.param({"etc/sysctl.d/90-a.conf": "net.core.netdev_budget = 600\n"}, "600", "/etc/sysctl.d/90-a.conf"),
        pytest.param({"run/sysctl.d/a.conf": "-net/core/netdev_budget=600"}, "600", "/run/sysctl.d/a.conf", id="marks"),
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
        ("RxCoalesceSec=infinity", {"coalesce/rx-usecs": "infinity"}),
        ("UseAdaptiveRxCoalesce=yes", {"coalesce/adaptive-rx": "on"}),
        ("NTupleFilter=false", {"ntuple": "off"}),
        ("RxBufferSize=max\nRxBufferSize=512", {"ring/rx": "512"}),
        ("TxChannels=2\nRxChannels=4", {"channels": "rx 4,tx 2"}),
        ("CombinedChannels=max", {"channels": "combined max"}),
        ("Name=lan0\nRxBufferSize=\x1b[31m", {}),
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
    for path in ("/etc/secret", "/etc/systemd/network/../../secret"):
        files = {"etc/secret": text, "run/udev/data/n2": f"E:ID_NET_LINK_FILE={path}\n", LINK: text}
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


def test_the_inventory_has_what_is_set_at_boot(tmp_path: Path) -> None:
    assert InventoryReader(tmp_path).read().boot_settings == []
    _found(tmp_path, {"etc/sysctl.d/a.conf": "net.core.busy_poll=50\n"})
    assert [each.key for each in InventoryReader(tmp_path).read().boot_settings] == ["kernel/busy_poll"]
