"""Temporary cgroups with CPU weights for the classes of the service classes' experiment."""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

_CGROUP = Path("/proc/self/cgroup")
_MOUNTS = Path("/proc/self/mountinfo")
_REMOVE_S = 2
_REALTIME_S = 2
_REALTIME_SHARE = 0.9
"""Share of the real-time runtime; with CONFIG_RT_GROUP_SCHED a new cgroup of version 1 has none."""


class NoCgroupError(Exception):
    """Raised if no cgroups with CPU weights can be created; the message has the reason."""


class WeightedCgroup:
    """The cgroup of one class. home: the cgroup its tasks came from. scale: weight of nice 0 (1024 or 100)."""

    def __init__(self, folder: Path, home: Path, file: str, scale: int) -> None:
        self.folder = folder
        self.home = home
        self._file = folder / file
        self._scale = scale

    def set_weight(self, weight: float) -> None:
        """Set the cgroup's CPU weight, in the scheduler's unit (a task of nice 0 has 1024)."""
        self._file.write_text(str(round(weight * self._scale / 1024)))


@contextmanager
def weighted_cgroups(names: Sequence[str]) -> Iterator[list[WeightedCgroup]]:
    """Create a temporary cgroup per name inside one of default weight, yield them, and remove them at the end.

    Version 1 if it has the CPU controller, below the current cgroup. Else version 2, below the nearest ancestor that
    delegates the CPU controller, which a cgroup with processes does not. Raises NoCgroupError.
    """
    home, base, file, scale, root_lacks_cpu = _find_base()
    parent = base / f"coresteer-workload-{os.getpid()}"
    folders = [parent / name for name in names]
    try:
        if root_lacks_cpu:
            (base / "cgroup.subtree_control").write_text("+cpu")
        parent.mkdir()
        if scale == 100:
            (parent / "cgroup.subtree_control").write_text("+cpu")
        for folder in folders:
            folder.mkdir()
        _allow_realtime(base, parent, folders)
        yield [WeightedCgroup(folder, home, file, scale) for folder in folders]
    except PermissionError as error:
        raise NoCgroupError(f"This method must write {error.filename}: {error.strerror}.") from None
    finally:
        for folder in (*folders, parent):
            _remove(folder)
        if root_lacks_cpu:
            with suppress(OSError):
                (base / "cgroup.subtree_control").write_text("-cpu")


def _find_base() -> tuple[Path, Path, str, int, bool]:
    paths = {}
    for line in filter(None, os.fsdecode(_CGROUP.read_bytes()).split("\n")):
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            paths[controller] = path.lstrip("/")
    lines = filter(None, os.fsdecode(_MOUNTS.read_bytes()).split("\n"))
    mounts = [(line.split(" - ")[0].split(), line.split(" - ")[1].split()) for line in lines]
    for left, right in mounts:
        if right[0] == "cgroup" and "cpu" in right[2].split(",") and "cpu" in paths:
            home = Path(left[4]) / paths["cpu"]
            return home, home, "cpu.shares", 1024, False
    for left, right in mounts:
        if right[0] == "cgroup2" and "" in paths:
            root = Path(left[4])
            home = base = root / paths[""]
            while base != root and "cpu" not in (base / "cgroup.subtree_control").read_text().split():
                base = base.parent
            if "cpu" in (base / "cgroup.controllers").read_text().split():
                lacks = "cpu" not in (base / "cgroup.subtree_control").read_text().split()
                return home, base, "cpu.weight", 100, lacks
    raise NoCgroupError("This method requires a cgroup with the CPU controller, which this node does not have.")


def _allow_realtime(base: Path, parent: Path, folders: Sequence[Path]) -> None:
    """Give each cgroup an equal share of the real-time runtime, if the kernel has one per cgroup."""
    name = "cpu.rt_runtime_us"
    if not (base / name).exists():
        return
    runtime_us = int(int((base / name).read_text()) * _REALTIME_SHARE)
    until_s = time.monotonic() + _REALTIME_S
    while True:
        try:
            (parent / name).write_text(str(runtime_us))
            break
        except OSError:  # the share of cgroups that were just removed is still allocated
            if time.monotonic() > until_s:
                return
            time.sleep(0.05)
    for folder in folders:
        (folder / name).write_text(str(runtime_us // len(folders)))


def _remove(folder: Path) -> None:
    """Remove a cgroup; retry, because ended tasks remain in it for a moment."""
    until = time.monotonic() + _REMOVE_S
    while folder.is_dir():
        try:
            folder.rmdir()
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.01)
