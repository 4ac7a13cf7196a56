"""Everything Coresteer can change, as keys and values. What is not a Setting here cannot be touched."""

import re
from typing import TypeAlias

from msgspec import Struct

from coresteer_core.cpuset import CpuListError, format_cpu_list, parse_cpu_list


class SettingError(ValueError):
    """A key or value that is not a Setting's; the message is a sentence for the person who asked."""


class IrqAffinity(Struct, frozen=True):
    """``irq/41/affinity``: the CPUs an interrupt may be delivered to (/proc/irq/41/smp_affinity_list)."""

    irq: int

    @property
    def key(self) -> str:
        """Its address."""
        return f"irq/{self.irq}/affinity"

    @property
    def path(self) -> str:
        """The kernel file, below the root directory."""
        return f"proc/irq/{self.irq}/smp_affinity_list"

    def canonical(self, value: str) -> str:
        """The value as the kernel would print it. Raises SettingError for a value it could not take."""
        try:
            cpus = parse_cpu_list(value)
        except CpuListError as error:
            raise SettingError(str(error)) from None
        if not cpus:
            raise SettingError("An interrupt needs at least one CPU; name one, for example 2 or 0-3.")
        return format_cpu_list(cpus)

    def cpus(self, value: str) -> frozenset[int]:
        """The CPUs that a value names."""
        return parse_cpu_list(value)

    def shell(self, value: str) -> str:
        """The same by hand."""
        return f"echo {value} > /{self.path}"


Setting: TypeAlias = IrqAffinity
"""A union of every kind of Setting, one so far."""

_IRQ_AFFINITY = re.compile(r"irq/(0|[1-9]\d{0,6})/affinity\Z", re.ASCII)


def parse_setting(key: str) -> Setting:
    """The Setting that a key addresses. Raises SettingError with the kinds there are."""
    if match := _IRQ_AFFINITY.match(key):
        return IrqAffinity(int(match[1]))
    raise SettingError(f"“{key[:60]}” is not a setting Coresteer knows; it knows irq/NUMBER/affinity.")
