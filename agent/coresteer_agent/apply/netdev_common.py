"""NetdevHandler, the base class of handlers for settings of a netdev."""

import errno
import os
from pathlib import Path
from typing import Protocol, TypeVar

from coresteer_agent.apply.handler import Error, Explanation, Handler, not_permitted
from coresteer_agent.collect.netdev import read_ifindex
from coresteer_core.changes.report import Outcome

ENOTSUPP = 524
"""Returned by some drivers instead of EOPNOTSUPP (kernel: include/linux/errno.h)."""
UNSUPPORTED_ERRNOS = (errno.EOPNOTSUPP, ENOTSUPP)
"""Errors of a driver that accepts no value of a setting."""
REJECTED_ERRNOS = (errno.EINVAL, errno.ERANGE, *UNSUPPORTED_ERRNOS)
"""Errors of a driver that rejects a value; other errors are transient or caused by missing privileges."""
PRIVILEGE_ERRORS = not_permitted("The agent may not change settings of network devices; it has to run as root.") | {
    errno.EROFS: (Outcome.REFUSED, "/sys is read-only for the agent: by a systemd unit or in a container.")
}
"""Explanations of errors caused by the agent's missing privileges."""


class HasNetdev(Protocol):
    """A setting of a netdev."""

    @property
    def netdev(self) -> str:
        """Return the netdev's name."""


N = TypeVar("N", bound=HasNetdev)


def is_gone(root: Path, setting: HasNetdev, error: OSError) -> bool:
    """Return whether an error means that the netdev does not exist: ENODEV is also the answer while it restarts."""
    return error.errno == errno.ENODEV and read_ifindex(root, setting.netdev) is None


class NetdevHandler(Handler[N]):
    """Identifies a netdev by its ifindex and explains errors with its driver's own message."""

    def owners(self, root: Path, setting: N) -> list[str]:
        """Return the netdev's ifindex, which is not reused for another netdev of the same name."""
        ifindex = read_ifindex(root, setting.netdev)
        return [] if ifindex is None else [f"interface {ifindex}"]

    def explain(self, error: Error, root: Path) -> Explanation:
        """Return the outcome (refused or failed) and a sentence with the kernel's own message for a failed write."""
        if not isinstance(error, OSError) or error.errno in PRIVILEGE_ERRORS:
            return self.read_only if not isinstance(error, OSError) else PRIVILEGE_ERRORS[error.errno or 0]
        if error.errno in REJECTED_ERRNOS:
            answer = os.strerror(errno.EOPNOTSUPP) if error.errno == ENOTSUPP else error.strerror
            return Outcome.REFUSED, f"The kernel or the network device's driver refuses this value: {answer}."
        return Outcome.FAILED, f"The kernel's answer was: {error.strerror}."
