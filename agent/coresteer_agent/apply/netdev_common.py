"""What settings of a netdev share."""

import errno
import os
from pathlib import Path

from coresteer_agent.apply.rooted import ReadOnlyModeError
from coresteer_agent.observe.queues import read_ifindex
from coresteer_core.protocol import Outcome
from coresteer_core.settings import Channels, NetdevParam, QueueParam, Rps, RssTable, Xps

ENOTSUPP = 524
"""What drivers say by mistake instead of EOPNOTSUPP (kernel: include/linux/errno.h)."""
_NOT_THE_AGENT = {
    errno.EPERM: "The agent may not set it; it has to run as root.",
    errno.EACCES: "The agent may not set it; it has to run as root.",
    errno.EROFS: "/sys is read-only for the agent; a systemd unit or a container does that.",
}
NOT_SUPPORTED = (errno.EOPNOTSUPP, ENOTSUPP)
"""What a driver says where it takes no value at all."""
NOT_THIS_VALUE = (errno.EINVAL, errno.ERANGE, *NOT_SUPPORTED)
"""What a driver says of a value; other errors are of the moment or of who asks."""


def owners(root: Path, setting: Rps | Xps | RssTable | Channels | NetdevParam | QueueParam) -> list[str]:
    """The netdev's number, which no later one with its name shares."""
    ifindex = read_ifindex(root, setting.netdev)
    return [] if ifindex is None else [f"interface {ifindex}"]


def explain(error: OSError | ReadOnlyModeError, root: Path) -> tuple[Outcome, str]:
    """A failed write's outcome, refused or failed, and a sentence for it with the kernel's own words."""
    if isinstance(error, ReadOnlyModeError):
        return Outcome.REFUSED, "The kernel made it read-only."
    if error.errno in _NOT_THE_AGENT:
        return Outcome.REFUSED, _NOT_THE_AGENT[error.errno]
    if error.errno in NOT_THIS_VALUE:
        words = os.strerror(errno.EOPNOTSUPP) if error.errno == ENOTSUPP else error.strerror
        return Outcome.REFUSED, f"The kernel or the network device's driver refuses it: {words}."
    return Outcome.FAILED, f"The kernel said: {error.strerror}."
