"""Handler: how one kind of setting is read and written on a machine."""

import errno
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Generic, Protocol, TypeAlias, TypeVar

from coresteer_agent.apply import rooted
from coresteer_agent.apply.rooted import ReadOnlyModeError
from coresteer_core.changes.report import Outcome
from coresteer_core.node.view import View

S = TypeVar("S")

Error: TypeAlias = OSError | ReadOnlyModeError
Explanation: TypeAlias = tuple[Outcome, str]

READ_ONLY: Explanation = (Outcome.REFUSED, "The kernel made it read-only.")


class Handler(Generic[S]):
    """Reads and writes the settings of one kind, stateless.

    root: the directory below which the machine is, ``/`` or a captured tree. A kind implements exists, read and write,
    and overrides what differs for it. errors: outcome and sentence of a failed write by errno.
    """

    errors: ClassVar[Mapping[int, Explanation]] = {}
    read_only: ClassVar[Explanation] = READ_ONLY

    def exists(self, root: Path, setting: S) -> bool:
        """Return whether the node has the setting. Raises OSError when that cannot be determined."""
        raise NotImplementedError

    def read(self, root: Path, setting: S) -> str:
        """Return the canonical value. Raises OSError, or SettingError for a text that is no value."""
        raise NotImplementedError

    def write(self, root: Path, setting: S, value: str) -> None:
        """Set a canonical value. Raises OSError or ReadOnlyModeError."""
        raise NotImplementedError

    def attainable(self, root: Path, setting: S, value: str) -> str:
        """Return a value as read() would return it, without parts that no longer exist, such as threads."""
        return value

    def owners(self, root: Path, setting: S) -> list[str]:
        """Return the identity of the device or process it belongs to, to detect a reused name; empty if unknown."""
        return []

    def refresh(self, root: Path, setting: S, view: View) -> View:
        """Return the View with what the guard needs to know of the setting at this moment."""
        return view

    def explain(self, error: Error, root: Path) -> Explanation:
        """Return a failed write's outcome, refused or failed, with a sentence."""
        if isinstance(error, ReadOnlyModeError):
            return self.read_only
        return self.errors.get(error.errno or 0, (Outcome.FAILED, f"The answer was: {error.strerror}."))


class HasPath(Protocol):
    """A setting whose value is the text of one file."""

    @property
    def path(self) -> str:
        """The file, below the root directory."""

    def canonical(self, value: str) -> str:
        """Return a value in its one spelling. Raises SettingError."""


F = TypeVar("F", bound=HasPath)


class FileHandler(Handler[F]):
    """Reads and writes settings whose value is the text of a file at ``setting.path``."""

    def exists(self, root: Path, setting: F) -> bool:
        """Return whether the file exists. Raises OSError."""
        return rooted.exists(root, setting.path)

    def read(self, root: Path, setting: F) -> str:
        """Return the file's text in canonical form. Raises OSError or SettingError."""
        return setting.canonical(rooted.read_text(root, setting.path))

    def write(self, root: Path, setting: F, value: str) -> None:
        """Write the value as a line. Raises OSError or ReadOnlyModeError."""
        rooted.write_text(root, setting.path, f"{value}\n")


def not_permitted(sentence: str) -> dict[int, Explanation]:
    """Return the explanations of EPERM and EACCES for an agent without the privilege."""
    return dict.fromkeys((errno.EPERM, errno.EACCES), (Outcome.REFUSED, sentence))
