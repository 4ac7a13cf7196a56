"""Policy ``fixed-settings``: keep settings at values that a person chose, such as those that a tune found best."""

from fnmatch import fnmatchcase
from typing import Annotated

from msgspec import Meta, Struct

from coresteer_core.node.view import View
from coresteer_core.policies.base import Decision, PolicyKind, PolicySpec, Proposal, Scope, Skipped
from coresteer_core.schema import labelled
from coresteer_core.settings import SettingError, parse_setting

NETDEV = "{netdev}"
"""In a key: each network device in the policy's scope."""
_STAND_IN = "eth0"


class FixedSettings(PolicySpec, frozen=True, tag="fixed-settings"):
    """Parameters of the policy that keeps settings at fixed values."""

    label = "Fixed settings"
    summary = "Keeps chosen settings at chosen values, for example those of a tune."

    settings: Annotated[
        dict[Annotated[str, Meta(max_length=256)], Annotated[str, Meta(max_length=4096)]],
        Meta(max_length=64),
        labelled(
            "Settings",
            "{netdev} stands for each network device in the scope: netdev/{netdev}/coalesce/rx-usecs=50.",
            placeholder="netdev/{netdev}/coalesce/rx-usecs=50",
        ),
    ] = {}

    @property
    def example_keys(self) -> tuple[str, ...]:
        """Return the keys of the settings, with a stand-in for each network device."""
        return tuple(key.replace(NETDEV, _STAND_IN) for key in self.settings)


class FixedSettingsMemory(Struct, frozen=True, tag="fixed-settings"):
    """Memory of the policy for the next round: none."""


def decide(view: View, spec: FixedSettings, scope: Scope, memory: FixedSettingsMemory) -> Decision:
    """Return a proposal for each setting that differs from its value, and why others cannot be set.

    What an earlier version or a wider scope has set is not wanted any more, so the engine restores it.
    """
    proposals: list[Proposal] = []
    keys: set[str] = set()
    missing: list[Skipped] = []
    kept = 0
    for key, wanted in _wanted(view, spec, scope):
        try:
            setting = parse_setting(key)
            value = setting.canonical(wanted)
        except SettingError as error:
            missing.append(Skipped(key, str(error)))
            continue
        keys.add(setting.key)
        current = setting.current(view)
        if current is None:
            why = setting.missing_reason(view) or f"This node has no {setting.describe(view)}."
            missing.append(Skipped(setting.key, why))
        elif setting.equal(current, value):
            kept += 1
        else:
            reason = (
                f"{setting.describe(view)} is {setting.format_value(current)}; {setting.format_value(value)} is fixed."
            )
            proposals.append(Proposal(setting.key, value, setting.subject, reason))
    total = kept + len(proposals) + len(missing)
    sentence = (
        f"{total} settings in scope: {len(proposals)} to change, {kept} have their values, "
        f"{len(missing)} cannot be set here."
    )
    return Decision(sentence, memory, proposals, missing, wanted=frozenset(keys))


def _wanted(view: View, spec: FixedSettings, scope: Scope) -> list[tuple[str, str]]:
    """Return the keys of settings of this node with their wanted values, one for each network device in scope."""
    netdevs = [
        netdev.name
        for netdev in view.inventory.netdevs
        if _matches(netdev.name, scope.netdevs) and _matches(netdev.driver or "", scope.drivers)
    ]
    return [
        (key.replace(NETDEV, netdev), value)
        for key, value in spec.settings.items()
        for netdev in (netdevs if NETDEV in key else [""])
    ]


def _matches(text: str, patterns: list[str]) -> bool:
    return not patterns or any(fnmatchcase(text, pattern) for pattern in patterns)


KIND = PolicyKind(FixedSettings, FixedSettingsMemory, decide)
