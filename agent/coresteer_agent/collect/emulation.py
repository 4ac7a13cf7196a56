"""Detects a machine whose CPUs are emulated in software, as by QEMU without an accelerator."""

from pathlib import Path

from coresteer_agent.collect.files import read_text

_PM_TIMER = "acpi_pm"
"""Of x86 alone; elsewhere the clocks do not tell an emulated machine from a virtual one."""
_OF_HYPERVISORS = ("kvm-clock", "hyperv", "xen", "vmware")


def read_emulated(root: Path) -> bool:
    """Return whether the CPUs of the machine below root are emulated in software; False where that is unknown."""
    vendor = read_text(root, "sys/class/dmi/id/sys_vendor") or ""
    clocks = read_text(root, "sys/devices/system/clocksource/clocksource0/available_clocksource") or ""
    return parse_emulated(vendor, clocks)


def parse_emulated(vendor: str, clocks: str) -> bool:
    """Return whether QEMU's firmware and the available clocks, none of them a hypervisor's, are of an emulated CPU."""
    names = clocks.split()
    return (
        vendor.strip() == "QEMU" and _PM_TIMER in names and not any(name.startswith(_OF_HYPERVISORS) for name in names)
    )
