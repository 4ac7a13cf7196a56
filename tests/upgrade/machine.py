"""The machine whose agent left its state behind: a small tree of files, and settings that only a running kernel has.

tree.json says of each what stood there before Coresteer changed anything, and what stands there now.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from coresteer_agent.apply import registry
from coresteer_core.changes.report import Outcome
from coresteer_core.node.view import View
from coresteer_core.settings import Setting

INODE = "@inode of "
"""Before a path in the stored journal: in its place stands the number that this folder has in the test's tree."""
ROOT = "@root"


@dataclass
class Machine:
    """files: by path below the root. kernel: by setting key. owners: of the kernel's settings."""

    root: Path
    kernel: dict[str, str] = field(default_factory=dict)

    def build(self, files: dict[str, str]) -> None:
        """Write the tree."""
        for path, text in files.items():
            file = self.root / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)

    def files(self) -> dict[str, str]:
        """What stands in the tree."""
        found = sorted(path for path in self.root.rglob("*") if path.is_file())
        return {str(path.relative_to(self.root)): path.read_text() for path in found}

    def tunable(self, root: Path, setting: Setting, handler: None = None) -> "registry.Tunable | KernelTunable":
        """In the place of registry.Tunable: settings without a file are the kernel's."""
        return KernelTunable(self, setting) if setting.key in self.kernel else registry.Tunable(root, setting)

    def at_home(self, text: str) -> str:
        """The stored journal as it would be of this tree: it names the root directory and numbers of folders."""
        text = text.replace(ROOT, str(self.root.resolve()))
        while INODE in text:
            path = text.partition(INODE)[2].partition('"')[0]
            text = text.replace(f"{INODE}{path}", str((self.root / path).stat().st_ino))
        return text


@dataclass
class KernelTunable:
    """A setting of a process or of ethtool, which a captured tree does not have."""

    machine: Machine
    setting: Setting

    def exists(self) -> bool:
        return True

    def read(self) -> str:
        return self.setting.canonical(self.machine.kernel[self.setting.key])

    def write(self, value: str) -> None:
        self.machine.kernel[self.setting.key] = value

    def write_in_steps(self, value: str) -> Iterator[None]:
        self.write(value)
        return iter(())

    def attainable(self, value: str) -> str:
        return value

    def owners(self) -> list[str]:
        return ["interface 2"] if self.setting.key.startswith("netdev/") else ["the process that started at tick 8120"]

    def refresh(self, view: View) -> View:
        return view

    def explain(self, error: Exception) -> tuple[Outcome, str]:
        return Outcome.FAILED, str(error)


def stored(folder: Path) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Of the files and of the kernel's settings: what stood before, and what stands."""
    tree = json.loads((folder / "tree.json").read_text())
    return tree["files"], tree["kernel"]
