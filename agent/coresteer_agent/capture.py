"""``coresteer-agent capture``: copy the kernel files that the collectors read, as a tree for ``--root``.

The collectors run once while collect.files.record_requested_paths() records what they read, and these files are copied.
So the tree follows every change of the collectors; data that must not leave the machine is removed here.
"""

import errno
import logging
import os
import re
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from coresteer_agent.collect import boot_files, controllers, files, irq, kubelet, netdev
from coresteer_agent.collect.tasks import TaskScanner
from coresteer_agent.collect.topology import read_topology
from coresteer_agent.observe import netdev_settings, queue_users, queues
from coresteer_agent.observe.inventory import InventoryReader
from coresteer_agent.observe.sampler import Sampler
from coresteer_agent.runtime.identity import make_hello
from coresteer_agent.version import VERSION

_log = logging.getLogger(__name__)

T = TypeVar("T")

MANIFEST = "MANIFEST"

PRIVACY_NOTE = """\
Left out: command lines, environments, the host's name, the machine's and the boot's identity, addresses (MAC, IP)
and sockets, mounts, serial numbers, the kernel's command line, kubelet's pods, what other programs set at boot.
Changed: processes are named task-PID, except kernel threads, irqbalance, tuned, numad and kubelet, and have no memory
addresses; of the routes only the default ones are there, without their gateways.
Kept: the names of devices and interrupts, also of a device that is named after its MAC address (enx…).
"""
_MANIFEST = """\
What coresteer-agent {version} read below /proc and /sys of one machine, for example for
    coresteer-agent topology --root .
Files have the kernel's own text and mode; empty files and folders were only listed.
An interrupt that cannot be moved has a read-only smp_affinity_list. {netlink} and {xdp} have the answers of
netlink, {ethtool} those of ethtool.

"""

_LEFT_OUT = frozenset({"etc/machine-id", "proc/self/mounts", "proc/sys/kernel/hostname", kubelet.CPU_MANAGER_STATE})
_OF_TASK = re.compile(r"proc/(\d+)/(stat|comm)\Z", re.ASCII)
_AFFINITY = re.compile(rf"{irq.IRQ_FOLDER}/(\d+)/smp_affinity_list\Z", re.ASCII)
_WITH_ADDRESS = re.compile(rb"(?!irq/).*(\d\.\d+\.\d|:.*:)", re.DOTALL)
"""The kernel threads of NFS clients have names with addresses: 192.0.2.7-manager or fe80::1-manager."""
_GATEWAY = re.compile(rb"(\S+\s+\S+\s+)[0-9A-Fa-f]+")

# proc_pid_stat(5), counted from the third field on
_TASK_FLAGS = 6
_TASK_ADDRESSES = (*range(23, 28), 32)
_TASK_MORE_ADDRESSES = 42
_KERNEL_THREAD = 0x00200000
"""PF_KTHREAD of include/linux/sched.h."""


class Captured(Struct, frozen=True):
    """Summary of a capture. files: number of files with text; unread: why a file could not be read, by path."""

    files: int
    unread: dict[str, str]


def capture(root: Path, folder: Path) -> Captured:
    """Copy the files that collectors read below root into an empty folder. Raises OSError if it cannot be written."""
    with files.record_requested_paths() as requested:
        _guarded(lambda: read_topology(root))
        _guarded(lambda: _sample(root))
        with closing(TaskScanner(root)) as scanner:
            _guarded(scanner.scan)
        _guarded(lambda: make_hello(root, 1.0, None))
        inventory = _guarded(InventoryReader(root).read)
    # the kernel's refusal is in no file, so the tree shows it as newer kernels do: by the file's mode
    irqs = inventory.irqs if inventory is not None and irq.is_running_kernel(root) else []
    users = inventory.queue_users if inventory is not None else []
    fixed = {each.irq for each in irqs if each.movable is False and not any(user.uses(each) for user in users)}
    tree = _Tree(root, folder, fixed)
    for path in sorted(requested.found - _LEFT_OUT):
        tree.place(path)
    for path in sorted(requested.listed):
        if path.startswith("sys/"):  # not /proc, which lists much that the collectors do not read
            of_netdev = path.rpartition("/")[0] == netdev.NETDEV_FOLDER  # its MAC address is left out
            for name in files.names(root, path):
                if not of_netdev or name.startswith(netdev.LOWER):
                    tree.place(f"{path}/{name}")
    unread = {}
    for path in sorted(path for path in requested.read - _LEFT_OUT if not path.startswith(boot_files.PRIVATE)):
        try:
            tree.copy(path)
        except _UnreadError as error:
            unread[path] = str(error)
    if netlink := _guarded(lambda: queues.read_netlink_queues(root)):
        (folder / queues.NETLINK_PATH).write_bytes(msgspec.json.encode(netlink))
    if (state := _guarded(queue_users.QueueUserReader(root).read_xdp)) and state != queue_users.XdpState():
        nameless = {ifindex: dict.fromkeys(found, "") for ifindex, found in state.sockets.items()}
        (folder / queue_users.NETLINK_PATH).write_bytes(msgspec.json.encode(replace(state, sockets=nameless)))
    if scaling := _guarded(lambda: netdev_settings.read_ethtool_settings(root, netdev.netdev_names(root))):
        private = {name: replace(each, flow_rules=None) for name, each in scaling.items()}  # rules name addresses
        (folder / netdev_settings.ETHTOOL_PATH).write_bytes(msgspec.json.encode(private))
    tree.finish()
    with (folder / MANIFEST).open("w", encoding="utf-8", errors="replace") as manifest:
        manifest.write(
            _MANIFEST.format(
                version=VERSION,
                netlink=queues.NETLINK_PATH,
                xdp=queue_users.NETLINK_PATH,
                ethtool=netdev_settings.ETHTOOL_PATH,
            )
            + PRIVACY_NOTE
        )
        if unread:
            manifest.write("\nNot readable:\n")
        manifest.writelines(f"{path}: {why}\n" for path, why in unread.items())
    return Captured(tree.texts, unread)


def _sample(root: Path) -> None:
    sampler = Sampler(root)
    sampler.sample()
    sampler.close()


def _guarded(read: Callable[[], T]) -> T | None:
    """Return read()'s result, None after any exception: a capture may be needed to debug a collector."""
    try:
        return read()
    except Exception as error:
        _log.warning("A collector failed; files that it reads after the failure are missing in the capture: %s", error)
        return None


class _UnreadError(Exception):
    """Raised for an existing file that cannot be read."""


class _Tree:
    """The copied tree: files, folders and links at the same paths as below root."""

    def __init__(self, root: Path, folder: Path, locked: set[int]) -> None:
        self.texts = 0
        self._root = root
        self._real_root = root.resolve()
        self._folder = folder
        self._locked = locked
        self._places: dict[str, Path | None] = {"": folder}
        self._modes: dict[Path, int] = {}

    def place(self, path: str) -> Path | None:
        """Return the path of an empty copy of a file, folder or link; None if it does not exist below root."""
        if path not in self._places:
            self._places[path] = self._make(path)
        return self._places[path]

    def _make(self, path: str) -> Path | None:
        source = files.real_path(self._root, path)
        if source is None:
            return None
        if path.startswith("proc/"):
            place = self._folder / path  # its links point into the folder of the reading process
        else:
            place = self._folder / source.relative_to(self._real_root)
            parent, _, name = path.rpartition("/")
            above = self.place(parent)
            # two spellings of one path pass the same link
            if above is not None and name != ".." and above / name != place and not (above / name).is_symlink():
                (above / name).symlink_to(os.path.relpath(place, above))
        if source.is_dir():
            place.mkdir(parents=True, exist_ok=True)
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.touch()
            self._modes[place] = self._mode(path, source)
        return place

    def _mode(self, path: str, source: Path) -> int:
        mode = stat.S_IMODE(source.stat().st_mode) & 0o666 | stat.S_IRUSR
        found = _AFFINITY.match(path)
        return mode & ~0o222 if found is not None and int(found[1]) in self._locked else mode

    def copy(self, path: str) -> None:
        """Copy a file with its text, without secrets. Raises _UnreadError."""
        try:
            text = self._without_secrets(path, files.read_file(self._root, path))
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ESRCH):
                return
            raise _UnreadError(error.strerror) from error
        if text and (place := self.place(path)) is not None and not place.stat().st_size:
            place.write_bytes(text)
            self.texts += 1

    def _without_secrets(self, path: str, text: bytes) -> bytes:
        if path == netdev.ROUTE_PATH:
            return _default_routes(text)
        if (found := _OF_TASK.match(path)) is None:
            return text
        pid, kind = found.groups()
        if kind == "comm":
            stat_text = files.read_bytes(self._root, f"proc/{pid}/stat") or b""
            return _task_name(text.removesuffix(b"\n"), pid, stat_text.rpartition(b") ")[2].split()) + b"\n"
        return _task_stat(text, pid)

    def finish(self) -> None:
        """Set the modes of the copied files; they may not be writable afterwards."""
        for place, mode in self._modes.items():
            place.chmod(mode)


def _default_routes(text: bytes) -> bytes:
    head, *lines = text.splitlines(keepends=True) or [b""]
    defaults = [line for line in lines if len(fields := line.split()) > 7 and not (fields[1] + fields[7]).strip(b"0")]
    return head + b"".join(_GATEWAY.sub(rb"\g<1>00000000", line, count=1) for line in defaults)


def _task_stat(text: bytes, pid: str) -> bytes:
    """Return a process's /proc/PID/stat without memory addresses; empty if it cannot be parsed."""
    head, bracket, rest = text.rpartition(b") ")
    fields = rest.split()
    if not bracket or len(fields) <= _TASK_FLAGS:
        return b""
    name = _task_name(head.partition(b"(")[2], pid, fields)
    for number in range(len(fields)):
        if number in _TASK_ADDRESSES or number >= _TASK_MORE_ADDRESSES:
            fields[number] = b"0"
    return b"%s (%s) %s\n" % (pid.encode(), name, b" ".join(fields))


def _task_name(name: bytes, pid: str, fields: list[bytes]) -> bytes:
    flags = fields[_TASK_FLAGS] if len(fields) > _TASK_FLAGS else b""
    from_kernel = flags.isdigit() and int(flags[:20]) & _KERNEL_THREAD and not _WITH_ADDRESS.match(name)
    return name if from_kernel or name + b"\n" in controllers.KNOWN_CONTROLLERS else f"task-{pid}".encode()
