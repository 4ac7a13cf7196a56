"""CPU and I/O weights of cgroups (kernel: cgroup-v2.rst, sched-design-CFS.rst for cpu.shares)."""

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import ClassVar

from coresteer_core.node.view import View
from coresteer_core.settings.base import KeyForm, Setting, bounds_refusals, number_schema, whole_number
from coresteer_core.settings.location import CgroupLocation

WEIGHTS = {"cpu.weight": (1, 10_000), "cpu.shares": (2, 262_144), "io.weight": (1, 10_000)}
"""Minimum and maximum of each weight, by the name of its cgroup file; cpu.shares is of cgroup version 1."""

_MOUNTS = {"cpu.shares": "cpu/"}
_FOLDER = r"(?!\.\.?/)[ -.0-~]{1,255}"
GROUP_PATTERN = rf"({_FOLDER}(?:/{_FOLDER}){{0,31}})"
"""Folders below the root cgroup, which has no weight of its own."""
_WEIGHT = "|".join(map(re.escape, WEIGHTS))


class OfCgroup(Setting, frozen=True):
    """Base of the settings of cgroups, whose values are the text of one of their files.

    path: as in /proc/PID/cgroup, without the leading slash.
    """

    path: str

    complete_in_view = False

    @property
    def key(self) -> str:
        """The setting's key: ``cgroup/web.slice/cpu.weight``."""
        return f"cgroup/{self.path}/{self.name}"

    @property
    def subject(self) -> str:
        """The path of the cgroup that the setting belongs to."""
        return self.path

    @property
    def location(self) -> CgroupLocation:
        """The place in a View of the node that holds the cgroup's value."""
        return CgroupLocation(self.path, self.name)


class CgroupWeight(OfCgroup, frozen=True):
    """``cgroup/web.slice/cpu.weight``: a cgroup's share of CPU time, or of I/O, in competition with its siblings.

    weight: one of WEIGHTS. io.weight is the group's default; weights of single devices stay.
    """

    weight: str

    placeholders: ClassVar[Mapping[str, Sequence[str]]] = {"WEIGHT": tuple(WEIGHTS)}
    forms: ClassVar[Sequence[KeyForm]] = (
        KeyForm(
            "cgroup/PATH/WEIGHT",
            rf"cgroup/{GROUP_PATTERN}/({_WEIGHT})",
            lambda m: CgroupWeight(m[1], m[2]),
            subject="$1",
            name="$2",
        ),
    )

    @classmethod
    def examples(cls) -> Sequence[Setting]:
        """Return one example setting for each kind of weight."""
        return [cls("system.slice", weight) for weight in WEIGHTS]

    @property
    def name(self) -> str:
        """The last part of the setting's key: ``cpu.weight``."""
        return self.weight

    @property
    def schema(self) -> dict[str, object]:
        """JSON Schema of the weight, an integer with its bounds."""
        return number_schema(*WEIGHTS[self.weight])

    def canonical(self, value: str) -> str:
        """Return a weight without leading zeros. Raises SettingError for text that is not a number."""
        return whole_number(value, "a weight", example=100)

    def missing_reason(self, view: View) -> str | None:
        """Return a sentence that says why a node lacks this cgroup or weight; None where the node has it."""
        if self.current(view) is not None:
            return None
        return f"This node has no cgroup {self.path} with {self.weight} and a process that uses the network."

    def current(self, view: View) -> str | None:
        """Return the cgroup's present weight from a View of the node; None where it is unknown."""
        return view.cgroups.get(self.path, {}).get(self.weight)

    def refusals(self, view: View, value: str) -> list[tuple[str, str]]:
        """Return ``bounds`` for a weight outside of the kernel's range."""
        least, most = WEIGHTS[self.weight]
        return bounds_refusals(self.describe(), value, least, most)

    def shell_command(self, value: str) -> str:
        """Return a shell command that writes the weight to its cgroup file."""
        file = f"/sys/fs/cgroup/{_MOUNTS.get(self.weight, '')}{self.path}/{self.weight}"
        return f"echo {'default ' if self.weight == 'io.weight' else ''}{value} > {shlex.quote(file)}"
