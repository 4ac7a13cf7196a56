"""The previous release, which today's version works with: its commit, and its source tree to run beside today's."""

import io
import os
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

from coresteer.config import REPOSITORY

_PACKAGES = ("agent", "agent/coresteer-core", "agent/coresteer-gate", "backend")
_FOLDERS = ("agent", "backend", "migrations", "docs/papers.toml")  # the last one by a link in backend


class MissingHistoryError(Exception):
    """The history of this checkout does not reach back to a release."""


@dataclass(frozen=True)
class Release:
    """A commit in which the packages' version and the newest dated entry of CHANGELOG.md agree."""

    version: str
    commit: str


PREVIOUS = Release("0.3.0", "83534004f702dcb2d436336d82f56767d61a794e")
"""The pinned previous release; the commit after a release pins that one."""


@dataclass(frozen=True)
class Tree:
    """The sources of a version. Its processes use the packages installed here, but its own code."""

    folder: Path

    def environment(self, **more: str) -> dict[str, str]:
        """Return the environment of its processes, without settings of Coresteer other than these."""
        # a start takes ten times as long where Python may not keep compiled modules
        own = ("CORESTEER_", "DATABASE_URL", "PG_BIN", "PYTHONDONTWRITEBYTECODE")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(own)}
        path = os.pathsep.join(str(self.folder / package) for package in _PACKAGES)
        return kept | {"PYTHONPATH": path, **more}

    def command(self, module: str, *arguments: str) -> list[str]:
        """Return the command line of one of its programs, ``coresteer`` or ``coresteer_agent``."""
        return [sys.executable, "-P", "-m", module, *arguments]


TODAY = Tree(REPOSITORY)


def extract(release: Release, folder: Path) -> Tree:
    """Write the sources of a release into a folder, with the metadata that an installation would have.

    Raises MissingHistoryError.
    """
    with tarfile.open(fileobj=io.BytesIO(archive(release, *_FOLDERS))) as files:
        files.extractall(folder, filter="data")
    metadata = folder / f"backend/coresteer-{release.version}.dist-info/METADATA"
    metadata.parent.mkdir()
    metadata.write_text(f"Metadata-Version: 2.1\nName: coresteer\nVersion: {release.version}\n")
    return Tree(folder)


def archive(release: Release, *paths: str) -> bytes:
    """Return files of a release as a tar archive. Raises MissingHistoryError."""
    git = ["git", "-C", str(REPOSITORY), "archive", "--format=tar", release.commit, *paths]
    done = subprocess.run(git, capture_output=True, check=False)
    if done.returncode:
        raise MissingHistoryError(
            f"The commit {release.commit} of release {release.version} cannot be read: {done.stderr.decode().strip()}. "
            "A shallow clone needs `git fetch --unshallow`."
        )
    return done.stdout
