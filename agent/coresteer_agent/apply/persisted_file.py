"""persisted.json beside the journal: settings that keep their value across a reboot, see ``coresteer-agent persist``.

The folder belongs to the agent's account alone, root for the package's unit; no message of a backend changes the file.
"""

from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec import Struct

from coresteer_agent.linux.atomic_file import replace_file
from coresteer_core.settings import IrqAffinity, SettingError, parse_setting


class PersistedFileError(Exception):
    """Raised if the file cannot be used; the message is a sentence for the operator."""


class PersistedSetting(Struct, frozen=True):
    """A setting and its value. interrupt: its name in /proc/interrupts; empty for other kinds of setting.

    An interrupt's number may be another one after a reboot; key has that of the boot in which the value was set.
    allow_isolated: of the plan that set it.
    """

    key: str
    value: str
    interrupt: str = ""
    allow_isolated: bool = False

    def resolve(self, interrupts: Iterable[tuple[int, str]]) -> str | None:
        """Return the setting's key in this boot; None unless exactly one interrupt has its name.

        interrupts: number and name of each.
        """
        if not self.interrupt:
            return self.key
        numbers = [number for number, name in interrupts if name == self.interrupt]
        return IrqAffinity(numbers[0]).key if len(numbers) == 1 else None

    @property
    def sentence(self) -> str:
        """The setting and its value, for people; also one that this version does not know."""
        try:
            value = parse_setting(self.key).format_value(self.value)
        except SettingError:
            value = self.value
        return f"{self.key} ({self.interrupt}): {value}" if self.interrupt else f"{self.key}: {value}"


class Persisted(Struct, frozen=True):
    """Settings in the order in which they were persisted. boot_id: of the boot in which they were last applied."""

    boot_id: str = ""
    settings: list[PersistedSetting] = []


def persisted_path(journal: Path) -> Path:
    """Return the path of the file that belongs to a journal."""
    return journal.with_name("persisted.json")


def read_persisted(path: Path) -> Persisted:
    """Return what is persisted; nothing without a file. Raises PersistedFileError."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Persisted)
    except FileNotFoundError:
        return Persisted()
    except OSError as error:
        raise PersistedFileError(f"The persisted settings in {path} cannot be read: {error.strerror}.") from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise PersistedFileError(
            f"The persisted settings in {path} cannot be parsed ({error}); delete the file and persist them again."
        ) from error


def write_persisted(path: Path, persisted: Persisted) -> None:
    """Replace the file atomically, readable by its owner only; without settings, remove it. Raises OSError."""
    if persisted.settings:
        replace_file(path, msgspec.json.encode(persisted))
    else:
        path.unlink(missing_ok=True)
