"""Parses descriptions of interrupts in /proc/interrupts (kernel: kernel/irq/proc.c)."""

import os
import re
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from coresteer_agent.collect.files import open_file

PATH = "proc/interrupts"

_DIGITS = 10
"""Minimum length of numbers that no interrupt has; such rows are omitted, like labels."""
_CHIP_AND_HWIRQ = re.compile(r"(\S+(?: \S+)*?)\s+(?:\d+(?:-\S+)?|-\S+)(?!\S)", re.ASCII)
"""A chip's name may have spaces: SiFive PLIC, Hyper-V PCIe MSI."""


class Description(Struct, frozen=True):
    """Text of an interrupt. chip: the interrupt controller, with the device for PCI-MSIX; name: of its handlers."""

    chip: str
    name: str


def parse_description(text: str) -> Description:
    """Parse the text after an interrupt's counters, e.g. ``PCI-MSIX-0000:00:03.0   1-edge      virtio2-input.0``.

    The hardware's number and the trigger are dropped. Several names are separated by commas.
    """
    text = text.strip()
    if (found := _CHIP_AND_HWIRQ.match(text)) is not None:
        chip, rest = found[1], text[found.end() :].split()
    else:
        chip, *rest = text.split() or [""]
    if rest and rest[0] in ("Level", "Edge"):
        rest = rest[1:]
    return Description(chip, " ".join(rest))


def parse_descriptions(lines: Iterable[bytes]) -> dict[int, Description]:
    """Parse the descriptions of numbered interrupts by IRQ; skip invalid lines, which CounterTableReader reports."""
    found = {}
    columns = -1
    for line in lines:
        if columns < 0:
            columns = len(line.split())
            continue
        label, colon, rest = line.partition(b":")
        if colon and (number := label.strip()).isdigit() and len(number) < _DIGITS:
            parts = rest.split(None, columns)
            found[int(number)] = parse_description(
                parts[columns].decode("ascii", "replace") if len(parts) > columns else ""
            )
    return found


def read_descriptions(root: Path) -> dict[int, Description] | None:
    """Read descriptions by IRQ below root, None without the file.

    Line by line, as the file has 1 MiB on a large machine.
    """
    try:
        with os.fdopen(open_file(root, PATH), "rb") as lines:
            return parse_descriptions(lines)
    except OSError:
        return None
