"""Parameters of network devices that systemd and NetworkManager set, too: systemd.link(5), nm-settings-nmcli(5)."""

from collections.abc import Mapping
from types import MappingProxyType


def _link_options() -> dict[str, str]:
    found = {"ntuple": "NTupleFilter"}
    for low, high in (("rx", "Rx"), ("tx", "Tx")):
        found |= {
            f"coalesce/{low}-usecs": f"{high}CoalesceSec",
            f"coalesce/{low}-usecs-irq": f"{high}CoalesceIrqSec",
            f"coalesce/{low}-frames": f"{high}MaxCoalescedFrames",
            f"coalesce/{low}-frames-irq": f"{high}MaxCoalescedIrqFrames",
            f"coalesce/adaptive-{low}": f"UseAdaptive{high}Coalesce",
            f"ring/{low}": f"{high}BufferSize",
        }
    return found


LINK_OPTIONS: Mapping[str, str] = MappingProxyType(_link_options())
"""Options of systemd.link by parameter; NetworkManager and TuneD have the same parameters, by ethtool's names."""
