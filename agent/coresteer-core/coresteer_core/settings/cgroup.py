"""How much a cgroup gets beside its siblings (kernel: cgroup-v2.rst, sched-design-CFS.rst for cpu.shares)."""

import re
import shlex

from msgspec import Struct

from coresteer_core.node.view import View
from coresteer_core.settings.base import SettingError

WEIGHTS = {"cpu.weight": (1, 10_000), "cpu.shares": (2, 262_144), "io.weight": (1, 10_000)}
"""The least and the most of each by its file's name; cpu.shares is version 1's."""

_DECIMAL = re.compile(r"\d{1,10}\Z", re.ASCII)
_MOUNTS = {"cpu.shares": "cpu/"}


class CgroupWeight(Struct, frozen=True):
    """``cgroup/web.slice/cpu.weight``: its share of the CPU or of disks where its siblings want some, too.

    path: as in /proc/PID/cgroup, without the slash before it. name: one of WEIGHTS. io.weight is the group's default;
    what single devices have instead stays.
    """

    path: str
    name: str

    @property
    def key(self) -> str:
        """Its address."""
        return f"cgroup/{self.path}/{self.name}"

    def canonical(self, value: str) -> str:
        """The value in its one spelling. Raises SettingError for a value that is no number."""
        text = value.strip()
        if _DECIMAL.match(text):
            return str(int(text))
        raise SettingError(f"“{text[:40]}” is not a weight; write a number, for example 100.")

    def equal(self, first: str, second: str) -> bool:
        """Whether two values mean the same to the kernel."""
        return self.canonical(first) == self.canonical(second)

    def shown(self, value: str) -> str:
        """What a view shows where this value stands."""
        return value

    def cpus(self, value: str) -> frozenset[int]:
        """None: it names no CPUs."""
        return frozenset()

    def absent(self, view: View) -> str | None:
        """Why a node does not have it, as a sentence; None where it does."""
        if self.current(view) is not None:
            return None
        return f"This node has no cgroup {self.path} with {self.name} and a process that talks over the network."

    def current(self, view: View) -> str | None:
        """The value that a view shows, None where it is not known."""
        return view.cgroups.get(self.path, {}).get(self.name)

    def against(self, view: View, value: str) -> list[tuple[str, str]]:
        """What of the setting itself speaks against a value: codes of Refusal, each with a sentence."""
        least, most = WEIGHTS[self.name]
        if least <= int(value) <= most:
            return []
        return [("bounds", f"{self.describe()} can be from {least} to {most}, not {value}.")]

    def about(self, view: View) -> str | None:
        """The netdev whose packets it is about: none alone."""
        return None

    def describe(self, view: View | None = None) -> str:
        """Its name in a sentence."""
        return f"{self.name} of {self.path}"

    def say(self, value: str) -> str:
        """A value in a sentence."""
        return value

    def shell(self, value: str) -> str:
        """The same by hand."""
        file = f"/sys/fs/cgroup/{_MOUNTS.get(self.name, '')}{self.path}/{self.name}"
        return f"echo {'default ' if self.name == 'io.weight' else ''}{value} > {shlex.quote(file)}"
