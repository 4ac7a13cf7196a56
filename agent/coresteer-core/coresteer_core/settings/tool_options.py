"""Options by which systemd and NetworkManager set parameters of network devices: systemd.link(5), nm-settings-nmcli(5).

``channels/rx`` stands for the number of channels of a kind in a setting ``netdev/NAME/channels``.
"""

from collections.abc import Mapping
from types import MappingProxyType

from coresteer_core.settings.netdev import CHANNEL_KINDS


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
    return found | {f"channels/{kind}": f"{kind.capitalize()}Channels" for kind in CHANNEL_KINDS}


LINK_OPTIONS: Mapping[str, str] = MappingProxyType(_link_options())
"""Options of systemd.link by parameter."""
PROFILE_OPTIONS: Mapping[str, str] = MappingProxyType(
    {param: param.replace("/", "-") for param in LINK_OPTIONS} | {"ntuple": "feature-ntuple"}
)
"""Options in the section ethtool of NetworkManager's profiles by parameter."""
