"""What the administrator of a node lets any backend do."""

import pytest
from msgspec.structs import replace
from tests.support.views import make_view

from coresteer_core.changes.plan import DesiredValue, preview
from coresteer_core.experiments.load_limits import load_refusal
from coresteer_core.experiments.model import Iperf3, Memory, Observe, TcpRequest, TcpStream, UdpFlood, Workload
from coresteer_core.experiments.parallel_jobs import Bsp
from coresteer_core.node.inventory import Irq
from coresteer_core.node.limits import Limits, LoadLimits, SettingLimits, address_refusal
from coresteer_core.node.view import View

IRQS = [Irq(41, "eth0-rx-0", "PCI-MSIX", "0-3", "0", 0, True), Irq(9, "nvme0q1", "PCI-MSIX", "0-3", "0", 0, True)]


def node(limits: Limits) -> View:
    view = make_view(4, irqs=IRQS)
    return replace(view, inventory=replace(view.inventory, limits=limits))


def refused(limits: Limits, key: str, value: str) -> list[tuple[str, str]]:
    """Return code and sentence of what a preview refuses."""
    return [(each.code, each.sentence) for each in preview(node(limits), [DesiredValue(key, value)], reason="").refused]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (SettingLimits(allow=["task/*"]), "does not allow to change irq/41/affinity; settings.allow is: task/*."),
        (SettingLimits(allow=[]), "settings.allow is: none."),
        (SettingLimits(cpus_off_limits="2-3"), "CPU 3 is off limits on this node: see cpus_off_limits in /etc/"),
        (SettingLimits(interrupts_off_limits=["41"]), "off limits on this node: see “41” in interrupts_off_limits"),
        (SettingLimits(interrupts_off_limits=["x", "eth0-*"]), "see “eth0-*” in interrupts_off_limits"),
    ],
)
def test_a_preview_names_the_limit_that_forbids_a_change(settings: SettingLimits, sentence: str) -> None:
    [(code, why)] = refused(Limits(settings), "irq/41/affinity", "3")
    assert code == "limits"
    assert sentence in why


@pytest.mark.parametrize(
    "settings",
    [
        SettingLimits(),
        SettingLimits(allow=["irq/*"]),
        SettingLimits(cpus_off_limits="0-2", interrupts_off_limits=["nvme*", "4", "1"]),
    ],
)
def test_what_the_limits_do_not_mention_is_allowed(settings: SettingLimits) -> None:
    assert refused(Limits(settings), "irq/41/affinity", "3") == []


def test_limits_that_cannot_be_read_allow_nothing() -> None:
    limits = Limits(unusable="It can be written by others.")
    assert [code for code, _ in refused(limits, "irq/41/affinity", "3")] == ["limits"]
    assert "It can be written by others." in (load_refusal(limits, Memory()) or "")
    assert load_refusal(limits, Observe()) is None


@pytest.mark.parametrize(
    ("loads", "workload", "sentence"),
    [
        (LoadLimits(), UdpFlood(packets_per_s=5_000_000), None),
        (LoadLimits(allow=False), Memory(), "allows no loads: loads.allow is false."),
        (LoadLimits(allow=False), Observe(), None),
        (LoadLimits(max_mbit_per_s=100), TcpStream(limit_mbit_per_s=100), None),
        (LoadLimits(max_mbit_per_s=100), TcpStream(), "(loads.max_mbit_per_s); this one is up to 400,000 Mbit/s."),
        (LoadLimits(max_mbit_per_s=100), Iperf3(), "this one is up to 10,000 Mbit/s. Lower the rate"),
        (LoadLimits(max_mbit_per_s=1), UdpFlood(packets_per_s=2000, payload_bytes=100), "is up to 2 Mbit/s."),
        (LoadLimits(max_mbit_per_s=8), TcpRequest(limit_per_s=1000, response_bytes=1001), "is up to 8 Mbit/s."),
        (LoadLimits(max_packets_per_s=999), UdpFlood(packets_per_s=1000), "is up to 1,000 packets/s."),
        (LoadLimits(max_packets_per_s=999), TcpRequest(limit_per_s=1000), "is up to 1,000 packets/s."),
        (LoadLimits(max_packets_per_s=999), Bsp(machines=2), "this one is not limited."),
        (LoadLimits(max_packets_per_s=999), Bsp(), None),
    ],
)
def test_a_load_is_refused_with_the_limit_that_it_exceeds(
    loads: LoadLimits, workload: Workload, sentence: str | None
) -> None:
    found = load_refusal(Limits(loads=loads), workload)
    assert found is None if sentence is None else sentence in (found or "")


def test_a_load_may_not_be_pinned_to_a_cpu_that_is_off_limits() -> None:
    limits = Limits(SettingLimits(cpus_off_limits="2"))
    assert "CPU 2 is off limits" in (load_refusal(limits, Memory(memory_cpus="1-3")) or "")
    assert load_refusal(limits, Memory(memory_cpus="0-1")) is None


@pytest.mark.parametrize(
    ("addresses", "address", "sentence"),
    [
        (None, "203.0.113.9:80", None),
        (["10.0.0.0/8", "fd00::/8"], "10.1.2.3:80", None),
        (["10.0.0.0/8", "fd00::/8"], "203.0.113.9:80", "no load to 203.0.113.9; loads.addresses allows: 10.0.0.0/8, f"),
        ([], "10.0.0.1:80", "loads.addresses allows: none."),
        ([], "127.0.0.1:80", None),
        (None, "example.org:80", "is not an address IP:PORT"),
        (None, "10.0.0.1", "is not an address IP:PORT"),
        (None, "10.0.0.1:0", "is not an address IP:PORT"),
        (None, "224.0.0.1:80", "is not the address of one node"),
        (None, "255.255.255.255:80", "is not the address of one node"),
        (None, "0.0.0.0:80", "is not the address of one node"),
    ],
)
def test_a_load_goes_only_to_addresses_that_the_limits_allow(
    addresses: list[str] | None, address: str, sentence: str | None
) -> None:
    found = address_refusal(Limits(loads=LoadLimits(addresses=addresses)), address)
    assert found is None if sentence is None else sentence in (found or "")
