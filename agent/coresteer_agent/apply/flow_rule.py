"""Reads, inserts and deletes flow rules of a NIC (ethtool -N). A captured tree has none."""

import errno
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from coresteer_agent.apply.handler import Error, Explanation
from coresteer_agent.apply.netdev_common import ENOTSUPP, NetdevHandler, is_gone
from coresteer_agent.collect.irq import is_running_kernel
from coresteer_agent.linux import flow_rules
from coresteer_core.changes.report import Outcome
from coresteer_core.settings import FlowRuleSlot
from coresteer_core.settings.flow_rule import EMPTY, OTHER
from coresteer_core.settings.flow_rule_text import parse_rule

_UNSUPPORTED: Explanation = (
    Outcome.REFUSED,
    "The driver does not support this rule; check that ntuple is on (ethtool -K), and try other fields.",
)


class FlowRuleHandler(NetdevHandler[FlowRuleSlot]):
    """Reads and writes the rule in a slot. The executor guarantees that another program's rule is not overwritten."""

    errors: ClassVar[Mapping[int, Explanation]] = {
        errno.ENOSPC: (
            Outcome.REFUSED,
            "The NIC's table of flow rules is full; delete a rule, or let RFS steer this flow.",
        ),
        errno.EOPNOTSUPP: _UNSUPPORTED,
        ENOTSUPP: _UNSUPPORTED,
        errno.EINVAL: (
            Outcome.REFUSED,
            "The driver rejects these fields or this slot; many drivers need the same fields in all rules, and some "
            "choose the slot themselves: try the fields of the NIC's other rules (ethtool -n).",
        ),
        errno.EEXIST: (
            Outcome.REFUSED,
            "The NIC has a rule for the same packets in another slot; change or delete that one (ethtool -n).",
        ),
        errno.EBUSY: (
            Outcome.FAILED,
            "The driver is busy, for example because the device restarts; try again in a few seconds.",
        ),
        errno.ENOMEM: (Outcome.FAILED, "The NIC or the kernel has no memory for another rule; delete a rule."),
        errno.ENETDOWN: (Outcome.FAILED, "The network device is down; set it up (ip link set up) and try again."),
    }

    def exists(self, root: Path, setting: FlowRuleSlot) -> bool:
        """Return whether the netdev's table of flow rules has this slot. Raises OSError."""
        if not is_running_kernel(root):
            return False
        try:
            found = flow_rules.read_locations(setting.netdev)
        except OSError as error:
            if is_gone(root, setting, error):
                return False
            raise
        return found is not None and setting.location_number < found[0]

    def read(self, root: Path, setting: FlowRuleSlot) -> str:
        """Return the rule in the slot, ``none`` if it is empty, or ``other``. Raises OSError."""
        found = flow_rules.read_locations(setting.netdev)
        if found is None:
            raise OSError(errno.EOPNOTSUPP, "the driver has no flow rules")
        if setting.location_number not in found[1]:
            return EMPTY
        return str(flow_rules.read_rule(setting.netdev, setting.location_number) or OTHER)

    def write(self, root: Path, setting: FlowRuleSlot, value: str) -> None:
        """Insert a rule into the slot, or delete the one that is there (``none``). Raises OSError."""
        if value == EMPTY:
            flow_rules.delete_rule(setting.netdev, setting.location_number)
        else:
            flow_rules.insert_rule(setting.netdev, setting.location_number, parse_rule(value))

    def explain(self, error: Error, root: Path) -> Explanation:
        """Return the outcome (refused or failed) and a sentence that says what to do about a failed write."""
        known = self.errors.get(error.errno or 0) if isinstance(error, OSError) else None
        return known or super().explain(error, root)
