"""Which files of other programs a preview names because they set another value at the next boot."""

import pytest
from msgspec.structs import replace
from tests.support.views import EMPTY, make_netdev

from coresteer_core.changes.guard import warnings
from coresteer_core.node.inventory import BootSetting
from coresteer_core.node.view import View

FILE = "/etc/systemd/network/10-nic.link"


@pytest.fixture
def view() -> View:
    params = {"ring/rx": "256", "coalesce/rx-usecs": "3"}
    maxima = {"ring/rx": "4096"}
    netdev = replace(make_netdev(), channels="combined 4", channels_max="combined 8", params=params, params_max=maxima)
    settings = {"kernel/netdev_budget": "300", "kernel/rps_sock_flow_entries": "0"}
    return replace(EMPTY, inventory=replace(EMPTY.inventory, netdevs=[netdev], settings=settings))


def _sentences(view: View, key: str, value: str, at_boot: str) -> list[str]:
    boot = [BootSetting(key, at_boot, FILE), BootSetting("kernel/busy_poll", "50", "/etc/sysctl.d/a.conf")]
    planned = replace(view, inventory=replace(view.inventory, boot_settings=boot))
    found = warnings(planned, [(key, value)], allow_isolated=False)
    return [warning.sentence for warning in found if (warning.code, warning.key) == ("boot", key)]


@pytest.mark.parametrize(
    ("key", "value", "at_boot", "sentence"),
    [
        ("kernel/netdev_budget", "600", "300", "net.core.netdev_budget to 300 packets"),
        ("netdev/eth0/ring/rx", "512", "max", "rx ring of eth0 to max"),
        ("netdev/eth0/channels", "combined 4", "combined 8", "eth0's number of channels to combined 8"),
        ("netdev/eth0/channels", "combined 4", "combined max", "eth0's number of channels to combined max"),
    ],
)
def test_a_preview_warns_of_a_file_that_sets_another_value_at_boot(
    view: View, key: str, value: str, at_boot: str, sentence: str
) -> None:
    assert _sentences(view, key, value, at_boot) == [f"{FILE} will set {sentence} at the next boot, or earlier."]


@pytest.mark.parametrize(
    ("key", "value", "at_boot"),
    [
        ("kernel/netdev_budget", "600", "600"),
        ("netdev/eth0/ring/rx", "4096", "max"),
        ("netdev/eth0/channels", "combined 8", "combined max"),
        ("netdev/eth0/channels", "rx 1,combined 4", "combined 4"),
    ],
)
def test_a_file_that_sets_the_same_value_at_boot_is_not_warned_of(
    view: View, key: str, value: str, at_boot: str
) -> None:
    assert _sentences(view, key, value, at_boot) == []
