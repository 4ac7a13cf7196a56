"""RSS contexts: additional RSS tables of a NIC, for the packets of flow rules that name them (ethtool -X, -x context).

Kernel: Documentation/networking/ethtool-netlink.rst, RSS_CREATE_ACT.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from coresteer_core.node.inventory import RssContext
from coresteer_core.node.view import View
from coresteer_core.settings.base import KeyForm, Setting
from coresteer_core.settings.flow_rule import EMPTY, NO_CONTEXTS
from coresteer_core.settings.flow_rule_text import parse_rule
from coresteer_core.settings.location import RssContextLocation
from coresteer_core.settings.modified_view import ModifiedView
from coresteer_core.settings.netdev import NETDEV_PATTERN, NetdevSetting, RssTable

_NUMBER_PATTERN = r"([1-9]\d{0,4})"


class RssContextTable(NetdevSetting, frozen=True):
    """``netdev/eth0/rss-context/1``: the table of an RSS context as its pattern of queues, or ``none``.

    A context that Coresteer did not create is shown, never changed. Context 0, the RSS table itself, is ``rss``.
    """

    number: int

    unowned: ClassVar[str | None] = EMPTY
    complete_in_view = False  # as flow rules, which name contexts
    forms: ClassVar[Sequence[KeyForm]] = (
        KeyForm(
            "netdev/NAME/rss-context/CONTEXT",
            rf"netdev/{NETDEV_PATTERN}/rss-context/{_NUMBER_PATTERN}",
            lambda m: RssContextTable(m[1], int(m[2])),
            subject="$1 RSS context $2",
            name="rss-context",
            target="nic:$1",
        ),
    )

    @classmethod
    def examples(cls) -> Sequence[Setting]:
        """Return one example setting."""
        return [cls("eth0", 1)]

    @property
    def key(self) -> str:
        """The setting's key: ``netdev/eth0/rss-context/1``."""
        return f"netdev/{self.netdev}/rss-context/{self.number}"

    @property
    def name(self) -> str:
        """The name of the kind: ``rss-context``."""
        return "rss-context"

    @property
    def title(self) -> str:
        """Empty: the subject says enough."""
        return ""

    @property
    def subject(self) -> str:
        """The context, for a sentence: ``eth0 RSS context 1``."""
        return f"{self.netdev} RSS context {self.number}"

    @property
    def absence(self) -> str:
        """The end of a sentence about a context that cannot exist."""
        return f"cannot exist: its device {NO_CONTEXTS}"

    @property
    def location(self) -> RssContextLocation:
        """The place in a View of the node that holds the context's table."""
        return RssContextLocation(self.netdev, self.number)

    @property
    def schema(self) -> dict[str, object]:
        """JSON Schema of the table's pattern, a list of queue numbers, or ``none``."""
        return {"type": "string", "pattern": r"^(none|\d{1,4}(,\d{1,4})*)$"}

    def canonical(self, value: str) -> str:
        """Return the shortest pattern of receive queues, or ``none``. Raises SettingError."""
        return EMPTY if value.strip() == EMPTY else RssTable(self.netdev).canonical(value)

    def missing_reason(self, view: View) -> str | None:
        """Return a sentence that says why the netdev has no RSS contexts; None where it can have them."""
        netdev = view.inventory.netdev(self.netdev)
        if netdev is None or netdev.rss_contexts is not None:
            return super().missing_reason(view)
        return f"{self.netdev} {NO_CONTEXTS}."

    def current(self, view: View) -> str | None:
        """Return the context's present pattern, ``none`` without it, from a View of the node; None where unknown."""
        netdev = view.inventory.netdev(self.netdev)
        if netdev is None or netdev.rss_contexts is None:
            return None
        context = self._context_in(view)
        return EMPTY if context is None else context.rss

    def refusals(self, view: View, value: str) -> list[tuple[str, str]]:
        """Return (code, sentence) pairs: ``foreign`` for another program's context, no such ``queue``."""
        context = self._context_in(view)
        found = []
        if context is not None and not context.ours:
            found.append(("foreign", self.foreign_sentence(context.rss)))
        return found if value == EMPTY else found + RssTable(self.netdev).refusals(view, value)

    def combined_refusals(self, view: View, value: str, values: Mapping[str, str]) -> list[tuple[str, str]]:
        """Return code ``context`` and a sentence for deleting a context that a flow rule names after the plan."""
        netdev = view.inventory.netdev(self.netdev)
        table = netdev.flow_rules if netdev is not None and value == EMPTY else None
        for rule in table.rules if table is not None else []:
            replaced = f"netdev/{self.netdev}/flow-rule/{rule.location}" in values
            if rule.context_rule and not replaced and parse_rule(rule.context_rule).context == self.number:
                sentence = f"Flow rule {rule.location} of {self.netdev} names {self.describe()}; delete the rule first."
                return [("context", sentence)]
        return []

    def write_order(self, value: str) -> int:
        """Return that a context is created before, and deleted after the flow rules that name it."""
        return 1 if value == EMPTY else -1

    def foreign_sentence(self, value: str) -> str:
        """Return a sentence that says that another program created the context."""
        return (
            f"{self.describe()} ({self.format_value(value)}) was created by another program, "
            "so Coresteer never changes it; use another number."
        )

    def describe(self, view: View | None = None) -> str:
        """Return the context's name for use in a sentence: ``RSS context 1 of eth0``."""
        return f"RSS context {self.number} of {self.netdev}"

    def format_value(self, value: str) -> str:
        """Return the queues of the table for a sentence."""
        return value if value == EMPTY else RssTable(self.netdev).format_value(value)

    def shell_command(self, value: str) -> str:
        """Return an ``ethtool -X`` command that changes a context or deletes it; ethtool numbers new ones itself."""
        if value == EMPTY:
            return f"ethtool -X {self.netdev} context {self.number} delete"
        return f"{RssTable(self.netdev).shell_command(value)} context {self.number}"

    def overlay(self, view: ModifiedView, value: str) -> None:
        """Set the context in a modified View; flows stay, as the hash of the context is not known."""
        view.set_rss_context(self.netdev, self.number, "" if value == EMPTY else value)

    def _context_in(self, view: View) -> RssContext | None:
        netdev = view.inventory.netdev(self.netdev)
        contexts = (netdev.rss_contexts if netdev is not None else None) or []
        return next((each for each in contexts if each.number == self.number), None)
