"""Base classes of handlers: a handler reads and writes one kind of setting on a machine."""

import errno
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar, Generic, Protocol, TypeAlias, TypeVar

from coresteer_agent.apply import rooted
from coresteer_agent.apply.rooted import ReadOnlyModeError
from coresteer_core.changes.report import Outcome
from coresteer_core.node.view import View

S = TypeVar("S")

Error: TypeAlias = OSError | ReadOnlyModeError
Explanation: TypeAlias = tuple[Outcome, str]

READ_ONLY: Explanation = (Outcome.REFUSED, "The kernel has made this setting read-only.")


class Handler(Generic[S]):
    """Reads and writes all settings of one kind; has no state.

    root: the directory below which the machine is, ``/`` or a captured tree. A kind implements exists, read and write,
    and overrides what differs for it. errors: outcome and sentence of a failed write by errno.
    """

    errors: ClassVar[Mapping[int, Explanation]] = {}
    read_only: ClassVar[Explanation] = READ_ONLY

    def exists(self, root: Path, setting: S) -> bool:
        """Return whether the node has the setting. Raises OSError if that cannot be determined."""
        raise NotImplementedError

    def read(self, root: Path, setting: S) -> str:
        """Return the setting's present value in canonical form. Raises OSError, or SettingError for invalid text."""
        raise NotImplementedError

    def write(self, root: Path, setting: S, value: str) -> None:
        """Write a canonical value to the setting. Raises OSError or ReadOnlyModeError."""
        raise NotImplementedError

    def write_in_steps(self, root: Path, setting: S, value: str) -> Iterator[None]:
        """Write a value and pause after each part of a write that takes long. Raises as write() does."""
        self.write(root, setting, value)
        return iter(())

    def attainable(self, root: Path, setting: S, value: str) -> str:
        """Return the value that read() will return after a write, without threads or queues that no longer exist."""
        return value

    def owners(self, root: Path, setting: S) -> list[str]:
        """Return the identity of the device or process of a setting, to detect a reused name; empty if unknown."""
        return []

    def refresh(self, root: Path, setting: S, view: View) -> View:
        """Return the View with the setting's data read again for the guard."""
        return view

    def explain(self, error: Error, root: Path) -> Explanation:
        """Return the outcome (refused or failed) and a sentence for the error of a failed write."""
        if isinstance(error, ReadOnlyModeError):
            return self.read_only
        return self.errors.get(error.errno or 0, (Outcome.FAILED, f"The system call failed: {error.strerror}."))


class HasPath(Protocol):
    """A setting whose value is the text of one file."""

    @property
    def path(self) -> str:
        """Return the file's path below the root directory."""

    def canonical(self, value: str) -> str:
        """Return a value in its canonical form. Raises SettingError for an invalid value."""


F = TypeVar("F", bound=HasPath)


class FileHandler(Handler[F]):
    """Reads and writes settings whose value is the text of a file at ``setting.path``."""

    def exists(self, root: Path, setting: F) -> bool:
        """Return whether the setting's file exists. Raises OSError."""
        return rooted.exists(root, setting.path)

    def read(self, root: Path, setting: F) -> str:
        """Return the text of the setting's file in canonical form. Raises OSError or SettingError."""
        return setting.canonical(rooted.read_text(root, setting.path))

    def write(self, root: Path, setting: F, value: str) -> None:
        """Write a value and a newline to the setting's file. Raises OSError or ReadOnlyModeError."""
        rooted.write_text(root, setting.path, f"{value}\n")


def not_permitted(sentence: str) -> dict[int, Explanation]:
    """Return explanations by errno (EPERM, EACCES) for an agent without the required privilege."""
    return dict.fromkeys((errno.EPERM, errno.EACCES), (Outcome.REFUSED, sentence))
