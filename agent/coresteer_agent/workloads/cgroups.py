"""A cgroup for each class of an experiment, with its share of the CPU, made for it and removed after it."""

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
"""Of what is there for real-time tasks; a kernel with CONFIG_RT_GROUP_SCHED gives a cgroup of version 1 none."""


class NoCgroupError(Exception):
    """There is no place for cgroups with CPU weights; the sentence says why."""


class WeightedCgroup:
    """One class's. home: where its tasks came from. scale: nice 0 is 1024 with cpu.shares, 100 with cpu.weight."""

    def __init__(self, folder: Path, home: Path, file: str, scale: int) -> None:
        self.folder = folder
        self.home = home
        self._file = folder / file
        self._scale = scale

    def weigh(self, weight: float) -> None:
        """weight: as the scheduler counts it, 1024 for a task of nice 0."""
        self._file.write_text(str(round(weight * self._scale / 1024)))


@contextmanager
def weighted_cgroups(names: Sequence[str]) -> Iterator[list[WeightedCgroup]]:
    """A cgroup for each name, inside one that weighs as much as any other; removed at the end, when its tasks are gone.

    Version 1 where it has the CPU, below the current cgroup. Version 2 elsewhere, below the nearest that hands the CPU
    on, which is not the current one where that has processes. Raises NoCgroupError.
    """
    home, place, file, scale, root_lacks_cpu = _place()
    parent = place / f"coresteer-workload-{os.getpid()}"
    folders = [parent / name for name in names]
    try:
        if root_lacks_cpu:
            (place / "cgroup.subtree_control").write_text("+cpu")
        parent.mkdir()
        if scale == 100:
            (parent / "cgroup.subtree_control").write_text("+cpu")
        for folder in folders:
            folder.mkdir()
        _allow_realtime(place, parent, folders)
        yield [WeightedCgroup(folder, home, file, scale) for folder in folders]
    except PermissionError as error:
        raise NoCgroupError(f"{error.filename} cannot be written, which this method needs: {error.strerror}.") from None
    finally:
        for folder in (*folders, parent):
            _remove(folder)
        if root_lacks_cpu:
            with suppress(OSError):
                (place / "cgroup.subtree_control").write_text("-cpu")


def _place() -> tuple[Path, Path, str, int, bool]:
    paths = {}
    for line in _CGROUP.read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            paths[controller] = path.lstrip("/")
    mounts = [(line.split(" - ")[0].split(), line.split(" - ")[1].split()) for line in _MOUNTS.read_text().splitlines()]
    for left, right in mounts:
        if right[0] == "cgroup" and "cpu" in right[2].split(",") and "cpu" in paths:
            home = Path(left[4]) / paths["cpu"]
            return home, home, "cpu.shares", 1024, False
    for left, right in mounts:
        if right[0] == "cgroup2" and "" in paths:
            root = Path(left[4])
            home = place = root / paths[""]
            while place != root and "cpu" not in (place / "cgroup.subtree_control").read_text().split():
                place = place.parent
            if "cpu" in (place / "cgroup.controllers").read_text().split():
                lacks = "cpu" not in (place / "cgroup.subtree_control").read_text().split()
                return home, place, "cpu.weight", 100, lacks
    raise NoCgroupError("No cgroup here has the CPU controller, which this method needs.")


def _allow_realtime(place: Path, parent: Path, folders: Sequence[Path]) -> None:
    """An equal part each, where the kernel divides it up; without it they have no real-time tasks."""
    name = "cpu.rt_runtime_us"
    if not (place / name).exists():
        return
    runtime_us = int(int((place / name).read_text()) * _REALTIME_SHARE)
    until_s = time.monotonic() + _REALTIME_S
    while True:
        try:
            (parent / name).write_text(str(runtime_us))
            break
        except OSError:  # the part of cgroups that were just removed is still taken
            if time.monotonic() > until_s:
                return
            time.sleep(0.05)
    for folder in folders:
        (folder / name).write_text(str(runtime_us // len(folders)))


def _remove(folder: Path) -> None:
    """Tasks that have just ended are still in it for a moment."""
    until = time.monotonic() + _REMOVE_S
    while folder.is_dir():
        try:
            folder.rmdir()
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.01)
