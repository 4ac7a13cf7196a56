"""Reads the identity of a process: its cgroups, systemd unit, user and command (/proc/PID)."""

import time
from pathlib import Path

from msgspec import Struct

from coresteer_agent.collect.files import read_bytes
from coresteer_agent.collect.kubelet import PodNames
from coresteer_agent.collect.tasks import without_control_characters

_PASSWD_S = 60.0
_LONGEST = 256
_ID_DIGITS = 10
"""Of the largest user id."""


class CgroupPaths(Struct, frozen=True):
    """A process's cgroup path by hierarchy, None if there is no such hierarchy, and its systemd unit.

    unified: of version 2. cpuset, cpu: where version 1 has that controller. unit: the systemd unit that they name.
    """

    unified: str | None
    cpuset: str | None
    cpu: str | None
    unit: str | None


class ProcessIdentity(Struct, frozen=True):
    """Cgroups, user and command of a process. user: name, or number if /etc/passwd has none.

    command: the first word of its command line without its folder. pod: as in NetTask.
    """

    groups: CgroupPaths
    user: str | None
    command: str | None
    pod: str | None = None


def parse_cgroups(text: str) -> CgroupPaths:
    """Parse a process's cgroup paths and systemd unit from /proc/PID/cgroup."""
    unified = cpuset = cpu = systemd = None
    for line in text.split("\n"):
        number, _, rest = line.partition(":")
        named, colon, path = rest.partition(":")
        if not colon or not path.startswith("/"):
            continue
        controllers = named.split(",")
        if number == "0" and not named:
            unified = without_control_characters(path)
        if "cpuset" in controllers:
            cpuset = path
        if "cpu" in controllers:
            cpu = without_control_characters(path)
        if named == "name=systemd":
            systemd = without_control_characters(path)
    unit = None if systemd is None else _unit(systemd)
    return CgroupPaths(unified, cpuset, cpu, unit if unit is not None or unified is None else _unit(unified))


def _unit(path: str) -> str | None:
    """Return the innermost systemd service or scope in a cgroup path."""
    return next((part for part in reversed(path.split("/")) if part.endswith((".service", ".scope"))), None)


def parse_user(status: bytes) -> int | None:
    """Parse a process's effective user id from /proc/PID/status; None without one."""
    for line in status.split(b"\n"):
        if line.startswith(b"Uid:"):
            fields = line.split()
            number = fields[2] if len(fields) > 2 else b""
            return int(number) if number.isdigit() and len(number) <= _ID_DIGITS else None
    return None


def parse_command(cmdline: bytes) -> str | None:
    """Parse the program's name from /proc/PID/cmdline: the first word without its folder and a trailing colon."""
    words = cmdline.partition(b"\0")[0].split(None, 1)
    if not words:
        return None
    name = words[0].rpartition(b"/")[2].rstrip(b":")[:_LONGEST]
    return without_control_characters(name.decode("utf-8", "replace")) or None


def parse_passwd(text: bytes) -> dict[int, str]:
    """Parse user names by user id from /etc/passwd; the first of several."""
    names: dict[int, str] = {}
    for line in text.split(b"\n"):
        fields = line.split(b":")
        if len(fields) > 2 and fields[2].isdigit() and len(fields[2]) <= _ID_DIGITS:
            names.setdefault(
                int(fields[2]), without_control_characters(fields[0].decode("utf-8", "replace"))[:_LONGEST]
            )
    return names


class ProcessIdentityReader:
    """Reads the identity of processes below one root directory; caches /etc/passwd."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._names: dict[int, str] = {}
        self._names_read_s = float("-inf")
        self._pods = PodNames(root)

    def read(self, pid: int) -> ProcessIdentity:
        """Read a process's identity, None for unknown parts; takes about 60 µs."""
        groups = parse_cgroups((self._read(pid, "cgroup") or b"").decode("utf-8", "replace"))
        number = parse_user(self._read(pid, "status") or b"")
        return ProcessIdentity(
            groups,
            None if number is None else self._user(number),
            parse_command(self._read(pid, "cmdline") or b""),
            self._pods.find(groups.unified) or self._pods.find(groups.cpu),
        )

    def _read(self, pid: int, file: str) -> bytes | None:
        return read_bytes(self._root, f"proc/{pid}/{file}")

    def _user(self, number: int) -> str:
        now_s = time.monotonic()
        if now_s - self._names_read_s >= _PASSWD_S:
            self._names_read_s = now_s
            self._names = parse_passwd(read_bytes(self._root, "etc/passwd") or b"")
        return self._names.get(number, str(number))
