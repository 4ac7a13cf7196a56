"""Reads what files of other programs set when the machine starts, or when a network device appears or is activated.

Sources: sysctl.d(5); systemd.link(5), where udev's database names the files of a device; nm-settings-keyfile(5), where
NetworkManager's state names the profile of a device. What scripts and udev rules set is not found.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

from coresteer_agent.collect.files import names, read_text
from coresteer_core.node.inventory import MAX_BOOT_SETTINGS, BootSetting
from coresteer_core.settings.kernel import PARAMETERS, KernelParameter
from coresteer_core.settings.link_options import LINK_OPTIONS

_PARENTS = ("etc", "run", "usr/local/lib", "usr/lib")
"""Of folders with files of the same name, the first one counts."""
_SYSCTLS = [f"{parent}/sysctl.d" for parent in _PARENTS]
_LINKS = [f"{parent}/systemd/network" for parent in _PARENTS]
_PROFILES = [f"{parent}/NetworkManager/system-connections" for parent in _PARENTS]
_UDEV, _ACTIVE = "run/udev/data", "run/NetworkManager/devices"
PRIVATE = tuple(f"{folder}/" for folder in (*_SYSCTLS, *_LINKS, *_PROFILES, _UDEV, _ACTIVE))
"""Folders whose files may have passwords and addresses; a capture leaves them out."""

_KEY_OF_SYSCTL = {setting.title: setting.key for setting in map(KernelParameter, PARAMETERS)}
_CHANNELS = ("rx", "tx", "combined")
_PARAM_OF_LINK = {option: param for param, option in LINK_OPTIONS.items()}
_PARAM_OF_LINK |= {f"{kind.capitalize()}Channels": f"channels/{kind}" for kind in _CHANNELS}
_PARAM_OF_PROFILE = {param.replace("/", "-"): param for param in LINK_OPTIONS} | {"feature-ntuple": "ntuple"}
_PARAM_OF_PROFILE |= {f"channels-{kind}": f"channels/{kind}" for kind in _CHANNELS}
_SWITCHES = dict.fromkeys(("1", "yes", "true", "on"), "on") | dict.fromkeys(("0", "no", "false", "off"), "off")
_TIME = re.compile(r"(\d{1,9})\s*(us|usec|ms|msec|s|sec|)")
_US = {"us": 1, "usec": 1, "ms": 1000, "msec": 1000}
_PLAIN = re.compile(r"[\w.,:=@+/ -]{1,200}", re.ASCII)

_Option: TypeAlias = tuple[str, str, str]
"""A parameter, its value in the file, and the file's path."""


def parse_options(text: str) -> list[tuple[str, str, str]]:
    """Parse (section, name, value) of each option of an INI file; a line that is none is left out."""
    section, found = "", []
    for line in map(str.strip, text.splitlines()):
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1]
        elif "=" in line and line[0] not in "#;":
            name, _, value = line.partition("=")
            found.append((section, name.strip(), value.strip()))
    return found


def read_boot_settings(root: Path, ifindexes: Mapping[str, int]) -> list[BootSetting]:
    """Return what files set of the settings that Coresteer knows. ifindexes: of the netdevs to look for, by name."""
    found = list(_read_sysctls(root))
    for netdev, ifindex in ifindexes.items():
        found += _of_netdev(netdev, _read_link(root, ifindex))
    active = {netdev: uuid for netdev, ifindex in ifindexes.items() if (uuid := _active_profile(root, ifindex))}
    profiles = _read_profiles(root) if active else {}
    for netdev, uuid in active.items():
        found += _of_netdev(netdev, profiles.get(uuid, ()))
    return [each for each in found if _PLAIN.fullmatch(each.value) and _PLAIN.fullmatch(each.file)][:MAX_BOOT_SETTINGS]


def _read_sysctls(root: Path) -> Iterator[BootSetting]:
    """Of files in the order of their names, the last one that sets a parameter counts."""
    paths = {name: f"{folder}/{name}" for folder in reversed(_SYSCTLS) for name in names(root, folder)}
    found: dict[str, BootSetting] = {}
    for name in sorted(name for name in paths if name.endswith(".conf")):
        for _, option, value in parse_options(read_text(root, paths[name]) or ""):
            if (key := _KEY_OF_SYSCTL.get(option.removeprefix("-").replace("/", "."))) is not None:
                found[key] = BootSetting(key, value, f"/{paths[name]}")
    yield from found.values()


def _read_link(root: Path, ifindex: int) -> Iterator[_Option]:
    for line in (read_text(root, f"{_UDEV}/n{ifindex}") or "").splitlines():
        name, _, paths = line.partition("=")
        for path in paths.split(":") if name in ("E:ID_NET_LINK_FILE", "E:ID_NET_LINK_FILE_DROPINS") else ():
            if path[1:].startswith(tuple(_LINKS)) and ".." not in path:
                for section, option, value in parse_options(read_text(root, path[1:]) or ""):
                    if section == "Link" and (param := _PARAM_OF_LINK.get(option)) is not None:
                        yield param, value, path


def _active_profile(root: Path, ifindex: int) -> str | None:
    options = parse_options(read_text(root, f"{_ACTIVE}/{ifindex}") or "")
    return next((value for _, name, value in options if name == "connection-uuid"), None)


def _read_profiles(root: Path) -> dict[str, list[_Option]]:
    """Return the ethtool options of NetworkManager's profiles by their UUID."""
    found: dict[str, list[_Option]] = {}
    for path in (f"{folder}/{name}" for folder in reversed(_PROFILES) for name in names(root, folder)):
        options = parse_options(read_text(root, path) or "")
        for uuid in (value for section, name, value in options if (section, name) == ("connection", "uuid")):
            found[uuid] = [
                (_PARAM_OF_PROFILE[name], value, f"/{path}")
                for section, name, value in options
                if section == "ethtool" and name in _PARAM_OF_PROFILE
            ]
    return found


def _of_netdev(netdev: str, options: Iterable[_Option]) -> Iterator[BootSetting]:
    """Return the settings of a netdev; of several options of one name the last one counts."""
    last = {param: (value, file) for param, value, file in options}
    channels = {kind: last.pop(f"channels/{kind}") for kind in _CHANNELS if f"channels/{kind}" in last}
    for param, (value, file) in last.items():
        yield BootSetting(f"netdev/{netdev}/{param}", _value(param, value, file), file)
    if channels:
        counts = ",".join(f"{kind} {count}" for kind, (count, _) in channels.items())
        yield BootSetting(f"netdev/{netdev}/channels", counts, next(iter(channels.values()))[1])


def _value(param: str, value: str, file: str) -> str:
    """Return a file's value as the setting has it; a time of systemd without a unit is in seconds."""
    if param == "ntuple" or param.startswith("coalesce/adaptive"):
        return _SWITCHES.get(value.lower(), value)
    time = _TIME.fullmatch(value) if "usecs" in param and "/systemd/" in file else None
    return value if time is None else str(int(time[1]) * _US.get(time[2], 1_000_000))
