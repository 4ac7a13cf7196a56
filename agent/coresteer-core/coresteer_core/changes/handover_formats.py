"""How other tools keep a setting across reboots: which kinds in which format, and the text of the files.

Sources: systemd.link(5), udev(7), sysctl.d(5), tuned.conf(5) with TuneD's plugin_net.py, nm-settings-nmcli(5)
(ethtool), systemd.resource-control(5).
"""

import re
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import TypeAlias

from msgspec import Struct

from coresteer_core.settings import (
    CgroupWeight,
    Channels,
    CpusetCpus,
    CpusetMems,
    FlowRuleSlot,
    IrqAffinity,
    KernelParameter,
    NetdevParam,
    QueueParam,
    Rps,
    RssContextTable,
    RssTable,
    Setting,
    TaskAffinity,
    TaskMemoryNodes,
    TaskNice,
    Xps,
)
from coresteer_core.settings.cpusets import INHERITED
from coresteer_core.settings.flow_rule import EMPTY
from coresteer_core.settings.netdev import NetdevSetting
from coresteer_core.settings.params import NAPI_PARAMS, NETDEV_FILES, QUEUE_FILES
from coresteer_core.settings.tool_options import LINK_OPTIONS, PROFILE_OPTIONS


class Line(Struct, frozen=True):
    """A setting in a file. section: the part of the file, or the network device; name: of the option, "" for none."""

    section: str
    name: str
    value: str


SYSCTL, SYSFS, UNIT = "/sysctl", "/sysfs", "/unit"
"""Sections that are no network device, whose name cannot have a slash."""
_UNIT_OPTIONS = {
    "cpu.weight": "CPUWeight",
    "io.weight": "IOWeight",
    "cpuset.cpus": "AllowedCPUs",
    "cpuset.mems": "AllowedMemoryNodes",
}
_NAME = r"[A-Za-z0-9:_.@-]+"
_UNIT = re.compile(rf"(?:{_NAME}\.slice/)*({_NAME}\.(?:slice|service))", re.ASCII)
"""Path of a unit of the system; one of a user's services is below user@1000.service."""
_MATCHES = (
    (r"[a-z]{2}[od]\d.*", "Property=ID_NET_NAME_ONBOARD"),
    (r"[a-z]{2}(X\d|(P\d+)?s\d).*", "Property=ID_NET_NAME_SLOT"),
    (r"[a-z]{2}(P\d+)?p\d.*", "Property=ID_NET_NAME_PATH"),
    (r"[a-z]{2}x[0-9a-f]{12}", "Property=ID_NET_NAME_MAC"),
    (r"(eth|ib|usb|wlan|wwan)\d+", "OriginalName"),
)
"""What selects a device before udev names it, by its name: systemd.net-naming-scheme(7), then the kernel's names."""


def in_sysctl(setting: Setting, value: str) -> Line | None:
    """Return the line for sysctl, None for what is no kernel parameter."""
    return Line("", setting.title, value) if isinstance(setting, KernelParameter) else None


def in_udev(setting: Setting, value: str) -> Line | None:
    """Return the command that a udev rule runs for a network device, None for other settings."""
    return Line(setting.netdev, "", setting.shell_command(value)) if isinstance(setting, NetdevSetting) else None


def in_link(setting: Setting, value: str) -> Line | str | None:
    """Return the option of systemd.link, None where there is none, or why the device cannot have a file."""
    if isinstance(setting, NetdevSetting) and _match(setting.netdev) is None:
        return "neither the kernel nor systemd names a device so; a .link file must say by what it is found. Take udev."
    match setting:
        case NetdevParam() if setting.param in LINK_OPTIONS:
            unit = "us" if "usecs" in setting.param else ""
            return Line(setting.netdev, LINK_OPTIONS[setting.param], f"{value}{unit}")
        case Channels():
            counts = setting.counts(value).items()
            return Line(setting.netdev, "", "\n".join(f"{LINK_OPTIONS[f'channels/{kind}']}={n}" for kind, n in counts))
    return None


def in_network_manager(setting: Setting, value: str) -> Line | None:
    """Return the property of a connection's ethtool settings, None where there is none."""
    match setting:
        case NetdevParam() if setting.param in PROFILE_OPTIONS:
            on, off = ("true", "false") if setting.param == "ntuple" else ("1", "0")
            return Line(setting.netdev, PROFILE_OPTIONS[setting.param], {"on": on, "off": off}.get(value, value))
        case Channels():
            counts = setting.counts(value).items()
            return Line(
                setting.netdev, "", "\n".join(f"{PROFILE_OPTIONS[f'channels/{kind}']}={n}" for kind, n in counts)
            )
    return None


def in_tuned(setting: Setting, value: str) -> Line | None:
    """Return the option of a TuneD plugin (sysctl, sysfs, net), None where there is none."""
    match setting:
        case KernelParameter():
            return Line(SYSCTL, setting.title, value)
        case NetdevParam() if setting.param in LINK_OPTIONS:
            option, _, name = setting.param.rpartition("/")
            return Line(setting.netdev, option or "features", f"{name} {value}")
        case Channels():
            return Line(setting.netdev, "channels", value.replace(",", " "))
    return _in_sysfs(setting, value)


def _in_sysfs(setting: Setting, value: str) -> Line | None:
    match setting:
        case Rps() | Xps():
            path, text = setting.path, setting.mask(value)
        case QueueParam() if setting.param in QUEUE_FILES:
            path, text = setting.path, value
        case NetdevParam() if setting.param in NETDEV_FILES:
            path, text = setting.param, value
        case _:
            return None
    return Line(SYSFS, f"/sys/class/net/{setting.netdev}/{path}", text)


def in_ansible(setting: Setting, value: str) -> Line | None:
    """Return what Ansible writes: a line for sysctl, a command of a udev rule, or a property of a systemd unit."""
    if isinstance(setting, CgroupWeight | CpusetCpus | CpusetMems):
        unit, option = _UNIT.fullmatch(setting.path), _UNIT_OPTIONS.get(setting.name)
        known = unit is not None and option is not None
        return Line(UNIT, unit[1], f"{option}={'' if value == INHERITED else value}") if known and unit else None
    line = in_sysctl(setting, value)
    return Line(SYSCTL, line.name, line.value) if line is not None else in_udev(setting, value)


_CGROUP = "a cgroup is made anew at each start. Ansible's tasks set, of a slice or service of the system's systemd,"
_ETHTOOL = "only ethtool sets it. Take the udev rule or Ansible's tasks."
REASONS: Mapping[type[Setting], str] = MappingProxyType(
    {
        IrqAffinity: "an interrupt may have another number after a reboot. The policy irq-spread sets it by load.",
        TaskAffinity: "a process has another PID after a restart. Its unit's CPUAffinity= says the same.",
        TaskNice: "a process has another PID after a restart. Its unit's Nice= says the same.",
        TaskMemoryNodes: "a process has another PID after a restart. Its unit's NUMAMask= says the same.",
        CgroupWeight: f"{_CGROUP} CPUWeight= or IOWeight=.",
        CpusetCpus: f"{_CGROUP} AllowedCPUs=.",
        CpusetMems: f"{_CGROUP} AllowedMemoryNodes=.",
        RssTable: _ETHTOOL,
        FlowRuleSlot: _ETHTOOL,
    }
)
"""Why a kind of setting cannot be written, where the reason is not the format's own."""


def general_reason(setting: Setting, value: str) -> str | None:
    """Return why no format can have a value of a setting, None where one may."""
    if isinstance(setting, QueueParam) and setting.param in NAPI_PARAMS:
        return "only netlink sets it for one queue, by an id that changes at each start. Set it for the whole device."
    if isinstance(setting, FlowRuleSlot) and value == EMPTY:
        return "after a reboot there is no rule."
    if isinstance(setting, RssContextTable) or (
        isinstance(setting, FlowRuleSlot) and setting.context(value) is not None
    ):
        return "ethtool numbers a new context itself, and flow rules name the number."
    return None


Sections: TypeAlias = Mapping[str, Sequence[Line]]
"""Lines by their section, in the order of the plan."""


def sysctl_files(name: str, sections: Sections) -> dict[str, str]:
    """Return a fragment of sysctl.d. name: of the files, without suffix."""
    return {f"/etc/sysctl.d/{name}.conf": _sysctl(sections.get("", ()))}


def udev_files(name: str, sections: Sections) -> dict[str, str]:
    """Return a udev rule for each device: commands run when it appears, or has got its name."""
    return {f"/etc/udev/rules.d/{name}.rules": _udev(sections)}


def link_files(name: str, sections: Sections) -> dict[str, str]:
    """Return a .link file for each device, with the names and addresses of systemd's 99-default.link.

    Only the first file that matches a device counts, so that it must have them too.
    """
    return {
        f"/etc/systemd/network/{name}-{netdev}.link": "\n".join(
            [
                *("[Match]", f"{_match(netdev)}={netdev}\n", "[Link]"),
                "NamePolicy=keep kernel database onboard slot path",
                "AlternativeNamesPolicy=database onboard slot path",
                *("MACAddressPolicy=persistent", *_options(lines), ""),
            ]
        )
        for netdev, lines in sections.items()
    }


def network_manager_files(name: str, sections: Sections) -> dict[str, str]:
    """Return the section of a connection for each device; the connection itself is the node's."""
    return {
        f"{name.partition('-')[2]}-{netdev}.nmconnection": "\n".join(["[ethtool]", *_options(lines), ""])
        for netdev, lines in sections.items()
    }


def tuned_files(name: str, sections: Sections) -> dict[str, str]:
    """Return a TuneD profile."""
    parts = ["[main]", "summary=Settings that Coresteer measured"]
    for section, lines in sections.items():
        if section in (SYSCTL, SYSFS):
            parts += ["", f"[{section[1:]}]", *(f"{line.name}={line.value}" for line in lines)]
            continue
        options: dict[str, list[str]] = {}
        for line in lines:
            options.setdefault(line.name, []).append(line.value)
        parts += ["", f"[net_{section}]", "type=net", f"devices={section}"]
        parts += [f"{option}={' '.join(values)}" for option, values in options.items()]
    return {f"/etc/tuned/{name.partition('-')[2]}/tuned.conf": "\n".join([*parts, ""])}


def ansible_files(name: str, sections: Sections) -> dict[str, str]:
    """Return tasks that write the files of sysctl and udev and load them, and set properties of units."""
    parts = []
    if SYSCTL in sections:
        path = f"/etc/sysctl.d/{name}.conf"
        parts += _copy("kernel parameters", "coresteer_sysctl", path, _sysctl(sections[SYSCTL]))
        parts += _load("kernel parameters", "coresteer_sysctl", [f"sysctl --load {path}"])
    devices = {section: lines for section, lines in sections.items() if section not in (SYSCTL, UNIT)}
    if devices:
        parts += _copy("network devices", "coresteer_udev", f"/etc/udev/rules.d/{name}.rules", _udev(devices))
        trigger = "udevadm trigger --action=add --subsystem-match=net --sysname-match="
        parts += _load(
            "network devices", "coresteer_udev", ["udevadm control --reload", *(trigger + each for each in devices)]
        )
    for line in sections.get(UNIT, ()):
        parts += [
            f"- name: Set {line.value.partition('=')[0]} of {line.name}",
            "  ansible.builtin.command:",
            f"    argv: [systemctl, set-property, {line.name!r}, {line.value!r}]",
            "  changed_when: false",
        ]
    return {f"{name.partition('-')[2]}.yml": "\n".join([*parts, ""])}


def _copy(what: str, register: str, path: str, content: str) -> list[str]:
    return [
        f"- name: Set {what} at each start",
        "  ansible.builtin.copy:",
        f"    dest: {path}",
        '    mode: "0644"',
        "    content: |",
        *(f"      {line}" for line in content.splitlines()),
        f"  register: {register}",
    ]


def _load(what: str, register: str, commands: Sequence[str]) -> list[str]:
    return [
        f"- name: Set {what} now",
        '  ansible.builtin.command: "{{ item }}"',
        "  loop:",
        *(f"    - {command}" for command in commands),
        f"  when: {register} is changed",
    ]


def _sysctl(lines: Sequence[Line]) -> str:
    return "".join(f"{line.name} = {line.value}\n" for line in lines)


def _udev(sections: Sections) -> str:
    """Return rules: a device has its name when it is added, or when it is moved to the name that udev gives it."""
    return "".join(
        f'ACTION=="add|move", SUBSYSTEM=="net", KERNEL=="{netdev}", RUN+="/bin/sh -c \'{line.value}\'"\n'
        for netdev, lines in sections.items()
        for line in lines
    )


def _options(lines: Sequence[Line]) -> list[str]:
    return [f"{line.name}={line.value}" if line.name else line.value for line in lines]


def _match(netdev: str) -> str | None:
    """Return which property of a device has its name already before udev names it, None if it is not known."""
    return next((found for pattern, found in _MATCHES if re.fullmatch(pattern, netdev, re.ASCII)), None)


class Format(Struct, frozen=True):
    """A format. title: of the tool; express: a setting in it, or why it cannot; files: texts by path.

    absent: why it lacks a setting for which express gives no reason. use: what to do with the files, in a sentence.
    """

    title: str
    express: Callable[[Setting, str], Line | str | None]
    files: Callable[[str, Sections], dict[str, str]]
    absent: str
    use: str


class FormatName(StrEnum):
    """The name of a format in the API."""

    SYSCTL = "sysctl"
    LINK = "link"
    UDEV = "udev"
    TUNED = "tuned"
    NETWORK_MANAGER = "networkmanager"
    ANSIBLE = "ansible"


FORMATS: Mapping[FormatName, Format] = MappingProxyType(
    {
        FormatName.SYSCTL: Format(
            "sysctl", in_sysctl, sysctl_files, "it is no kernel parameter.", "Load it with: sysctl --system"
        ),
        FormatName.LINK: Format(
            "systemd .link",
            in_link,
            link_files,
            "systemd.link has no option for it.",
            "The first file by name that matches counts; merge it with others for this device. It applies at boot.",
        ),
        FormatName.UDEV: Format(
            "udev rule",
            in_udev,
            udev_files,
            "it belongs to no network device.",
            "Load it with: udevadm control --reload; udevadm trigger --action=add --subsystem-match=net",
        ),
        FormatName.TUNED: Format(
            "TuneD profile",
            in_tuned,
            tuned_files,
            "TuneD has no option for it.",
            "Add it to the active profile with: tuned-adm profile ACTIVE NAME_OF_THIS_FOLDER",
        ),
        FormatName.NETWORK_MANAGER: Format(
            "NetworkManager",
            in_network_manager,
            network_manager_files,
            "NetworkManager has no option for it.",
            "Add this section to the connection of the device. Numbers of channels need NetworkManager 1.46.",
        ),
        FormatName.ANSIBLE: Format(
            "Ansible tasks", in_ansible, ansible_files, "no task of these can set it.", "Include these tasks in a play."
        ),
    }
)
"""Every format."""
