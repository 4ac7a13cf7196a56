"""Compilation of the engine's functions, with a cache that is valid for exactly these sources.

numba reuses what it compiled earlier if the function's own file is unchanged; it does not see that a function or a
table of another module changed. So the cache's folder is named by a digest of all sources that are compiled together.
"""

import hashlib
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numba

from coresteer_core.policies.coscheduling import reorder

F = TypeVar("F", bound=Callable[..., object])


SOURCES = ("activities", "compiled", "engine", "machine", "scheduler", "schemes", "solaris", "state")
"""Modules that are compiled together, and those whose constants they contain."""


_BESIDE = Path(__file__).parent / "__pycache__"


def _in_home() -> Path:
    return Path.home() / ".cache/coresteer"


def _temporary() -> Path:
    """Return a folder for this user's temporary files. Raises OSError if others can write there: it holds programs."""
    folder = Path(tempfile.gettempdir()) / f"coresteer-{os.geteuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise PermissionError(f"{folder} is not a folder that only this user can write.")
    return folder


def _cache_folder() -> Path | None:
    """Return the first folder for the cache that is writable, None without one."""
    sources = [*(Path(__file__).with_name(f"{name}.py") for name in SOURCES), Path(reorder.__file__)]
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    places: tuple[Callable[[], Path], ...] = (lambda: _BESIDE, _in_home, _temporary)
    for place in places:
        try:
            folder = place() / f"numba-{digest}"
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
        except (OSError, RuntimeError):  # RuntimeError: this user has no home
            continue
        return folder
    return None


_CACHE = _cache_folder()
if _CACHE is not None:
    numba.config.CACHE_DIR = str(_CACHE)


def compiled(function: F) -> F:
    """Compile a function with numba when it is first called; without a writable folder, in every process again."""
    made: F = numba.njit(function, cache=_CACHE is not None)
    return made
