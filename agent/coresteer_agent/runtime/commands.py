"""Reads the commands that experiments may run on this node, from agent/commands.toml in the state directory.

    [commands]
    web-load = ["/usr/bin/wrk", "-t2", "-c64", "-d10s", "http://127.0.0.1/"]

The commands run with the agent's rights, so only root or the agent's account may be able to change the file.
"""

import os
import stat
import tomllib
from pathlib import Path

import msgspec
from msgspec import Struct

_MOST_BYTES = 64 * 1024


class CommandsError(Exception):
    """Raised if a command is not available; the message is a sentence."""


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    commands: dict[str, list[str]] = {}


def allowed_command(path: Path, name: str) -> list[str]:
    """Return program and arguments of an allowed command, to be run without a shell. Raises CommandsError."""
    try:
        argv = _read(path).commands.get(name)
    except FileNotFoundError:
        argv = None
    except OSError as error:
        raise CommandsError(f"{path} cannot be read: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise CommandsError(f"{path} cannot be parsed: {error}.") from None
    if argv is None:
        raise CommandsError(f"This node does not allow the command {name}; its operator can add it to {path}.")
    if not argv or not argv[0].startswith("/"):
        raise CommandsError(f"The command {name} in {path} needs the absolute path of a program before its arguments.")
    return argv


def _read(path: Path) -> _File:
    """Read the file of allowed commands. Raises CommandsError if other accounts may change it."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    with os.fdopen(fd, "rb") as file:
        for what, found in ((path, os.fstat(fd)), (path.parent, path.parent.stat())):
            if found.st_uid not in (0, os.geteuid()):
                raise CommandsError(f"{what} belongs to another account; root or the agent's account must own it.")
            if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                raise CommandsError(f"{what} can be written by others; run chmod go-w on it.")
        text = file.read(_MOST_BYTES).decode()
    return msgspec.convert(tomllib.loads(text), _File)
