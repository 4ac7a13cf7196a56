"""Reads the limits of the node, what any backend may ever do on it: /etc/coresteer/limits.toml, see docs/SECURITY.md.

The agent never writes the file, and reads it again as soon as it changes. Whatever is wrong with it, nothing is allowed
until it is right: an administrator who wrote limits must not get the defaults instead.
"""

import logging
import os
import stat
from pathlib import Path
from typing import Any, TypeAlias  # Any: TOML

import msgspec
from msgspec import Struct

from coresteer_core.node.limits import Limits, LoadLimits, SettingLimits

log = logging.getLogger("coresteer.limits")

_MOST_BYTES = 64 * 1024
_State: TypeAlias = tuple[tuple[int, ...], ...]


class _LimitsError(Exception):
    """Raised if the file cannot be used; the message is a sentence."""


class LimitsFile:
    """The limits of one node. path: of the file, which only root may be able to change; it need not exist."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_at: _State | None = None
        self._limits = Limits()

    def read(self) -> Limits:
        """Return the present limits; the same object as before if the file has not changed."""
        state = (_state(self._path), _state(self._path.parent))
        if state != self._read_at:
            limits = self._read()
            if limits.unusable is not None:
                log.error("No setting is changed and no load is generated on this node. %s", limits.unusable)
            elif self._read_at is not None:
                log.info("The limits in %s have changed.", self._path)
            self._read_at, self._limits = state, limits
        return self._limits

    def _read(self) -> Limits:
        try:
            return _parse(self._text())
        except FileNotFoundError:
            return Limits()
        except OSError as error:
            reason = f"{self._path} cannot be read: {error.strerror}."
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            reason = f"{self._path} cannot be parsed: {error}."
        except _LimitsError as error:
            reason = f"{self._path}: {error}"
        return Limits(unusable=reason[:1000])

    def _text(self) -> str:
        """Return the file's text. Raises OSError, or _LimitsError if others than root may change it."""
        fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(fd, "rb") as file:
            for what, found in (("the file", os.fstat(fd)), ("its folder", self._path.parent.stat())):
                if found.st_uid != 0:
                    raise _LimitsError(f"{what} belongs to another account; run chown root on it.")
                if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                    raise _LimitsError(f"{what} can be written by others; run chmod go-w on it.")
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise _LimitsError("it is not a file.")
            text = file.read(_MOST_BYTES + 1)
        if len(text) > _MOST_BYTES:
            raise _LimitsError(f"it has more than {_MOST_BYTES} bytes.")
        return text.decode()


def _parse(text: str) -> Limits:
    """Return the limits in a file. Raises DecodeError or _LimitsError."""
    tables = msgspec.toml.decode(text)  # loads tomllib only for a file that exists
    _check_names(tables, {"settings": SettingLimits, "loads": LoadLimits})
    limits = msgspec.convert(tables, Limits)
    if (wrong := limits.invalid()) is not None:
        raise _LimitsError(f"it has an invalid value: {wrong.rstrip('.')}.")
    return limits


def _check_names(tables: dict[str, Any], kinds: dict[str, type[Struct]]) -> None:
    """Raise _LimitsError for a name that has no meaning: a limit that is spelled wrongly would not limit anything."""
    for name, table in tables.items():
        if name not in kinds:
            raise _LimitsError(f"there is no table or name “{name[:40]}”; it may have {' and '.join(kinds)}.")
        fields = kinds[name].__struct_fields__
        for key in table if isinstance(table, dict) else ():
            if key not in fields:
                raise _LimitsError(f"there is no {name}.{key[:40]}; {name} may have {', '.join(fields)}.")


def _state(path: Path) -> tuple[int, ...]:
    """Return what changes whenever a file or folder, its owner or its mode does; empty if there is none."""
    try:
        found = path.lstat()
    except OSError as error:
        return (error.errno or 0,)
    return (
        found.st_dev,
        found.st_ino,
        found.st_uid,
        found.st_mode,
        found.st_size,
        found.st_mtime_ns,
        found.st_ctime_ns,
    )
