"""Whether the machine's CPUs are emulated in software."""

from pathlib import Path

import pytest

from coresteer_agent.collect.emulation import parse_emulated, read_emulated

EMULATED = "tsc hpet acpi_pm \n"


@pytest.mark.parametrize(
    ("vendor", "clocks", "expected"),
    [
        ("QEMU\n", EMULATED, True),
        ("QEMU\n", "kvm-clock tsc acpi_pm \n", False),
        ("QEMU\n", "hyperv_clocksource_tsc_page acpi_pm \n", False),
        ("QEMU\n", "arch_sys_counter \n", False),
        ("QEMU\n", "", False),
        ("Dell Inc.\n", EMULATED, False),
        ("", "", False),
    ],
    ids=["QEMU alone", "KVM", "Hyper-V", "not x86", "clocks unknown", "hardware", "nothing known"],
)
def test_a_machine_of_qemu_without_a_hypervisors_clock_is_emulated(vendor: str, clocks: str, expected: bool) -> None:
    assert parse_emulated(vendor, clocks) is expected


def test_files_below_the_root_are_read(tmp_path: Path) -> None:
    assert read_emulated(tmp_path) is False
    for path, text in (
        ("sys/class/dmi/id/sys_vendor", "QEMU\n"),
        ("sys/devices/system/clocksource/clocksource0/available_clocksource", EMULATED),
    ):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text(text)
    assert read_emulated(tmp_path) is True
