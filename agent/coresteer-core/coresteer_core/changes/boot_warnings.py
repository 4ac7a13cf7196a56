"""Warnings of a plan: files of other programs that set another value at the next boot."""

from collections.abc import Iterator, Sequence

from coresteer_core.node.view import View
from coresteer_core.settings import Channels, NetdevParam, Setting, SettingError

_MAX = "max"
"""systemd's word for what the device reports as its maximum."""


def boot_warnings(view: View, desired: Sequence[tuple[Setting, str]]) -> Iterator[tuple[str, str]]:
    """Yield (key, sentence) for each file that sets another value than the desired one, which is canonical."""
    values = {setting.key: (setting, value) for setting, value in desired}
    for each in view.inventory.boot_settings:
        if each.key in values:
            setting, value = values[each.key]
            if not _is_same(view, setting, value, each.value):
                at_boot = setting.format_value(each.value) if each.value.isdecimal() else each.value
                yield each.key, f"{each.file} will set {setting.describe()} to {at_boot} at the next boot, or earlier."


def _is_same(view: View, setting: Setting, value: str, at_boot: str) -> bool:
    """Return whether a file's value leaves a setting as it is; a file may set some kinds of channels only."""
    match setting:
        case Channels():
            netdev, counts = view.inventory.netdev(setting.netdev), setting.counts(value)
            most = setting.counts((netdev and netdev.channels_max) or "")
            at_boots = dict(part.split(" ", 1) for part in at_boot.split(","))
            return all(
                str(counts.get(kind, 0)) == (str(most.get(kind)) if count == _MAX else count)
                for kind, count in at_boots.items()
            )
        case NetdevParam() if at_boot == _MAX:
            netdev = view.inventory.netdev(setting.netdev)
            return netdev is not None and netdev.params_max.get(setting.param) == value
    try:
        return setting.equal(value, at_boot)
    except SettingError:
        return False
