"""Reads and writes parameters of the whole kernel in ``/proc/sys``.

Kernel: kernel/sched/core.c, net/core/sysctl_net_core.c.
"""

import errno

from coresteer_agent.apply.handler import FileHandler, not_permitted
from coresteer_core.changes.report import Outcome
from coresteer_core.settings import KernelParameter


class KernelParameterHandler(FileHandler[KernelParameter]):
    """Reads and writes a kernel parameter's file below /proc/sys."""

    errors = not_permitted(
        "The agent may not write this kernel parameter; it has to run as root with CAP_SYS_ADMIN, for net.core with "
        "CAP_NET_ADMIN."
    ) | {
        errno.EROFS: (
            Outcome.REFUSED,
            "/proc/sys is read-only for the agent: by a systemd unit with ProtectKernelTunables, or in a container.",
        ),
        errno.EINVAL: (Outcome.FAILED, "The kernel rejects this value of the parameter."),
        errno.ENOMEM: (Outcome.FAILED, "The kernel has no memory for a table of this size; use a smaller one."),
    }
