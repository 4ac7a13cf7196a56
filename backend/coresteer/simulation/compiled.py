"""Compilation of the engine's functions, with a cache that is valid for exactly these sources.

numba reuses what it compiled earlier if the function's own file is unchanged; it does not see that a function or a
table of another module changed. So the cache's folder is named by a digest of all sources that are compiled together.
"""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numba

from coresteer_core.policies.coscheduling import reorder

F = TypeVar("F", bound=Callable[..., object])


SOURCES = ("activities", "compiled", "engine", "machine", "scheduler", "schemes", "solaris", "state")
"""Modules that are compiled together, and those whose constants they contain."""


def _cache_folder() -> Path:
    sources = [*(Path(__file__).with_name(f"{name}.py") for name in SOURCES), Path(reorder.__file__)]
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    beside = Path(__file__).parent / "__pycache__"
    writable = os.access(beside if beside.exists() else beside.parent, os.W_OK)
    return (beside if writable else Path.home() / ".cache/coresteer") / f"numba-{digest}"


numba.config.CACHE_DIR = str(_cache_folder())


def compiled(function: F) -> F:
    """Compile a function with numba when it is first called."""
    made: F = numba.njit(function, cache=True)
    return made
