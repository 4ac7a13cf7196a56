"""/proc/interrupts: how often each interrupt arrived on each CPU (kernel: kernel/irq/proc.c)."""

import re

from msgspec import Struct

PATH = "proc/interrupts"

_HWIRQ = re.compile(r"\d+(-\S+)?\Z|-\S+\Z", re.ASCII)


class Description(Struct, frozen=True):
    """chip: the interrupt controller, with the device for PCI-MSIX; name: of those who asked for the interrupt."""

    chip: str
    name: str


def parse_description(text: str) -> Description:
    """The text after the counters, ``PCI-MSIX-0000:00:03.0   1-edge      virtio2-input.0``.

    The hardware's number and the trigger are dropped. Several names are separated by commas.
    """
    parts = text.split()
    chip, rest = (parts[0], parts[1:]) if parts else ("", [])
    if rest and _HWIRQ.match(rest[0]):
        rest = rest[1:]
    if rest and rest[0] in ("Level", "Edge"):
        rest = rest[1:]
    return Description(chip, " ".join(rest))
