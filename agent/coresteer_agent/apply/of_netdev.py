"""What settings of a netdev share."""

import errno
from pathlib import Path

from coresteer_agent.apply.rooted import ReadOnlyModeError
from coresteer_agent.collect.queues import read_ifindex
from coresteer_core.protocol import Outcome
from coresteer_core.settings import Channels, Rps, RssTable, Xps


def owners(root: Path, setting: Rps | Xps | RssTable | Channels) -> list[str]:
    """The netdev's number, which no later one with its name shares."""
    ifindex = read_ifindex(root, setting.netdev)
    return [] if ifindex is None else [f"interface {ifindex}"]


def explain(error: OSError | ReadOnlyModeError, root: Path) -> tuple[Outcome, str]:
    """A failed write's outcome, refused or failed, and a sentence for it with the kernel's own words."""
    code = error.errno if isinstance(error, OSError) else None
    if code in (errno.EPERM, errno.EACCES):
        return Outcome.REFUSED, "The agent may not set it; it has to run as root."
    if code == errno.EOPNOTSUPP:
        return Outcome.UNSUPPORTED, "The network device's driver cannot set it."
    words = error.strerror if isinstance(error, OSError) else str(error)
    return Outcome.FAILED, f"The kernel said: {words}."
