"""Flow rules: one slot of a NIC's table of rules that select the receive queue of packets (ethtool -N, -n)."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from coresteer_core.node import inventory
from coresteer_core.node.view import View
from coresteer_core.settings.base import KeyForm, Setting, SettingError
from coresteer_core.settings.flow_rule_text import EXAMPLE, FlowRuleError, parse_rule
from coresteer_core.settings.location import FlowRuleLocation
from coresteer_core.settings.modified_view import ModifiedView
from coresteer_core.settings.netdev import NETDEV_PATTERN, QUEUE_PATTERN, NetdevSetting

EMPTY = "none"
"""The value of an empty slot."""
NO_CONTEXTS = "has no RSS contexts: the kernel (before Linux 6.17) or the driver cannot create them by number"
"""The end of a sentence about a netdev."""
OTHER = "other"
"""The value of a slot whose rule Coresteer cannot express; never written."""


class FlowRuleSlot(NetdevSetting, frozen=True):
    """``netdev/eth0/flow-rule/7``: the flow rule in slot 7, ``flow-type tcp4 dst-port 80 action 3``, or ``none``.

    A rule that Coresteer did not add is shown, never changed. The slot is also the rule's priority: of two rules that
    match, the one with the lower number applies.
    """

    location_number: int

    unowned: ClassVar[str | None] = EMPTY
    complete_in_view = False  # while a driver restarts its device, the table cannot be read
    forms: ClassVar[Sequence[KeyForm]] = (
        KeyForm(
            "netdev/NAME/flow-rule/LOCATION",
            rf"netdev/{NETDEV_PATTERN}/flow-rule/{QUEUE_PATTERN}",
            lambda m: FlowRuleSlot(m[1], int(m[2])),
            subject="$1 flow rule $2",
            name="flow-rule",
            target="nic:$1",
        ),
    )

    @classmethod
    def examples(cls) -> Sequence[Setting]:
        """Return one example setting."""
        return [cls("eth0", 7)]

    @property
    def key(self) -> str:
        """The setting's key: ``netdev/eth0/flow-rule/7``."""
        return f"netdev/{self.netdev}/flow-rule/{self.location_number}"

    @property
    def name(self) -> str:
        """The name of the kind: ``flow-rule``."""
        return "flow-rule"

    @property
    def title(self) -> str:
        """Empty: the subject says enough."""
        return ""

    @property
    def subject(self) -> str:
        """The slot, for a sentence: ``eth0 flow rule 7``."""
        return f"{self.netdev} flow rule {self.location_number}"

    @property
    def absence(self) -> str:
        """The end of a sentence about a slot that the netdev lacks."""
        return "does not exist: the driver has no flow rules, or a smaller table"

    @property
    def location(self) -> FlowRuleLocation:
        """The place in a View of the node that holds the rule."""
        return FlowRuleLocation(self.netdev, self.location_number)

    @property
    def schema(self) -> dict[str, object]:
        """JSON Schema of the rule's text."""
        what = f"The packets and their receive queue (action) or RSS context: {EXAMPLE}; or none."
        return {"type": "string", "description": what}

    def canonical(self, value: str) -> str:
        """Return a rule with its fields in ethtool's order, ``none`` or ``other``. Raises SettingError."""
        text = value.strip()
        try:
            return text if text in (EMPTY, OTHER) else str(parse_rule(text))
        except FlowRuleError as error:
            raise SettingError(str(error)) from None

    def missing_reason(self, view: View) -> str | None:
        """Return a sentence that says that the node has no such slot; None where it has it."""
        netdev = view.inventory.netdev(self.netdev)
        if netdev is None:
            return super().missing_reason(view)
        if netdev.flow_rules is None:
            return f"The driver of {self.netdev} has no flow rules."
        if self.location_number < netdev.flow_rules.size:
            return None
        return (
            f"{self.netdev} has {netdev.flow_rules.size} slots for flow rules, numbered from 0; "
            f"there is no {self.location_number}."
        )

    def current(self, view: View) -> str | None:
        """Return the slot's present rule from a View of the node; None where that is unknown."""
        netdev = view.inventory.netdev(self.netdev)
        table = netdev.flow_rules if netdev is not None else None
        if table is None:
            return None
        rule = self._rule_in(table)
        if rule is None:
            return EMPTY if table.complete else None
        return rule.text or OTHER

    def refusals(self, view: View, value: str) -> list[tuple[str, str]]:
        """Return (code, sentence) pairs: ``foreign`` rule in the slot or context, missing ``fields``, no ``queue``."""
        netdev = view.inventory.netdev(self.netdev)
        if netdev is None:
            return []
        rule = self._rule_in(netdev.flow_rules) if netdev.flow_rules is not None else None
        found = []
        if rule is not None and not rule.ours:
            found.append(("foreign", self.foreign_sentence(rule.text or OTHER)))
        if value == OTHER:
            found.append(("fields", f"“{OTHER}” stands for rules that Coresteer cannot express; it cannot be set."))
        elif value != EMPTY:
            wanted = parse_rule(value)
            if not wanted.dst_port:
                found.append(("fields", f"{self.describe()} has to name the destination port (dst-port)."))
            if wanted.context is not None:
                found += self._context_refusals(netdev, wanted.context)
            elif not any(queue.name == f"rx-{wanted.action}" for queue in netdev.queues):
                found.append(("queue", f"{self.netdev} has no receive queue {wanted.action}."))
        return found

    def _context_refusals(self, netdev: inventory.Netdev, number: int) -> list[tuple[str, str]]:
        """Return why a rule must not name a context; that one does not exist yet is no reason, as a plan creates it."""
        if netdev.rss_contexts is None:
            return [("context", f"{netdev.name} {NO_CONTEXTS}.")]
        if any(each.number == number and not each.ours for each in netdev.rss_contexts):
            sentence = f"RSS context {number} of {netdev.name} was created by another program; create another one."
            return [("foreign", sentence)]
        return []

    def combined_refusals(self, view: View, value: str, values: Mapping[str, str]) -> list[tuple[str, str]]:
        """Return code ``context`` and a sentence for an RSS context that neither exists nor is created by the plan."""
        number = self.context(value)
        if number is None:
            return []
        netdev = view.inventory.netdev(self.netdev)
        present = {each.number for each in (netdev.rss_contexts if netdev is not None else None) or []}
        after = values.get(f"netdev/{self.netdev}/rss-context/{number}", "" if number in present else EMPTY)
        return [("context", f"{self.netdev} has no RSS context {number}; create it first.")] if after == EMPTY else []

    def context(self, value: str) -> int | None:
        """Return the number of the RSS context that a rule names; None without one."""
        return None if value in (EMPTY, OTHER) else parse_rule(value).context

    def foreign_sentence(self, value: str) -> str:
        """Return a sentence that says that the slot has a rule (its value) that Coresteer did not add."""
        rule = "" if value == OTHER else f" ({value})"
        return f"{self.describe()}{rule} was added by another program, so Coresteer never changes it; use another slot."

    def describe(self, view: View | None = None) -> str:
        """Return the slot's name for use in a sentence: ``flow rule 7 of eth0``."""
        return f"flow rule {self.location_number} of {self.netdev}"

    def format_value(self, value: str) -> str:
        """Return the rule for use in a sentence."""
        return "another program's rule" if value == OTHER else value

    def shell_command(self, value: str) -> str:
        """Return an ``ethtool -N`` command that adds the rule, or deletes it."""
        if value == EMPTY:
            return f"ethtool -N {self.netdev} delete {self.location_number}"
        return f"ethtool -N {self.netdev} {value} loc {self.location_number}"

    def overlay(self, view: ModifiedView, value: str) -> None:
        """Set the rule in a modified View; the flows that it matches move to its queue."""
        view.set_flow_rule(self.netdev, self.location_number, "" if value in (EMPTY, OTHER) else value)

    def _rule_in(self, table: inventory.FlowRuleTable) -> inventory.FlowRule | None:
        return next((rule for rule in table.rules if rule.location == self.location_number), None)
