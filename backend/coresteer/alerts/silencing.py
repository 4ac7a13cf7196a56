"""Which silence matches an alert. Pure."""

from collections.abc import Iterable
from fnmatch import fnmatchcase

from coresteer.alerts.tables import AlertRow, SilenceRow

RULE, NODE = "rule", "node"
"""Names in a silence that stand for the names of the rule and of what the alert is about."""


def silence_of(silences: Iterable[SilenceRow], rule: str, alert: AlertRow) -> SilenceRow | None:
    """Return the first silence that matches an alert of a rule, None if none does."""
    known = alert.labels | {RULE: rule, NODE: alert.name}
    for silence in silences:
        if all(name in known and fnmatchcase(known[name], glob) for name, glob in silence.labels.items()):
            return silence
    return None
