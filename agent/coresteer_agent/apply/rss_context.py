"""Reads, creates, changes and deletes RSS contexts of a NIC (ethtool -X context). A captured tree has none."""

import errno
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from coresteer_agent.apply.handler import Error, Explanation
from coresteer_agent.apply.netdev_common import NetdevHandler, is_gone
from coresteer_agent.apply.rss_table import table_of
from coresteer_agent.collect.irq import is_running_kernel
from coresteer_agent.linux import rss_contexts
from coresteer_core.changes.report import Outcome
from coresteer_core.settings import RssContextTable, RssTable
from coresteer_core.settings.flow_rule import EMPTY


class RssContextHandler(NetdevHandler[RssContextTable]):
    """Reads and writes the RSS table of a context. The executor guarantees that no other program's is overwritten."""

    errors: ClassVar[Mapping[int, Explanation]] = {
        errno.ERANGE: (Outcome.REFUSED, "The driver has fewer RSS contexts; use a lower number."),
        errno.ENOSPC: (Outcome.REFUSED, "The NIC has no room for another RSS context; delete one."),
        errno.EEXIST: (Outcome.REFUSED, "Another program has just created this context; use another number."),
        errno.EBUSY: (
            Outcome.FAILED,
            "A flow rule names the context, or the device restarts; delete the rule first (ethtool -n).",
        ),
        errno.ENOMEM: (Outcome.FAILED, "The NIC or the kernel has no memory for another context; delete one."),
        errno.ENETDOWN: (Outcome.FAILED, "The network device is down; set it up (ip link set up) and try again."),
    }

    def exists(self, root: Path, setting: RssContextTable) -> bool:
        """Return whether contexts of the netdev can be created by number. Raises OSError."""
        if not is_running_kernel(root):
            return False
        try:
            return rss_contexts.is_supported(setting.netdev)
        except OSError as error:
            if is_gone(root, setting, error):
                return False
            raise

    def read(self, root: Path, setting: RssContextTable) -> str:
        """Return the pattern of queues that the table repeats, ``none`` without the context. Raises OSError."""
        table = rss_contexts.read_context(setting.netdev, setting.number)
        return EMPTY if table is None else RssTable.pattern(table)

    def write(self, root: Path, setting: RssContextTable, value: str) -> None:
        """Create the context or set its table, or delete it (``none``). Raises OSError."""
        netdev, number = setting.netdev, setting.number
        if value == EMPTY:
            rss_contexts.delete_context(netdev, number)
            return
        table = table_of(netdev, value)
        if rss_contexts.read_context(netdev, number) is not None:
            rss_contexts.set_context(netdev, number, table)
            return
        try:
            rss_contexts.create_context(netdev, number, table)
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            raise OSError(errno.EEXIST, error.strerror) from None

    def attainable(self, root: Path, setting: RssContextTable, value: str) -> str:
        """Return the pattern that read() returns after a write. Raises OSError."""
        return value if value == EMPTY else RssTable.pattern(table_of(setting.netdev, value))

    def explain(self, error: Error, root: Path) -> Explanation:
        """Return the outcome (refused or failed) and a sentence that says what to do about a failed write."""
        known = self.errors.get(error.errno or 0) if isinstance(error, OSError) else None
        return known or super().explain(error, root)
