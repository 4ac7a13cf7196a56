"""Reads what files of other programs set when the machine starts, or when a network device appears or is activated.

Sources: sysctl.d(5); systemd.link(5), where udev's database names the files of a device; nm-settings-keyfile(5), where
NetworkManager's state names the profile of a device. What scripts, udev rules and globs of sysctl.d set is not found.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TypeAlias

from coresteer_agent.collect.files import names, read_bytes
from coresteer_core.bounds import MAX_NAME
from coresteer_core.node.inventory import MAX_BOOT_SETTINGS, BootSetting
from coresteer_core.settings import SettingError, parse_setting
from coresteer_core.settings.kernel import PARAMETERS, KernelParameter
from coresteer_core.settings.netdev import CHANNEL_KINDS
from coresteer_core.settings.tool_options import LINK_OPTIONS, PROFILE_OPTIONS

_PARENTS = ("etc/", "run/", "usr/local/lib/", "usr/lib/")
"""Of files with the same name, or profiles with the same UUID, that of the first folder counts at the next boot."""
_SYSCTLS = tuple(f"{parent}sysctl.d/" for parent in _PARENTS)
_LINKS = tuple(f"{parent}systemd/network/" for parent in _PARENTS)
_PROFILES = tuple(f"{parent}NetworkManager/system-connections/" for parent in ("etc/", "run/", "usr/lib/"))
_UDEV, _ACTIVE = "run/udev/data/", "run/NetworkManager/devices/"
PRIVATE = (*_SYSCTLS, *_LINKS, *_PROFILES, _UDEV, _ACTIVE)
"""Folders whose files may have passwords and addresses; a capture leaves them out."""

_KEY_OF_SYSCTL = {setting.title: setting.key for setting in map(KernelParameter, PARAMETERS)}
_PARAM_OF_LINK = {option: param for param, option in LINK_OPTIONS.items()}
_PARAM_OF_PROFILE = {option: param for param, option in PROFILE_OPTIONS.items()}
_SWITCHES = {
    **dict.fromkeys(("1", "yes", "y", "true", "t", "on"), "on"),
    **dict.fromkeys(("0", "no", "n", "false", "f", "off"), "off"),
}
_TERM = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)\s*([a-zµμ]*)\s*")
_US = {
    **dict.fromkeys(("us", "µs", "μs", "usec"), 1),
    **dict.fromkeys(("ms", "msec"), 1000),
    **dict.fromkeys(("", "s", "sec", "second", "seconds"), 1_000_000),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60_000_000),
}
_MOST_US = 2**32 - 1

_Option: TypeAlias = tuple[str, str, str]
"""A parameter, its value in the file, and the file's path."""


def parse_options(text: str) -> list[tuple[str, str, str | None]]:
    """Parse (section, name, value) of each line of an INI file that is no comment; value: None without "="."""
    section, found = "", []
    for line in map(str.strip, text.split("\n")):
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1]
        elif line and line[0] not in "#;":
            name, equals, value = line.partition("=")
            found.append((section, name.strip(), value.strip() if equals else None))
    return found


def read_boot_settings(root: Path, ifindexes: Mapping[str, int]) -> list[BootSetting]:
    """Return what files set of the settings that Coresteer knows. ifindexes: interface indexes by netdev name.

    Of several files that set the same, the one that is applied last counts: a profile after a .link file.
    """
    found = list(_read_sysctls(root))
    active = {netdev: _active_profile(root, ifindex) for netdev, ifindex in ifindexes.items()}
    profiles = _read_profiles(root) if any(active.values()) else {}
    for netdev, ifindex in ifindexes.items():
        found += _of_netdev(netdev, [*_read_link(root, ifindex), *profiles.get(active[netdev] or "", ())])
    known = (each for each in map(_canonical, found) if max(len(each.value), len(each.file)) <= MAX_NAME)
    return list(islice(known, MAX_BOOT_SETTINGS))


def _read(root: Path, path: str) -> list[tuple[str, str, str | None]]:
    return parse_options((read_bytes(root, path) or b"").decode("utf-8", "replace"))


def _read_sysctls(root: Path) -> Iterator[BootSetting]:
    """Of files in the order of their names, the last one that sets a parameter counts; "-NAME" alone unsets it."""
    paths = {name: folder + name for folder in reversed(_SYSCTLS) for name in names(root, folder)}
    found: dict[str, BootSetting] = {}
    for name in sorted(name for name in paths if name.endswith(".conf")):
        for _, option, value in _read(root, paths[name]):
            key = _KEY_OF_SYSCTL.get(option.removeprefix("-").strip().replace("/", "."))
            if key is not None and value is not None:
                found[key] = BootSetting(key, value, f"/{paths[name]}")
            elif key is not None and option.startswith("-"):
                found.pop(key, None)
    yield from found.values()


def _read_link(root: Path, ifindex: int) -> Iterator[_Option]:
    database = {name: value or "" for _, name, value in _read(root, f"{_UDEV}n{ifindex}")}
    paths = [database.get(f"E:ID_NET_LINK_FILE{suffix}", "") for suffix in ("", "_DROPINS")]
    for path in ":".join(paths).split(":"):
        if path[1:].startswith(_LINKS) and ".." not in path:
            for section, option, value in _read(root, path[1:]):
                if section == "Link" and value is not None and (param := _PARAM_OF_LINK.get(option)) is not None:
                    yield param, value, path


def _active_profile(root: Path, ifindex: int) -> str | None:
    return next((value for _, name, value in _read(root, f"{_ACTIVE}{ifindex}") if name == "connection-uuid"), None)


def _read_profiles(root: Path) -> dict[str, list[_Option]]:
    """Return the ethtool options of NetworkManager's profiles by their UUID."""
    found: dict[str, list[_Option]] = {}
    for path in (folder + name for folder in reversed(_PROFILES) for name in names(root, folder)):
        options = _read(root, path) if path.endswith(".nmconnection") and "/." not in path else []
        for uuid in (value for section, name, value in options if (section, name) == ("connection", "uuid") and value):
            found[uuid] = [
                (_PARAM_OF_PROFILE[name], value, f"/{path}")
                for section, name, value in options
                if section == "ethtool" and value is not None and name in _PARAM_OF_PROFILE
            ]
    return found


def _of_netdev(netdev: str, options: Iterable[_Option]) -> Iterator[BootSetting]:
    """Return the settings of a netdev; of several options of one name the last counts, and an empty one unsets it."""
    last: dict[str, tuple[str, str]] = {}
    for param, text, file in options:
        if not text:
            last.pop(param, None)
        elif (value := _value(param, text, file)) is not None:
            last[param] = value, file
    channels = {kind: last.pop(f"channels/{kind}") for kind in CHANNEL_KINDS if f"channels/{kind}" in last}
    for param, (value, file) in last.items():
        yield BootSetting(f"netdev/{netdev}/{param}", value, file)
    if channels:
        counts = ",".join(f"{kind} {count}" for kind, (count, _) in channels.items())
        yield BootSetting(f"netdev/{netdev}/channels", counts, [file for _, file in channels.values()][-1])


def _value(param: str, text: str, file: str) -> str | None:
    """Return a file's value as the setting has it; None for a time that systemd refuses."""
    if param == "ntuple" or param.startswith("coalesce/adaptive"):
        return _SWITCHES.get(text.lower(), text)
    return _microseconds(text) if "usecs" in param and "/systemd/" in file else text


def _microseconds(text: str) -> str | None:
    """Return a time of systemd.time(7) in µs; a number without a unit is in seconds."""
    terms = _TERM.findall(text)
    if not terms or _TERM.sub("", text) or any(unit not in _US for _, unit in terms):
        return None
    total = round(sum(float(number) * _US[unit] for number, unit in terms))
    return str(total) if total <= _MOST_US else None


def _canonical(found: BootSetting) -> BootSetting:
    """Return a value in the setting's own form, where it can be; printable characters only."""
    try:
        value = parse_setting(found.key).canonical(found.value)
    except SettingError:
        value = found.value
    value, file = ("".join(each if each.isprintable() else "?" for each in text) for text in (value, found.file))
    return BootSetting(found.key, value, file)
