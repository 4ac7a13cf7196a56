"""The program that the backend's account runs: this one, or a root-owned copy where that account cannot read it."""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import coresteer_core
from coresteer.config import Config
from coresteer.extras import LOCAL
from coresteer.process import SystemAccount

_NO_HOME = "/nonexistent"  # root's is closed to the account, which libpq would report instead of ignoring
_UNNEEDED = ("site-packages", "test", "tests", "idlelib", "ensurepip")
_TRY_S = 30


@dataclass(frozen=True)
class Program:
    """A Python interpreter and the variables of the environment with which it finds Coresteer."""

    python: Path
    environment: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


def program_for(account: SystemAccount | None, config: Config) -> Program:
    """Return the program for an account: a copy below the state folder if it cannot read this one, as in root's home.

    Raises OSError when the copy cannot be made.
    """
    if account is None:
        return Program(Path(sys.executable))
    if _can_run(account):
        return Program(Path(sys.executable), {"HOME": _NO_HOME})
    return _copy(config, config.state_dir.absolute() / "program")


def _can_run(account: SystemAccount) -> bool:
    try:
        done = subprocess.run(
            [sys.executable, "-c", "import coresteer, coresteer_agent, coresteer_core, uvicorn"],
            user=account.uid,
            group=account.gid,
            extra_groups=[],
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TRY_S,
            check=False,
        )
    except PermissionError:
        return False
    return done.returncode == 0


def _copy(config: Config, folder: Path) -> Program:
    """Bring the copy up to date: interpreter and packages when they changed, Coresteer itself always."""
    installed = Path(sysconfig.get_path("purelib"))
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    present = sorted(f"{each.name} {each.stat().st_mtime_ns}" for each in installed.glob("*.dist-info"))
    digest = hashlib.sha256("\n".join([sys.base_prefix, sys.version, str(installed), *present]).encode()).hexdigest()
    runtime = folder / f"runtime-{digest[:16]}"
    _open_folder(folder)
    if not runtime.exists():
        for former in list(folder.glob("runtime-*")):
            shutil.rmtree(former)
        partial = folder / "runtime-new"
        base = Path(sys.base_prefix)
        for each in (partial, partial / "bin", partial / "lib"):
            _open_folder(each)
        _tree(base / "lib" / version, partial / "lib" / version)
        for library in base.glob("lib/libpython*.so*"):
            _file(str(library), str(partial / "lib" / library.name), library.stat())
        python = Path(sys.executable).resolve()
        _file(str(python), str(partial / "bin" / version), python.stat())
        _tree(installed, partial / "packages")
        partial.rename(runtime)
    source = folder / "source"
    shutil.rmtree(source, ignore_errors=True)
    _open_folder(source)
    _tree(Path(__file__).parents[1], source / "coresteer")
    _tree(Path(coresteer_core.__file__).parent, source / "coresteer_core")
    _tree(_agent(), source / "coresteer_agent")
    _tree(config.migrations_dir, source / "migrations")
    if config.frontend_dir.exists():
        _tree(config.frontend_dir, source / "frontend")
    environment = {
        "HOME": _NO_HOME,
        "PYTHONPATH": f"{source}:{runtime / 'packages'}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "LD_LIBRARY_PATH": str(runtime / "lib"),  # the interpreter looks for its library where the original is
        "CORESTEER_MIGRATIONS_DIR": str(source / "migrations"),
        "CORESTEER_FRONTEND_DIR": str(source / "frontend"),
    }
    return Program(runtime / "bin" / version, environment)


def _agent() -> Path:
    """Return the folder of the agent's package, which the backend runs to simulate nodes, but never imports."""
    found = importlib.util.find_spec("coresteer_agent")
    if found is None or found.origin is None:
        raise LOCAL.missing()
    return Path(found.origin).parent


def _open_folder(folder: Path) -> None:
    """Make a folder that every account can read, whatever root's umask."""
    folder.mkdir(exist_ok=True)
    folder.chmod(0o755)


def _tree(origin: Path, target: Path) -> None:
    """Copy a folder without what only tests and builds need; 15,000 files in less than a second."""
    _open_folder(target)
    with os.scandir(origin) as entries:
        for entry in entries:
            if entry.is_dir():
                if entry.name not in _UNNEEDED:
                    _tree(Path(entry.path), target / entry.name)
            elif entry.is_file():
                _file(entry.path, os.path.join(target, entry.name), entry.stat())  # noqa: PTH118 - see above


def _file(origin: str, target: str, found: os.stat_result) -> None:
    """Copy a file so that every account can read and only root can write it; a hard link where it is so already."""
    if found.st_uid == 0 and found.st_mode & 0o022 == 0 and found.st_mode & 0o004:
        try:
            os.link(os.path.realpath(origin) if Path(origin).is_symlink() else origin, target)
        except OSError:  # another file system
            pass
        else:
            return
    shutil.copyfile(origin, target)
    os.utime(target, ns=(found.st_atime_ns, found.st_mtime_ns))  # or Python would compile it again at every start
    Path(target).chmod(0o755 if found.st_mode & 0o100 else 0o644)
