"""Determines by which of a NIC's flow rules a TCP flow is received."""

from collections.abc import Mapping
from typing import TypeVar

from coresteer_core.node.inventory import FlowRuleTable
from coresteer_core.settings.flow_rule_index import FlowRuleIndex
from coresteer_core.settings.flow_rule_text import FlowRuleError, parse_rule

T = TypeVar("T")


def rule_targets(table: FlowRuleTable | None, count: int, targets: Mapping[str, T]) -> FlowRuleIndex[T] | None:
    """Return the targets of a NIC's rules; None unless all of its rules are known.

    count: its present number of rules, which the table may not yet show. targets: by queue.
    """
    if table is None or not table.complete or len(table.rules) != count:
        return None
    found = FlowRuleIndex[T]()
    for each in table.rules:
        try:
            rule = parse_rule(each.value)
        except FlowRuleError:
            return None
        target = targets.get(f"rx-{rule.action}")
        if target is None:
            return None
        found.add(each.location, rule, target)
    return found
