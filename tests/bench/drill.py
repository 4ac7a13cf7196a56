"""Run a drill on an installation of its own, and report what went wrong."""

import asyncio
import shutil
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

from tests.upgrade.installation import Installation, installation

from coresteer.postgres import EmbeddedPostgres

_DATABASE = "postgres-state"

Drill: TypeAlias = Callable[[Installation, EmbeddedPostgres], Awaitable[list[str]]]


def run_drill(name: str, drill: Drill) -> int:
    """Run a drill in an empty folder; return the exit code. drill: returns a sentence for each failure.

    The programs' logs are kept if the drill fails or raises.
    """
    folder = Path(tempfile.mkdtemp(prefix=f"coresteer-{name}-"))
    folder.chmod(0o711)  # the server's account passes through
    try:
        wrong = asyncio.run(_run(drill, folder))
        if not wrong:
            shutil.rmtree(folder)
    finally:
        if folder.exists():
            if (folder / _DATABASE).exists():
                shutil.rmtree(folder / _DATABASE)
            if any(folder.iterdir()):
                sys.stderr.write(f"The programs' logs are in {folder}.\n")
            else:  # the database could not start, so no program did
                folder.rmdir()
    sys.stderr.writelines(f"{sentence}\n" for sentence in wrong)
    return 1 if wrong else 0


async def _run(drill: Drill, folder: Path) -> list[str]:
    postgres = EmbeddedPostgres(folder / _DATABASE)
    await postgres.start()
    try:
        async with installation(postgres, folder) as made:
            return await drill(made, postgres)
    finally:
        await postgres.stop()
